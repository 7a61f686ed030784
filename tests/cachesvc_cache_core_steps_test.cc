// What one handler of the loop may do while all clients wait: so much memory given back and no
// more, and what a worker can free a worker frees.
#include "tests/support/cachesvc_stepped.h"

namespace kv {
namespace {

constexpr uint64_t kLoopBlockBytes = 8 * 1024;  // 16 exact tokens of plain_model()
constexpr uint64_t kMostEvicted = 64;           // that one handler evicts
constexpr uint64_t kMostFreed = 256u << 10;     // bytes that it frees itself

class LoopTest : public ::testing::Test {
 protected:
  void open(const CacheOptions& options) {
    client_ = std::make_unique<Stepped>(options);
    bench_ = std::make_unique<Bench>(Bench::open(*client_, plain_model()));
  }
  uint64_t held(ChargeKind kind = ChargeKind::stored) const {
    return client_->core->pool()->used_bytes(kind);
  }
  Sequence fresh(size_t n) { return random_tokens(rng_, n); }
  // Objects as finished as they are before a commit.
  uint64_t put_all(const Sequence& tokens) {
    auto reserved = bench_->reserve(tokens);
    EXPECT_TRUE(reserved.ok());
    for (const Need& need : reserved->needs) {
      EXPECT_TRUE(
          client_->put(make_put(bench_->model, 16, tokens, need, reserved->reservation), soon())
              .ok());
    }
    return reserved->reservation;
  }
  // Asks for room that only others' objects can give.
  void begin_reserve(size_t blocks) {
    ReserveRequest request;
    request.model = bench_->opened.model;
    request.profile = bench_->opened.realm.profile;
    request.query.tokens = fresh(blocks * 16);
    client_->core->reserve(client_->session, request, soon(),
                           [this](Result<ReserveReply> r) { reserved_ = std::move(r); });
    client_->run_workers();  // makes the ids
  }
  void begin_erase(const Sequence& which, std::optional<Result<uint64_t>>& erased) {
    client_->core->erase(client_->session, bench_->opened.model, {which, {}}, soon(),
                         [&erased](Result<uint64_t> n) { erased = std::move(n); });
  }
  // Tokens that a lookup finds, at once: no handler runs for it.
  uint32_t found(const Sequence& tokens) {
    uint32_t out = 0;
    client_->core->lookup(client_->session, {bench_->opened.model, {plus_one(tokens), {}}}, soon(),
                          [&](Result<LookupReply> r) {
                            if (r.ok()) out = r->tokens;
                          });
    return out;
  }
  uint64_t index_bytes() const { return held(ChargeKind::index); }
  // One block, put while the loop runs its handlers one by one, and its commit begun.
  bool put_beside(const Sequence& tokens, Durability level,
                  std::optional<Result<CommitReply>>& committed) {
    auto reserved = bench_->reserve(tokens);
    if (!reserved.ok() || reserved->needs.size() != 1) return false;
    PutRequest request =
        make_put(bench_->model, 16, tokens, reserved->needs[0], reserved->reservation);
    std::optional<Status> put;
    auto& core = *client_->core;
    core.put(client_->session, std::move(request), nullptr, soon(), [&](Status s) { put = s; });
    for (int i = 0; i < 100 && !put; ++i) {
      client_->run_workers();
      client_->loop.restart();
      client_->loop.poll_one();
    }
    core.commit(client_->session, reserved->reservation, level, soon(),
                [&](Result<CommitReply> r) { committed = std::move(r); });
    return put && put->ok();
  }
  // Bytes of what one handler evicted: those that it freed itself, and with what a worker freed.
  struct Evicted {
    uint64_t here = 0, in_all = 0;
  };
  // Runs handlers one by one until that is answered, and workers behind each. Returns: the most of
  // any.
  Evicted longest_step() {
    Evicted most;
    while (!reserved_) {
      const uint64_t before = held();
      client_->loop.restart();
      if (client_->loop.poll_one() == 0) client_->loop.run_one();  // a timer is left
      most.here = std::max(most.here, before - std::min(before, held()));
      client_->run_workers();
      most.in_all = std::max(most.in_all, before - std::min(before, held()));
      ++steps_;
    }
    return most;
  }
  void expect_small_steps() {
    const Evicted most = longest_step();
    EXPECT_LE(most.in_all, kMostEvicted * kLoopBlockBytes);
    EXPECT_LE(most.here, kMostFreed);
  }

  std::mt19937 rng_{21};
  std::unique_ptr<Stepped> client_;
  std::unique_ptr<Bench> bench_;
  std::optional<Result<ReserveReply>> reserved_;
  uint64_t steps_ = 0;  // of the loop, in longest_step
};

TEST_F(LoopTest, EvictsInSteps) {
  CacheOptions options = small_options();
  options.ram_budget_bytes = 6u << 20;
  open(options);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(bench_->store(fresh(32 * 16)).ok());
  uint64_t before = held();
  begin_reserve(400);
  ASSERT_FALSE(reserved_.has_value()) << "at once";
  EXPECT_GE(held() + kMostEvicted * kLoopBlockBytes, before);
  expect_small_steps();
  EXPECT_TRUE(reserved_->ok()) << reserved_->status().to_string();
}

// Objects that wait for an SSD which does not write go when the wait for room ends.
TEST_F(LoopTest, EvictsInStepsWhenItHasWaitedLongEnough) {
  TempDir dir;
  CacheOptions options = small_options(dir.store());
  options.ram_budget_bytes = 16u << 20;
  options.spill_when = SpillWhen::evict;
  options.room_wait = Milliseconds(20);
  open(options);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(bench_->store(fresh(32 * 16)).ok());
  client_->hangs = true;
  begin_reserve(1200);
  ASSERT_FALSE(reserved_.has_value()) << "at once";
  expect_small_steps();
  EXPECT_TRUE(reserved_->ok()) << reserved_->status().to_string();
  uint64_t evicted = bench_->stat("ram_evicted_dirty");
  EXPECT_GT(evicted, 8 * kMostEvicted);
  EXPECT_GE(steps_, evicted / kMostEvicted);
}

TEST_F(LoopTest, WhatAnEraseTakesAWorkerFrees) {
  open(small_options());
  auto tokens = fresh(64 * 16);
  ASSERT_TRUE(bench_->store(tokens).ok());
  std::optional<Result<uint64_t>> erased;
  client_->core->erase(client_->session, bench_->opened.model, {}, soon(),
                       [&](Result<uint64_t> n) { erased = std::move(n); });
  client_->run_loop();
  EXPECT_EQ(held(), 64 * kLoopBlockBytes);
  EXPECT_FALSE(erased.has_value()) << "answered before its memory is free";
  client_->run_workers();
  EXPECT_EQ(held(), 0u);
  client_->run_loop();
  EXPECT_TRUE(erased.has_value());
}

TEST_F(LoopTest, ErasesInSteps) {
  constexpr uint64_t kBlocks = 200, kMostErased = 32;
  TempDir dir;
  open(small_options(dir.store()));
  auto tokens = fresh(kBlocks * 16);
  ASSERT_TRUE(bench_->store(tokens, Durability::spilled).ok());
  client_->run();
  std::optional<Result<uint64_t>> erased;
  uint64_t before = index_bytes(), block = before / kBlocks, steps = 0;
  begin_erase({}, erased);
  do {
    EXPECT_LE(before - index_bytes(), kMostErased * block);
    steps += index_bytes() < before;
    before = index_bytes();
    client_->loop.restart();
  } while (client_->loop.poll_one() > 0);
  EXPECT_GE(steps, kBlocks / kMostErased);
  client_->run();
  ASSERT_TRUE(erased && erased->ok());
  EXPECT_EQ(**erased, kBlocks);
  EXPECT_EQ(bench_->stat("ram_objects") + bench_->stat("ssd_objects"), 0u);
  EXPECT_EQ(held(), 0u);
  client_.reset();
  open(small_options(dir.store()));
  EXPECT_EQ(bench_->stat("recovered_objects"), 0u) << "a file is left";
}

// Others are served between the steps of an erase; what they commit meanwhile waits for its end,
// and stays, its file too.
TEST_F(LoopTest, WhatIsCommittedDuringAnEraseStays) {
  TempDir dir;
  CacheOptions options = small_options(dir.store());
  options.spill_when = SpillWhen::evict;  // only what is asked for
  open(options);
  auto one = fresh(16), large = fresh(1200 * 16);
  ASSERT_TRUE(bench_->store(one, Durability::spilled).ok());
  ASSERT_TRUE(bench_->store(large).ok());
  client_->run();
  std::optional<Result<uint64_t>> erased_one, erased, again;
  begin_erase(one, erased_one);
  begin_erase({}, erased);
  begin_erase({}, again);
  std::optional<Result<CommitReply>> committed;
  ASSERT_TRUE(put_beside(one, Durability::spilled, committed));
  ASSERT_GT(found(large), 0u) << "the erase was over before";
  EXPECT_EQ(found(one), 0u);
  EXPECT_FALSE(committed.has_value());
  client_->run();
  ASSERT_TRUE(erased && erased->ok() && erased_one && erased_one->ok() && again && again->ok());
  EXPECT_EQ(**erased + **again, 1200u) << "they went one by one";
  ASSERT_TRUE(committed && committed->ok());
  EXPECT_EQ((*committed)->level, Durability::spilled);
  EXPECT_EQ(found(large), 0u);
  EXPECT_EQ(found(one), 16u);
  client_.reset();
  open(options);
  EXPECT_EQ(bench_->fetch(plus_one(one))->tokens, 16u) << "its file is gone";
  EXPECT_EQ(bench_->stat("recovered_objects"), 1u);
}

// What a commit waits for, a drain that comes after it waits for too.
TEST_F(LoopTest, ADrainWritesWhatWaitsForAnErase) {
  TempDir dir;
  CacheOptions options = small_options(dir.store());
  options.spill_when = SpillWhen::evict;
  open(options);
  auto one = fresh(16), large = fresh(1200 * 16);
  ASSERT_TRUE(bench_->store(large).ok());
  std::optional<Result<uint64_t>> erased;
  std::optional<Result<CommitReply>> committed;
  std::optional<Status> drained;
  begin_erase({}, erased);
  ASSERT_TRUE(put_beside(one, Durability::accepted, committed));
  ASSERT_FALSE(committed.has_value()) << "the erase was over before";
  client_->core->drain(soon(), [&](Status s) { drained = s; });
  client_->run();
  ASSERT_TRUE(committed && committed->ok() && drained && drained->ok());
  client_.reset();
  open(options);
  EXPECT_EQ(bench_->fetch(plus_one(one))->tokens, 16u);
}

TEST_F(LoopTest, AnEraseThatHasBegunIsDoneWhenTheCoreCloses) {
  TempDir dir;
  open(small_options(dir.store()));
  ASSERT_TRUE(bench_->store(fresh(600 * 16), Durability::spilled).ok());
  client_->run();
  std::optional<Result<uint64_t>> erased;
  begin_erase({}, erased);
  ASSERT_GT(index_bytes(), 0u) << "it was one step";
  client_.reset();
  open(small_options(dir.store()));
  EXPECT_EQ(bench_->stat("recovered_objects"), 0u);
}

// On blocks that an erase has still to take: they are lost by then, and the commit says so.
TEST_F(LoopTest, ACommitOnWhatAnEraseTakesNamesIt) {
  open(small_options());
  auto large = fresh(300 * 16);
  ASSERT_TRUE(bench_->store(large).ok());
  auto longer = slice(large, 0, 20 * 16);
  for (Token t : fresh(16)) longer.push_back(t);
  std::optional<Result<uint64_t>> erased;
  std::optional<Result<CommitReply>> committed;
  begin_erase({}, erased);
  ASSERT_EQ(found(longer), 20u * 16) << "the erase was one step";
  uint64_t reservation = put_all(longer);  // pumps the loop: the erase ends
  client_->core->commit(client_->session, reservation, Durability::accepted, soon(),
                        [&](Result<CommitReply> r) { committed = std::move(r); });
  client_->run();
  ASSERT_TRUE(erased && erased->ok() && committed && committed->ok());
  EXPECT_EQ(**erased, 300u);
  EXPECT_EQ((*committed)->lost.size(), 1u) << "the first lost block";
  EXPECT_EQ(found(longer), 0u);
  EXPECT_EQ(bench_->stat("ram_objects"), 0u);
}

TEST_F(LoopTest, WhatAnAbortDropsAWorkerFrees) {
  open(small_options());
  uint64_t reservation = put_all(fresh(64 * 16));
  bool answered = false;
  client_->core->abort(client_->session, reservation, soon(), [&](Status) { answered = true; });
  client_->run_loop();
  EXPECT_EQ(held(), 64 * kLoopBlockBytes);
  EXPECT_FALSE(answered) << "room may be asked for anew, and is not there";
  client_->run_workers();
  EXPECT_EQ(held(), 0u);
  client_->run_loop();
  EXPECT_TRUE(answered);
}

TEST_F(LoopTest, ARefusedCommitIsAnsweredWhenItsMemoryIsFree) {
  open(small_options());
  auto tokens = fresh(4 * 16);
  auto reserved = bench_->reserve(tokens);
  ASSERT_TRUE(reserved.ok());
  Status put = client_->put(
      make_put(bench_->model, 16, tokens, reserved->needs[0], reserved->reservation), soon());
  ASSERT_TRUE(put.ok()) << put.to_string();
  std::optional<StatusCode> refused;
  client_->core->commit(client_->session, reserved->reservation, Durability::accepted, soon(),
                        [&](Result<CommitReply> r) { refused = r.status().code(); });
  client_->run_loop();
  EXPECT_FALSE(refused.has_value());
  EXPECT_EQ(held(), kLoopBlockBytes);
  client_->run();
  EXPECT_EQ(refused, StatusCode::invalid_argument);
  EXPECT_EQ(held(), 0u);
}

// The memory that a body will lie in is a worker's to find, before any of the body is read.
TEST_F(LoopTest, WhatAFrameNeedsAWorkerAllocates) {
  open(small_options());
  std::optional<Staging> staging;
  client_->core->memory().allocate_staging(client_->session, 1 << 20, StagingFor::put, soon(),
                                           [&](Result<Staging> got) { staging = std::move(*got); });
  client_->run_loop();
  EXPECT_FALSE(staging.has_value());
  client_->run_workers();
  client_->run_loop();
  ASSERT_TRUE(staging.has_value());
  EXPECT_EQ(staging->body.size(), 1u << 20);
}

// As much to do for each block of a long prompt as for one of a short one.
TEST_F(LoopTest, APromotionPinsNoPathOfItsOwn) {
  // Pins while all of an entry of so many blocks is read.
  auto pins_of = [this](uint64_t blocks) {
    TempDir dir;
    open(small_options(dir.store()));
    auto tokens = fresh(blocks * 16);
    EXPECT_TRUE(bench_->store(tokens, Durability::durable).ok());
    client_.reset();
    open(small_options(dir.store()));
    std::optional<Result<FetchReply>> fetched;
    client_->hangs = true;
    client_->core->fetch(client_->session, fetch_of(*bench_, plus_one(tokens)), soon(),
                         [&](Result<FetchReply> r) { fetched = std::move(r); });
    const uint64_t pins = bench_->stat("pins");
    client_->hangs = false;
    client_->run();
    EXPECT_TRUE(fetched && fetched->ok() && (*fetched)->tokens == blocks * 16);
    fetched.reset();
    client_->run();
    EXPECT_EQ(bench_->stat("pins"), 0u) << "with the lease";
    client_.reset();
    return pins;
  };
  const uint64_t few = pins_of(8), many = pins_of(64);
  EXPECT_GE(many, 64u) << "all of the hit is there until it is served";
  EXPECT_LE(many, 8 * few) << "a block of a long prompt pins as much as one of a short one";
}

// A long fetch takes several handlers. Whatever an erase takes between them, the reply has no hole,
// and no pin is left.
TEST_F(LoopTest, AFetchSurvivesAnEraseBetweenItsSteps) {
  constexpr uint64_t kBlocks = 64;
  size_t steps = 0;
  for (bool ended = false; !ended; ++steps) {
    open(small_options());
    const Sequence tokens = fresh(kBlocks * 16);
    ASSERT_TRUE(bench_->store(tokens).ok());
    FetchRequest request;
    request.model = bench_->opened.model;
    request.query.tokens = plus_one(tokens);
    std::optional<Result<FetchReply>> fetched;
    std::optional<Result<uint64_t>> erased;
    client_->core->fetch(client_->session, request, soon(),
                         [&](Result<FetchReply> r) { fetched = std::move(r); });
    for (size_t i = 0; i < steps && !fetched; ++i) {
      client_->run_workers();
      client_->loop.restart();
      client_->loop.poll_one();
    }
    ASSERT_LT(steps, 1000u);
    ended = fetched.has_value();
    begin_erase({}, erased);
    client_->run();
    ASSERT_TRUE(erased && erased->ok() && fetched && fetched->ok()) << "after " << steps;
    const auto& objects = (*fetched)->lease.prefix().objects;
    ASSERT_EQ(objects.size() * 16, (*fetched)->tokens);
    for (const FetchedObject& o : objects) EXPECT_TRUE(o.object);
    fetched.reset();
    client_->run();
    EXPECT_EQ(bench_->stat("pins"), 0u);
  }
  EXPECT_GT(steps, 2u) << "or all of it is one handler's";
}

// Two stores of the same: what the second brings is of no use, and what the first brought is held
// by the index alone.
TEST_F(LoopTest, WhatACommitDoesNotTakeAWorkerFrees) {
  open(small_options());
  auto tokens = fresh(64 * 16);
  uint64_t first = put_all(tokens), second = put_all(tokens);
  ASSERT_EQ(held(), 2 * 64 * kLoopBlockBytes);
  auto commit = [&](uint64_t reservation) {
    client_->core->commit(client_->session, reservation, Durability::accepted, soon(),
                          [](Result<CommitReply> r) { EXPECT_TRUE(r.ok()); });
    client_->run_loop();
  };
  commit(first);
  commit(second);
  EXPECT_EQ(held(), 2 * 64 * kLoopBlockBytes);
  client_->run_workers();
  EXPECT_EQ(held(), 64 * kLoopBlockBytes);
}

TEST_F(LoopTest, WhatASharedLeaseHeldAWorkerFrees) {
  open(small_options());
  auto tokens = fresh(64 * 16);
  ASSERT_TRUE(bench_->store(tokens).ok());
  auto hit = bench_->fetch(plus_one(tokens), FetchForm::f32);
  ASSERT_TRUE(hit.ok());
  auto lease = client_->core->memory().share(std::move(hit->lease)), other = lease;
  EXPECT_EQ(lease->prefix().objects.size(), 64u);
  lease.reset();
  client_->run();
  EXPECT_GT(held(ChargeKind::reply), 0u) << "one holds it still";
  other.reset();
  client_->run_loop();
  EXPECT_GT(held(ChargeKind::reply), 0u);
  client_->run_workers();
  EXPECT_EQ(held(ChargeKind::reply), 0u);
}

}  // namespace
}  // namespace kv
