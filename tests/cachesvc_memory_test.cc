// Out of memory anywhere: the N-th allocation of an operation fails, alone or with many after it,
// for N = 1 until the operation passes without a failure. It must end with an answer, a busy one or
// the right one; the cache must be sound afterwards, what it held before be served, and the same
// operation succeed once there is memory again, without a restart.
//
// KV_MEMORY_STRIDE=1 tries every N.
#include "tests/support/cachesvc_memory.h"

namespace kv {
namespace {

TEST_F(MemoryTest, AStoreIsWholeOrBusy) {
  CacheOptions o = options();
  o.spill_when = SpillWhen::evict;
  open(o);
  keep();
  auto a = tokens(40);
  for_each_failure(
      "store", [&] { return store(a); }, [&] { expect_empty(); });
  auto longer = a;
  for (Token t : tokens(15)) longer.push_back(t);
  ASSERT_TRUE(store(a).ok());
  for_each_failure(
      "store of a continuation", [&] { return store(longer); },
      [&] {
        expect_empty();
        ASSERT_TRUE(store(a).ok());
      });
}

TEST_F(MemoryTest, ADurableStoreIsOnTheSsdOrBusy) {
  open(options());
  keep();
  auto a = tokens(40);
  for (int64_t more : {int64_t{0}, int64_t{100}, kSqliteForEver}) {
    for_each_failure(
        "durable store", more, [&] { return store(a, Durability::durable); },
        [&] { expect_empty(); }, true);
  }
}

TEST_F(MemoryTest, AFetchServesTheRightBytesOrIsAMiss) {
  CacheOptions o = options();
  o.verify_hits = 1;
  o.ssd_key = testing::sample_key(1);
  open(o);
  auto a = tokens(40);
  ASSERT_TRUE(store(a, Durability::durable).ok());
  auto query = a;
  query.push_back(1);
  for_each_failure(
      "fetch from RAM", [&] { return fetch(query, 40); }, [] {});
  for_each_failure(
      "decoded fetch", [&] { return fetch(query, 40, FetchForm::f16); }, [] {});
  for_each_failure(
      "promotion", [&] { return fetch(query, 40); },
      [&] {
        cache_->restart();
        open_model();
      });
}

// What a spill found no memory for is spilled when there is some, without anybody's asking.
TEST_F(MemoryTest, ASpillIsMadeUpFor) {
  open(options());
  keep();
  wait_for("ssd_objects", gauges()["ram_objects"]);
  auto a = tokens(40);
  for (int64_t more : {int64_t{0}, int64_t{100}}) {
    for_each_failure(
        "store and spill", more, [&] { return store(a); },
        [&] {
          wait_for("ssd_objects", gauges()["ram_objects"]);
          ASSERT_TRUE(erase(a).ok());
        },
        true);
  }
}

// RAM and SSD have room for few of the entries: each store makes others go.
TEST_F(MemoryTest, AStoreThatMakesRoomIsWholeOrBusy) {
  CacheOptions o = options();
  o.ram_budget_bytes = 1u << 20;
  o.index_fraction = 0.75;  // many small entries
  o.ssd_limit_bytes = 8u << 20;
  open(o);
  for (int i = 0; gauges()["ssd_evicted"] == 0 || gauges()["ram_evicted_clean"] == 0; ++i) {
    ASSERT_LT(i, 1'000);
    ASSERT_TRUE(store(tokens(40), Durability::spilled).ok());
  }
  auto a = tokens(40);
  for (int64_t more : {int64_t{0}, int64_t{100}}) {
    for_each_failure(
        "store in place of others", more, [&] { return store(a, Durability::spilled); },
        [&] { a = tokens(40); }, true);
  }
  uint64_t evicted = gauges()["ssd_evicted"];
  EXPECT_GT(evicted, 10u);
  expect_empty();
}

// Nothing that changes the SSD returns, and what would have asked it for more finds no memory: that
// is no word of the device. When it goes on, so does all that waited.
TEST_F(MemoryTest, AHangIsNotOverForLackOfMemory) {
  int hangs = 0, returns = 0;
  CacheOptions o = options();
  o.io_timeout = Milliseconds(20);
  o.spill_when = SpillWhen::evict;
  o.on_event = [&](const CacheEvent& e) {
    hangs += e.kind == EventKind::hang;
    returns += e.kind == EventKind::hang_over;
  };
  open(o);
  auto a = tokens(40), b = tokens(40);
  ASSERT_TRUE(store(a).ok());
  ASSERT_TRUE(store(b).ok());
  auto erase_only = [&](const Sequence& which, bool watched) {  // on the loop: no worker runs
    auto answer = std::make_shared<Status>(StatusCode::internal, "no answer");
    Query query{which, {}};
    Done<Result<uint64_t>> done = [answer](Result<uint64_t> n) { *answer = n.status(); };
    FailingNew::watched = watched;
    cache_->core->erase(cache_->session, opened_.model, std::move(query), soon(), std::move(done));
    FailingNew::watched = false;
    return answer;
  };
  auto turn_loop = [&] {
    cache_->loop.restart();
    cache_->loop.poll();
  };
  auto first = erase_only(a, false);
  for (int i = 0; i < 10'000 && hangs == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    turn_loop();
  }
  ASSERT_EQ(hangs, 1);
  int busy = 0;
  for (int64_t n = 1;; ++n) {
    SCOPED_TRACE(n);
    FailingNew::arm(n, 0);
    auto second = erase_only(b, true);
    FailingNew::disarm();
    turn_loop();
    ASSERT_EQ(returns, 0);
    busy += second->code() == StatusCode::busy;
    if (FailingNew::failures() == 0) break;
  }
  EXPECT_GT(busy, 5);
  cache_->pump();
  EXPECT_EQ(returns, 1);
  EXPECT_TRUE(first->ok()) << first->to_string();
  expect_empty();
}

// The wait for room ends while the SSD takes nothing, and finds no memory: answered all the same.
TEST_F(MemoryTest, AWaitForRoomThatHasEndedIsAnswered) {
  CacheOptions o = options();
  o.ram_budget_bytes = 1u << 20;
  o.index_fraction = 0.75;  // many small entries
  o.spill_when = SpillWhen::evict;
  open(o);
  auto turn_loop = [&] {
    cache_->loop.restart();
    try {
      cache_->loop.poll();
    } catch (const std::bad_alloc&) {
    }
  };
  const int64_t own = 12;  // the first are those of the wait itself: every one, in every build
  int64_t failed = 0;
  for (int64_t n = 1, failures = 1; failures > 0; n += n < own ? 1 : stride(true)) {
    SCOPED_TRACE(n);
    for (int i = 0; gauges()["ram_used_bytes"] < o.ram_budget_bytes * 4 / 5; ++i) {  // all dirty
      ASSERT_LT(i, 1'000);
      ASSERT_TRUE(store(tokens(40)).ok());
    }
    ReserveRequest request{opened_.model, opened_.realm.profile, {tokens(2700), {}}};
    std::optional<Result<ReserveReply>> answer;
    cache_->core->reserve(cache_->session, std::move(request), soon(),
                          [&](Result<ReserveReply> r) { answer = std::move(r); });
    turn_loop();
    ASSERT_FALSE(answer.has_value()) << answer->status().to_string();
    std::this_thread::sleep_for(o.room_wait);
    FailingNew::arm(n, 0);
    FailingNew::watched = true;
    turn_loop();
    FailingNew::watched = false;
    FailingNew::disarm();
    failures = FailingNew::failures();
    failed += failures;
    for (int i = 0; i < 1'000 && !answer; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      turn_loop();
    }
    ASSERT_TRUE(answer.has_value());
    ASSERT_TRUE(answer->ok() || answer->status().code() == StatusCode::busy);
    if (answer->ok()) {
      auto aborted = cache_->call<Status>([&](auto done) {
        cache_->core->abort(cache_->session, (*answer)->reservation, soon(), std::move(done));
      });
      ASSERT_TRUE(status_of(aborted).ok());
    }
    ASSERT_TRUE(erase({}).ok());  // some are on the SSD by now, and would just go
  }
  EXPECT_GE(failed, own);
  expect_empty();
}

// Busy: all of it is served as before, or nothing; and the repeated erase has taken all.
TEST_F(MemoryTest, AnEraseTakesEverythingOrNothing) {
  open(options());
  auto a = tokens(40), query = a;
  query.push_back(1);
  auto fill = [&] {
    (void)fetch(query, 40);
    EXPECT_EQ(served_, 0u) << "erased";
    ASSERT_TRUE(store(a, Durability::durable).ok());
  };
  auto erasing = [&](uint32_t model, const Sequence& which) {
    return [&, model, which] {
      Status status = status_of(erase_of(model, which));
      FailingNew::disarm();
      (void)fetch(query, 40);
      EXPECT_TRUE(served_ == 0 || (served_ == 40 && !status.ok())) << served_ << ": half erased";
      return status;
    };
  };
  ASSERT_TRUE(store(a, Durability::durable).ok());
  for (int64_t more : {int64_t{0}, int64_t{20}}) {
    for_each_failure("erase", more, erasing(opened_.model, a), fill, true);
    for_each_failure(
        "clear", more, erasing(0, {}),
        [&] {
          expect_empty();
          fill();
        },
        true);
  }
}

TEST_F(MemoryTest, APrefetchIsDoneOrLeftOut) {
  open(options());
  keep();
  wait_for("ssd_objects", gauges()["ram_objects"]);
  for_each_failure(
      "prefetch",
      [&] {
        Query query{kept_, {}};
        return status_of(cache_->call<Result<LookupReply>>([&](auto done) {
          cache_->core->prefetch(cache_->session, opened_.model, std::move(query), soon(),
                                 std::move(done));
        }));
      },
      [&] {
        cache_->restart();
        open_model();
      });
}

// An abort, and the end of a session, take what they end with them whatever happens.
TEST_F(MemoryTest, WhatEndsAReservationEndsIt) {
  open(options());
  keep();
  auto a = tokens(40);
  auto begin = [&](uint64_t session, uint32_t model) -> Result<uint64_t> {
    auto& core = *cache_->core;
    ReserveRequest request{model, opened_.realm.profile, {a, {}}};
    auto reserved = cache_->call<Result<ReserveReply>>(
        [&](auto done) { core.reserve(session, std::move(request), soon(), std::move(done)); });
    if (!status_of(reserved).ok()) return status_of(reserved);
    auto put = make_put(all_kinds(), 16, a, (*reserved)->needs[0], (*reserved)->reservation);
    auto put_done = cache_->call<Status>(
        [&](auto done) { core.put(session, std::move(put), nullptr, soon(), std::move(done)); });
    if (!put_done) return Status(StatusCode::internal, "no answer");
    return (*reserved)->reservation;
  };
  for_each_failure(
      "abort",
      [&]() -> Status {
        auto id = begin(cache_->session, opened_.model);
        if (!id.ok()) return id.status();
        auto aborted = cache_->call<Status>(
            [&](auto done) { cache_->core->abort(cache_->session, *id, soon(), std::move(done)); });
        FailingNew::disarm();
        EXPECT_EQ(gauges()["reservations"], 0u);
        return status_of(aborted);
      },
      [] {});
  const std::string ns = kNamespace;
  for_each_failure(
      "session",
      [&]() -> Status {
        auto session = [&] {
          Unwatched watched(true);
          return cache_->core->connect(ns);
        }();
        if (!session.ok()) return session.status();
        OpenRequest request;
        request.model = all_kinds();
        auto opened = cache_->call<Result<OpenReply>>([&](auto done) {
          cache_->core->open(*session, std::move(request), soon(), std::move(done));
        });
        Status status = status_of(opened);
        if (status.ok()) status = begin(*session, (*opened)->model).status();
        {
          Unwatched watched(true);
          cache_->core->disconnect(*session);
        }
        cache_->pump();
        return status;
      },
      [&] { EXPECT_EQ(gauges()["sessions"], 1u); });
}

TEST_F(MemoryTest, ADrainLeavesNothingUnwritten) {
  CacheOptions o = options();
  o.spill_when = SpillWhen::evict;
  open(o);
  keep();
  auto a = tokens(40);
  ASSERT_TRUE(store(a).ok());
  auto query = a;
  query.push_back(1);
  bool is_drained = false;  // a drain that says so is believed: nobody drains twice
  for (int64_t more : {int64_t{0}, int64_t{20}}) {
    for_each_failure(
        "drain", more,
        [&]() -> Status {
          if (is_drained) return {};
          cache_->waits = true;  // for what is tried again
          auto drained = cache_->call<Status>(
              [&](auto done) { cache_->core->drain(soon(), std::move(done)); });
          cache_->waits = false;
          is_drained = status_of(drained).ok();
          return status_of(drained);
        },
        [&] {
          is_drained = false;
          cache_->restart();
          open_model();
          EXPECT_TRUE(fetch(query, 40).ok());
          ASSERT_TRUE(erase({}).ok());
          keep();
          a = tokens(40);
          query = a;
          query.push_back(1);
          ASSERT_TRUE(store(a).ok());
        },
        true);
  }
}

TEST_F(MemoryTest, OpeningADirectoryFailsWhole) {
  CacheOptions o = options();
  auto create = [&]() -> Status {
    boost::asio::io_context loop, workers;
    CacheOptions own = o;
    Unwatched watched(true);
    return CacheCore::create(std::move(own), loop.get_executor(), workers.get_executor()).status();
  };
  for_each_failure("creation of a store", 0, create,
                   [&] { std::filesystem::remove_all(dir_.store()); });
  open(o);
  auto a = tokens(40);
  ASSERT_TRUE(store(a, Durability::durable).ok());
  cache_.reset();
  for_each_failure("opening of a store", create, [] {});
  for_each_failure("opening of a store", kSqliteForEver, create, [] {});
  open(o);
  auto query = a;
  query.push_back(1);
  EXPECT_TRUE(fetch(query, 40).ok());
  expect_sound();
}

// What the background read without memory is read again; no erase is told that it has everything
// before that.
TEST_F(MemoryTest, NoFileIsForgottenInTheBackground) {
  CacheOptions o = options();
  o.adopt_at_start = 1;
  o.reconcile_rate = 0;
  open(o);
  ASSERT_TRUE(store(tokens(40), Durability::durable).ok());
  ASSERT_TRUE(store(tokens(40), Durability::durable).ok());
  uint64_t all = gauges()["ssd_objects"];
  cache_->core.reset();
  cache_->pump();
  const std::string copy = dir_.store() + "-copy";
  std::filesystem::remove(dir_.store() + "/catalog.db");
  std::filesystem::copy(dir_.store(), copy, std::filesystem::copy_options::recursive);
  for (int64_t more : {0, 5, 1'000}) {
    for (int64_t n = 1; n == 1 || FailingNew::failures() > 0; n += stride(true)) {
      SCOPED_TRACE("allocation " + std::to_string(n) + " and " + std::to_string(more) + " more");
      cache_->core.reset();
      cache_->pump();
      std::filesystem::remove_all(dir_.store());
      std::filesystem::copy(copy, dir_.store(), std::filesystem::copy_options::recursive);
      cache_->create();
      FailingNew::arm(n, more);
      {
        Unwatched watched(true);
        cache_->pump();
      }
      FailingNew::disarm();
      auto erased = erase_of(0, {});
      ASSERT_TRUE(status_of(erased).ok()) << status_of(erased).to_string();
      EXPECT_EQ(**erased, all);
      if (HasFailure()) return;
    }
  }
}

// A damaged object and a damaged profile: what the scrubber finds no memory for costs a pass, and
// what it found is a miss, or on the SSD again when the model is next opened.
TEST_F(MemoryTest, TheScrubberGoesOn) {
  CacheOptions o = options();
  open(o);
  keep();
  wait_for("ssd_objects", gauges()["ram_objects"]);
  auto before = files();
  auto a = tokens(40), query = a;
  query.push_back(1);
  ASSERT_TRUE(store(a, Durability::durable).ok());
  cache_.reset();
  std::string object, profile;
  for (const std::string& file : files()) {
    if (file.ends_with(".block") && !before.contains(file)) object = file;
    if (file.ends_with(".profile")) profile = file;
  }
  testing::flip_byte(object, 100);
  const std::string copy = dir_.store() + "-copy";
  std::filesystem::copy(dir_.store(), copy, std::filesystem::copy_options::recursive);
  o.scrub_bytes_per_second = 1ull << 40;
  o.warm_start_bytes = 0;
  uint64_t told = 0;
  o.on_event = [&](const CacheEvent& e) { told += e.kind == EventKind::quarantined; };
  for (int64_t more : {0, 20}) {
    int64_t n = 1, failed = 0;
    for (bool any = true; any; n += stride(true)) {
      SCOPED_TRACE("allocation " + std::to_string(n) + " and " + std::to_string(more) + " more");
      cache_.reset();
      std::filesystem::remove_all(dir_.store());
      std::filesystem::copy(copy, dir_.store(), std::filesystem::copy_options::recursive);
      cache_ = std::make_unique<Pumped>(o, Pumped::kIdle);
      testing::flip_byte(profile, 100);  // recovery has read it
      told = 0;
      FailingNew::arm(n, more);
      {
        Unwatched watched(true);
        cache_->pump();
      }
      FailingNew::disarm();
      any = FailingNew::failures() > 0;
      wait_for("scrub_passes", 1);
      uint64_t found = gauges()["scrub_damaged"];
      failed += found < 2;
      EXPECT_TRUE(any || (found == 2 && told == 2)) << found << " found, " << told << " told";
      EXPECT_EQ(gauges()["ram_promotion_bytes"], 0u);
      open_model();
      if (found == 2) {
        EXPECT_TRUE(files().contains(profile));
      }
      (void)fetch(query, 40);
      EXPECT_LT(served_, 40u);
      EXPECT_TRUE(fetch(kept_and_more(), 40).ok()) << "what was stored before";
      if (HasFailure()) return;
    }
    std::cout << "scrub, " << more << " more: " << n << " allocations, " << failed
              << " times not all found\n";
  }
}

TEST_F(MemoryTest, WhatIsAskedIsAnsweredOrBusy) {
  open(options());
  auto a = tokens(40);
  ASSERT_TRUE(store(a).ok());
  auto& core = *cache_->core;
  uint64_t s = cache_->session;
  for_each_failure(
      "stats",
      [&] {
        return status_of(cache_->call<Result<StatsReply>>(
            [&](auto done) { core.stats(s, soon(), std::move(done)); }));
      },
      [] {});
  for_each_failure(
      "lookup",
      [&] {
        Query query{a, {}};
        return status_of(cache_->call<Result<LookupReply>>([&](auto done) {
          core.lookup(s, opened_.model, std::move(query), soon(), std::move(done));
        }));
      },
      [] {});
  uint16_t next = 0;
  for_each_failure(
      "open of another model",
      [&] {
        OpenRequest request;
        request.model = all_kinds();
        request.model.fingerprint.bytes[1] = static_cast<uint8_t>(next >> 8);
        request.model.fingerprint.bytes[2] = static_cast<uint8_t>(next);
        request.model.fingerprint.bytes[3] = 1;
        return status_of(cache_->call<Result<OpenReply>>(
            [&](auto done) { core.open(s, std::move(request), soon(), std::move(done)); }));
      },
      [&] {
        ++next;
        core.disconnect(s);
        cache_->session = s = *core.connect(kNamespace);
      });
}

}  // namespace
}  // namespace kv
