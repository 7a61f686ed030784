// A start that finds files which the catalog doesn't know: the first are read before anything is
// served, the others in the background; nothing is lost, nothing erased comes back.
#include <fstream>

#include "storage/inspect.h"
#include "tests/support/cachesvc_stepped.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

// Two entries of five blocks each, and no catalog.
class Recover : public ::testing::Test {
 protected:
  void SetUp() override {
    first_ = random_tokens(rng_, 80);
    second_ = random_tokens(rng_, 80);
    auto cache = open_cache(small_options(dir_.store()));
    auto b = Bench::open(*cache, model_);
    for (const auto& tokens : {first_, second_}) {
      ASSERT_TRUE(b.store(tokens, Durability::durable).ok());
    }
    cache.reset();
    ASSERT_TRUE(fs::remove(dir_.store() + "/catalog.db"));
  }
  CacheOptions options(uint64_t at_start, uint64_t rate) {
    CacheOptions o = small_options(dir_.store());
    o.adopt_at_start = at_start;
    o.reconcile_rate = rate;
    o.on_recovered = [this](const Recovery& r) { reports_.push_back(r); };
    return o;
  }
  uint32_t served(Bench& b, const Sequence& tokens) { return b.fetch(plus_one(tokens))->tokens; }

  TempDir dir_;
  ModelSpec model_ = plain_model();
  std::mt19937 rng_{31};
  Sequence first_, second_;
  std::vector<Recovery> reports_;
};

TEST_F(Recover, FewUnknownFilesAreServedAtOnce) {
  Stepped client(options(10, 1));
  auto b = Bench::open(client, model_);
  EXPECT_EQ(b.stat("recovery_unread"), 0u);
  EXPECT_EQ(b.stat("recovery_adopted"), 10u);
  EXPECT_EQ(served(b, first_), 80u);
  EXPECT_EQ(served(b, second_), 80u);
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0].adopted, 10u);
  EXPECT_EQ(reports_[0].catalog_rebuilt, "catalog: missing");
}

// One file a second: the test never waits for the last.
TEST_F(Recover, ManyAreMissesUntilTheyAreReadAndThenServed) {
  Stepped client(options(0, 1));
  auto b = Bench::open(client, model_);
  EXPECT_GE(b.stat("recovery_unread"), 8u);
  EXPECT_LT(served(b, first_), 80u);
  auto listed = inspect_directory(dir_.store(), InspectDepth::headers);
  uint64_t files = listed->files.size(), bytes = listed->totals.kinds["block"].file_bytes;
  ASSERT_TRUE(b.store(first_, Durability::spilled).ok());
  EXPECT_EQ(served(b, first_), 80u) << "a store doesn't wait for the background";
  EXPECT_EQ(inspect_directory(dir_.store(), InspectDepth::headers)->files.size(), files)
      << "and finds its files there";
  // An erase does, and lifts the rate: else this would be done in eight seconds.
  auto erased = client.erase(b.opened.model, {second_, {}}, soon());
  ASSERT_TRUE(erased.ok()) << erased.status().to_string();
  EXPECT_EQ(*erased, 1u) << "the last block: the others are the beginning of longer entries";
  EXPECT_EQ(b.stat("recovery_unread"), 0u);
  EXPECT_EQ(served(b, first_), 80u);
  EXPECT_EQ(served(b, second_), 64u);
  ASSERT_EQ(reports_.size(), 2u);
  EXPECT_EQ(reports_[0].unread, 10u);
  EXPECT_EQ(reports_[1].adopted, 10u);
  EXPECT_EQ(reports_[1].adopted_bytes, bytes);
}

TEST_F(Recover, WhatIsErasedBeforeItIsReadDoesNotReturn) {
  for (int start = 0; start < 2; ++start) {
    Stepped client(options(0, start == 0 ? 1 : 0));
    auto b = Bench::open(client, model_);
    if (start == 0) {
      ASSERT_TRUE(client.erase(b.opened.model, {}, soon()).ok());
    }
    client.run();
    EXPECT_EQ(b.stat("ssd_objects"), 0u);
    EXPECT_EQ(served(b, first_), 0u);
    EXPECT_EQ(served(b, second_), 0u);
  }
}

TEST_F(Recover, TheBackgroundEndsByItselfAndNamesWhatItLeftOut) {
  auto files = inspect_directory(dir_.store(), InspectDepth::headers);
  std::string damaged;
  for (const auto& f : files->files) {
    if (f.kind == FileKind::block && f.header.first_token == 64) damaged = f.path;
  }
  std::fstream(dir_.store() + "/" + damaged, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(70)
      .put('x');
  Stepped client(options(0, 0));
  client.run();
  ASSERT_EQ(reports_.size(), 2u);
  EXPECT_EQ(reports_[1].unread, 0u);
  EXPECT_EQ(reports_[1].adopted, 9u);
  ASSERT_EQ(reports_[1].rejected.size(), 1u);
  EXPECT_EQ("/" + reports_[1].rejected[0].file, damaged.substr(1));
  EXPECT_EQ(reports_[1].rejected[0].reason.code(), StatusCode::corruption);
  auto b = Bench::open(client, model_);
  EXPECT_EQ(b.stat("ssd_objects"), 9u);
  EXPECT_EQ(b.stat("recovery_quarantined"), 1u);
  EXPECT_EQ(served(b, first_) + served(b, second_), 144u);
}

// What a failing device does not take over leaves the good file that lies there.
TEST_F(Recover, WhatIsGivenAgainAndCannotBeWrittenKeepsItsFile) {
  testing::FaultFiles faults;
  CacheOptions o = options(0, 0);
  o.spill_when = SpillWhen::evict;
  o.ssd_files = &faults;
  {
    Stepped client(o);
    client.hangs = true;  // so the background comes second
    auto b = Bench::open(client, model_);
    ASSERT_TRUE(b.store(first_).ok());
    client.hangs = false;
    client.run();
    EXPECT_EQ(b.stat("recovery_unread"), 0u);
    EXPECT_EQ(b.stat("ssd_objects"), 5u) << "those of the other entry";
    faults.script = [](const char* call, const std::string&) -> Status {
      bool opens = std::string(call) == "open_read" || std::string(call) == "create";
      return opens ? Status(StatusCode::io_error, "injected") : Status();
    };
    EXPECT_EQ(b.store(first_, Durability::spilled)->level, Durability::accepted);
    EXPECT_GE(b.stat("spills_failed"), 1u);
    EXPECT_EQ(served(b, first_), 80u) << "from RAM";
    faults.script = nullptr;
  }
  Stepped client(options(10, 0));
  auto b = Bench::open(client, model_);
  EXPECT_EQ(served(b, first_), 80u);
}

// One that the write found damaged is gone: nothing counts on it when the bytes leave RAM.
TEST_F(Recover, WhatIsGivenAgainAndFoundDamagedHasNoFile) {
  testing::FaultFiles faults;
  CacheOptions o = options(0, 0);
  o.ram_budget_bytes = 4ull << 20;
  o.spill_when = SpillWhen::evict;
  o.ssd_files = &faults;
  Stepped client(o);
  client.hangs = true;
  auto b = Bench::open(client, model_);
  ASSERT_TRUE(b.store(first_).ok());
  client.hangs = false;
  client.run();
  auto files = inspect_directory(dir_.store(), InspectDepth::headers);
  for (const auto& f : files->files) {
    if (f.kind != FileKind::block || f.header.tokens[0] != first_[f.header.first_token]) continue;
    std::fstream(dir_.store() + "/" + f.path, std::ios::in | std::ios::out | std::ios::binary)
        .seekp(static_cast<std::streamoff>(f.file_bytes) - 3)
        .put('x');
  }
  faults.script = [](const char* call, const std::string&) -> Status {
    return std::string(call) == "create" ? Status(StatusCode::io_error, "injected") : Status();
  };
  EXPECT_EQ(b.store(first_, Durability::spilled)->level, Durability::accepted);
  client.run();
  while (b.stat("ram_evicted_dirty") < 5) ASSERT_TRUE(b.store(random_tokens(rng_, 160)).ok());
  auto found = inspect_directory(dir_.store(), InspectDepth::headers);
  EXPECT_EQ(found->totals.kinds["block"].files, 5u);
  EXPECT_EQ(b.stat("ssd_objects"), 5u) << "those of the other entry";
  EXPECT_EQ(served(b, second_), 80u);
}

// One that can't be read for a while is read later; one that never can may hold what is erased, and
// no erase says that it is gone.
TEST_F(Recover, NoEraseMissesAFileThatFailedToBeRead) {
  for (int failures : {1000, 2}) {
    SCOPED_TRACE(failures);
    testing::FaultFiles faults;
    int left = failures;
    std::string which;
    std::vector<std::chrono::steady_clock::time_point> reads;
    faults.script = [&](const char* call, const std::string& path) -> Status {
      if (std::string(call) != "open_read" || !path.ends_with(".block")) return {};
      if (which.empty()) which = path;
      if (path != which || left == 0) return {};
      --left;
      reads.push_back(std::chrono::steady_clock::now());
      return {StatusCode::io_error, "injected"};
    };
    CacheOptions o = options(4, 0);
    o.ssd_files = &faults;
    Stepped client(o);
    auto b = Bench::open(client, model_);
    auto erased = client.erase(b.opened.model, {}, soon());
    EXPECT_EQ(b.stat("recovery_unread"), 0u);
    EXPECT_EQ(b.stat("recovery_unreadable"), failures == 2 ? 0u : 1u);
    EXPECT_EQ(fs::exists(which), failures != 2);
    if (failures != 2) {
      ASSERT_EQ(reads.size(), 5u);
      EXPECT_GE(reads[4] - reads[3], Milliseconds(100)) << "time for it to pass, erase or not";
    }
    ASSERT_EQ(erased.ok(), failures == 2) << erased.status().to_string();
    if (!erased.ok()) {
      EXPECT_EQ(erased.status().code(), StatusCode::io_error);
    }
    EXPECT_EQ(inspect_directory(dir_.store(), InspectDepth::headers)->totals.kinds["block"].files,
              failures == 2 ? 0u : 1u);
  }
}

// A model of which nothing is known yet may be a file's that is read later.
TEST_F(Recover, NoModelIsReleasedBeforeAllIsRead) {
  CacheOptions limited = options(0, 0);
  limited.max_models = 1;
  {
    Stepped client(limited);
    client.hangs = true;
    OpenRequest other;
    other.model = plain_model(3, 3);
    EXPECT_EQ(client.open(other, soon()).status().code(), StatusCode::busy);
  }
  Stepped client(limited);
  client.run();
  auto b = Bench::open(client, model_);
  EXPECT_EQ(served(b, first_), 80u);
  EXPECT_EQ(*client.erase(b.opened.model, {}, soon()), 10u);
  client.core->disconnect(client.session);
  client.session = *client.core->connect("test");
  OpenRequest other;
  other.model = plain_model(3, 3);
  EXPECT_TRUE(client.open(other, soon()).ok()) << "known to be unused";
}

// Given again, it lies in RAM with a file of the same name that was read meanwhile. When it leaves
// RAM unwritten that file serves, and erases know of it.
TEST_F(Recover, WhatIsGivenAgainAndLeavesRamHasItsFile) {
  CacheOptions small = options(0, 0);
  small.ram_budget_bytes = 4ull << 20;
  small.spill_when = SpillWhen::evict;
  small.io_timeout = Milliseconds(20);
  Stepped client(small);
  client.hangs = true;
  auto b = Bench::open(client, model_);
  ASSERT_TRUE(b.store(first_).ok());
  client.hangs = false;
  client.run();
  EXPECT_EQ(b.stat("recovery_unread"), 0u);
  EXPECT_EQ(b.stat("ssd_objects"), 5u);
  client.hangs = true;
  EXPECT_EQ(b.store(random_tokens(rng_, 16), Durability::spilled)->level, Durability::accepted);
  while (b.stat("ram_evicted_dirty") < 5) ASSERT_TRUE(b.store(random_tokens(rng_, 160)).ok());
  EXPECT_GE(b.stat("ssd_objects"), 10u);
  client.hangs = false;
  client.run();
  EXPECT_EQ(served(b, first_), 80u);
  auto found = inspect_directory(dir_.store(), InspectDepth::headers);
  EXPECT_EQ(b.stat("ssd_objects"), found->totals.kinds["block"].files) << "one is not known";
  EXPECT_EQ(served(b, second_), 80u);
}

// The index has room for what the background reads as soon as RAM can give it.
TEST_F(Recover, AFullRamCostsNoFile) {
  CacheOptions o = options(0, 1);  // one file at a time
  o.ram_budget_bytes = 4ull << 20;
  Stepped client(o);
  auto b = Bench::open(client, model_);
  auto pool = client.core->pool();
  auto most = pool->try_charge(ChargeKind::reply, 3ull << 20);
  while (b.stat("ram_evicted_clean") == 0) {
    ASSERT_TRUE(b.store(random_tokens(rng_, 160), Durability::spilled).ok());
  }
  auto rest = pool->try_charge(ChargeKind::reply, pool->budget_bytes() - pool->used_bytes());
  ASSERT_TRUE(most && rest);
  uint64_t own = std::exchange(client.session, *client.core->connect("other"));
  ASSERT_TRUE(client.erase(0, {}, soon()).ok());  // nothing there, but it waits for all
  client.session = own;
  EXPECT_EQ(b.stat("recovery_unread"), 0u);
  EXPECT_EQ(b.stat("recovered_objects"), 10u);
  most->release();
  rest->release();
  EXPECT_EQ(served(b, first_) + served(b, second_), 160u);
}

TEST_F(Recover, WhatIsReadWaitsForRamThatIsInUse) {
  Stepped client(options(0, 0));
  auto pool = client.core->pool();
  auto all = pool->try_charge(ChargeKind::reply, pool->budget_bytes() - pool->used_bytes());
  ASSERT_TRUE(all);
  client.run();
  client.loop.run_one();  // its pause: there is no room yet
  client.run();
  EXPECT_EQ(reports_.size(), 1u) << "not all is known";
  all->release();
  auto b = Bench::open(client, model_);
  client.session = *client.core->connect("other");
  ASSERT_TRUE(client.erase(0, {}, soon()).ok());
  client.session = *client.core->connect("test");
  auto again = Bench::open(client, model_);
  EXPECT_EQ(served(again, first_) + served(again, second_), 160u);
}

// An erase that has ended lifts no rate, and nothing is kept of it.
TEST_F(Recover, NothingWaitsForAnEraseWhoseDeadlineHasPassed) {
  Stepped client(options(0, 1));
  auto b = Bench::open(client, model_);
  client.hangs = true;
  auto erased = client.erase(b.opened.model, {}, deadline_in(Milliseconds(50)));
  EXPECT_EQ(erased.status().code(), StatusCode::deadline_exceeded);
  client.hangs = false;
  client.run();
  EXPECT_GE(b.stat("recovery_unread"), 1u);
}

// The device is full once: what was used least goes. The background has read one of those files
// just before, and the loop hears of that afterwards.
TEST_F(Recover, WhatIsEvictedWhileItIsReadDoesNotReturn) {
  testing::FaultFiles faults;
  CacheOptions slow = options(0, 1);  // a file a second: most are unread when the device is full
  slow.ram_budget_bytes = 4ull << 20;
  slow.spill_when = SpillWhen::evict;
  slow.io_timeout = Milliseconds(20);
  slow.ssd_files = &faults;
  Stepped client(slow);
  auto b = Bench::open(client, model_);
  ASSERT_TRUE(b.store(first_, Durability::spilled).ok());
  while (b.stat("ram_evicted_clean") < 5) ASSERT_TRUE(b.store(random_tokens(rng_, 160)).ok());
  client.hangs = true;
  EXPECT_EQ(b.store(random_tokens(rng_, 16), Durability::spilled)->level, Durability::accepted);
  client.loop.run_for(Milliseconds(1100));  // the next file is asked for, behind the write
  bool full = false;
  int read_after = 0;
  faults.script = [&](const char* call, const std::string& path) -> Status {
    read_after += full && std::string(call) == "open_read" && path.ends_with(".block");
    if (full || std::string(call) != "allocate") return {};
    full = true;
    return {StatusCode::resource_exhausted, "injected"};
  };
  client.hangs = false;
  client.run_workers();
  ASSERT_TRUE(full);
  ASSERT_GE(read_after, 1) << "else nothing raced";
  client.run();
  EXPECT_GE(b.stat("ssd_evicted"), 5u);
  client.session = *client.core->connect("other");
  ASSERT_TRUE(client.erase(0, {}, soon()).ok());  // nothing there, but it waits for all
  EXPECT_EQ(b.stat("recovery_unread"), 0u);
  auto found = inspect_directory(dir_.store(), InspectDepth::headers);
  EXPECT_EQ(b.stat("ssd_objects"), found->totals.kinds["block"].files) << "one has no file";
}

}  // namespace
}  // namespace kv
