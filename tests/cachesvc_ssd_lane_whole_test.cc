// A device that fails or hangs (no call to it returns): what needs it is a miss or answers with the
// level reached, RAM goes on, nobody's end waits for it, and all of it works again when it is over.
#include <sys/resource.h>

#include <future>
#include <list>

#include "storage/inspect.h"
#include "tests/support/cachesvc_stepped.h"
#include "tests/support/loop_disk.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

using testing::FaultFiles;

CacheOptions impatient(const std::string& dir) {
  CacheOptions o = small_options(dir);
  o.io_timeout = Milliseconds(30);
  o.io_backoff = Milliseconds(1);
  return o;
}

class Disk : public ::testing::Test {
 protected:
  // One entry on the SSD alone.
  void SetUp() override {
    for (Sequence* s : {&on_ssd_, &in_ram_, &later_, &last_}) *s = random_tokens(rng_, 64);
    auto cache = open_cache(small_options(dir_.store()));
    auto b = Bench::open(*cache, model_);
    ASSERT_TRUE(b.store(on_ssd_, Durability::durable).ok());
  }
  uint32_t served(Bench& b, const Sequence& tokens) { return b.fetch(plus_one(tokens))->tokens; }

  TempDir dir_;
  ModelSpec model_ = plain_model();
  std::mt19937 rng_{41};
  Sequence on_ssd_, in_ram_, later_, last_;
};

using Hang = Disk;

// Every call of one kind fails, until it doesn't: EIO, EROFS or ENOSPC, at each step of a write.
TEST_F(Disk, AFailingStepCostsTheLevelAndNothingElse) {
  for (StatusCode code : {StatusCode::io_error, StatusCode::resource_exhausted}) {
    for (const char* failing :
         {"create", "allocate", "pwrite", "fdatasync", "rename", "sync_dir", "stat", "fstat"}) {
      SCOPED_TRACE(std::string(failing) + " " + to_string(code));
      FaultFiles faults;
      CacheOptions options = impatient(dir_.store());
      options.ssd_files = &faults;
      Stepped client(options);
      auto b = Bench::open(client, model_);
      bool failed = false;
      faults.script = [&](const char* call, const std::string&) -> Status {
        if (std::string(call) != failing) return {};
        failed = true;
        return {code, "injected"};
      };
      Sequence tokens = random_tokens(rng_, 64);
      auto stored = b.store(tokens, Durability::durable);
      ASSERT_TRUE(stored.ok()) << stored.status().to_string();
      EXPECT_TRUE(failed);
      EXPECT_EQ(served(b, tokens), 64u);
      Sequence during = random_tokens(rng_, 64);
      ASSERT_TRUE(b.store(during).ok());
      EXPECT_EQ(served(b, during), 64u);
      faults.script = nullptr;
      client.run();  // a try that began during the fault ends with it
      EXPECT_EQ(b.store(tokens, Durability::durable)->level, Durability::durable);
      EXPECT_EQ(b.store(during, Durability::durable)->level, Durability::durable);
      // A full device makes room at the expense of what was used least; others take nothing.
      if (code == StatusCode::io_error) {
        EXPECT_EQ(served(b, on_ssd_), 64u);
      }
    }
  }
}

// What was accepted during a fault reaches the SSD when it is over, though nobody asks again.
TEST_F(Disk, WhatWasAcceptedDuringAFaultReachesTheSsdAfterIt) {
  FaultFiles faults;
  CacheOptions options = impatient(dir_.store());
  options.ssd_files = &faults;
  {
    Stepped client(options);
    auto b = Bench::open(client, model_);
    uint64_t before = b.stat("ssd_objects");
    faults.script = [](const char* call, const std::string&) -> Status {
      return std::string(call) == "pwrite" ? Status(StatusCode::io_error, "injected") : Status();
    };
    for (const Sequence* s : {&in_ram_, &later_, &last_}) ASSERT_TRUE(b.store(*s).ok());
    // Not run(): where a try takes longer than the back-off, the next is due when it ends.
    while (b.stat("spills_failed") == 0) client.run_once();
    EXPECT_EQ(b.stat("ssd_objects"), before);
    faults.script = nullptr;
    Deadline deadline = soon();
    while (b.stat("ssd_objects") < before + b.stat("ram_objects")) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    }
  }
  auto cache = open_cache(small_options(dir_.store()));
  auto b = Bench::open(*cache, model_);
  for (const Sequence& tokens : {in_ram_, later_, last_}) EXPECT_EQ(served(b, tokens), 64u);
}

// Neither a repeated store nor a fetch has the device tried again; an orderly end does, once.
TEST_F(Disk, WhatFailedIsNotTriedBeforeItsTimeAndOnceMoreAtAnOrderlyEnd) {
  FaultFiles faults;
  CacheOptions options = impatient(dir_.store());
  options.io_backoff = Milliseconds(3'600'000);
  options.ssd_files = &faults;
  {
    Stepped client(options);
    auto b = Bench::open(client, model_);
    uint64_t tried = 0;
    faults.script = [&tried](const char* call, const std::string&) -> Status {
      if (std::string(call) != "pwrite") return {};
      ++tried;
      return {StatusCode::io_error, "injected"};
    };
    for (const Sequence* s : {&in_ram_, &later_, &last_}) ASSERT_TRUE(b.store(*s).ok());
    client.run();
    uint64_t once = tried;
    EXPECT_GT(once, 0u);
    for (const Sequence* s : {&in_ram_, &later_, &last_}) ASSERT_TRUE(b.store(*s).ok());
    client.run();
    EXPECT_EQ(tried, once) << "tried again before its time";
    faults.script = nullptr;
    EXPECT_TRUE(client.call<Status>([&](auto done) { client.core->drain(soon(), done); }).ok());
  }
  auto cache = open_cache(small_options(dir_.store()));
  auto b = Bench::open(*cache, model_);
  for (const Sequence& tokens : {in_ram_, later_, last_}) EXPECT_EQ(served(b, tokens), 64u);
}

// The real thing: the process has no descriptor left.
TEST_F(Disk, WithoutADescriptorNothingIsEvictedOrLost) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer looks at objects through a pipe and takes all for invalid";
#endif
  Stepped client(impatient(dir_.store()));
  auto b = Bench::open(client, model_);
  ASSERT_TRUE(b.store(in_ram_, Durability::durable).ok());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  uint32_t missed = served(b, on_ssd_), kept = served(b, in_ram_);
  auto stored = b.store(later_, Durability::durable);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(missed, 0u);
  EXPECT_EQ(kept, 64u);
  ASSERT_TRUE(stored.ok());
  EXPECT_EQ(stored->level, Durability::accepted);
  EXPECT_EQ(b.stat("ssd_evicted"), 0u) << "room was not what was missing";
  EXPECT_EQ(b.stat("quarantined"), 0u);
  EXPECT_EQ(b.store(later_, Durability::durable)->level, Durability::durable);
  Deadline deadline = soon();
  while (served(b, on_ssd_) < 64) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
}

// The kernel's own errors: a device that ends too early under a mounted file system, and is whole
// again later.
TEST_F(Disk, ErrorsOfARealDeviceAreMissesCostTheLevelAndEndWithIt) {
  std::string why;
  auto disk = testing::LoopDisk::make(testing::LoopDisk::without_journal(), why);
  if (!disk) GTEST_SKIP() << "no failing device: " << why;
  CacheOptions options = impatient(disk->store()), patient = small_options(disk->store());
  options.ssd_limit_bytes = patient.ssd_limit_bytes = 16ull << 20;
  {
    auto cache = open_cache(patient);
    auto b = Bench::open(*cache, model_);
    ASSERT_TRUE(b.store(on_ssd_, Durability::durable).ok());
  }
  {
    Stepped client(options);
    auto b = Bench::open(client, model_);
    ASSERT_EQ(b.store(in_ram_, Durability::durable)->level, Durability::durable);
    ASSERT_TRUE(disk->fail());
    EXPECT_EQ(served(b, on_ssd_), 0u);
    EXPECT_GT(b.stat("promotion_failures"), 0u);
    EXPECT_EQ(served(b, in_ram_), 64u);
    auto stored = b.store(later_, Durability::durable);
    ASSERT_TRUE(stored.ok()) << stored.status().to_string();
    EXPECT_EQ(stored->level, Durability::accepted);
    EXPECT_EQ(served(b, later_), 64u);
    EXPECT_EQ(b.stat("quarantined") + b.stat("ssd_evicted"), 0u);
    ASSERT_TRUE(disk->heal());
    Deadline deadline = soon();
    while (served(b, on_ssd_) < 64) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    EXPECT_EQ(b.store(later_, Durability::durable)->level, Durability::durable);
    EXPECT_EQ(b.store(last_, Durability::durable)->level, Durability::durable);
  }
  auto cache = open_cache(patient);
  auto b = Bench::open(*cache, model_);
  for (const Sequence& tokens : {on_ssd_, in_ram_, later_, last_}) {
    auto reply = b.fetch(plus_one(tokens));
    ASSERT_EQ(reply->tokens, 64u);
    b.expect_serves(tokens, *reply);
  }
  EXPECT_EQ(b.stat("quarantined"), 0u);
}

TEST_F(Hang, ReadsAreMissesAndRamGoesOn) {
  Stepped client(impatient(dir_.store()));
  auto b = Bench::open(client, model_);
  ASSERT_TRUE(b.store(in_ram_, Durability::spilled).ok());
  client.hangs = true;
  EXPECT_EQ(served(b, on_ssd_), 0u) << "after io_timeout";
  EXPECT_GT(b.stat("io_timeouts"), 0u);
  EXPECT_EQ(b.stat("ssd_hangs"), 1u);
  EXPECT_EQ(b.stat("ram_promotion_bytes"), 0u) << "what never began holds nothing";
  EXPECT_EQ(served(b, in_ram_), 64u);
  uint64_t reads = b.stat("promotions");
  EXPECT_EQ(served(b, on_ssd_), 0u);
  EXPECT_EQ(b.stat("promotions"), reads) << "no more is asked of it until it returns";
  client.hangs = false;
  Deadline deadline = soon();
  while (served(b, on_ssd_) < 64) {
    client.run();
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
  EXPECT_EQ(b.stat("pins"), 0u);
  EXPECT_EQ(b.stat("ssd_hangs"), 0u);
}

TEST_F(Hang, WritesAreWaitedForNoLonger) {
  Stepped client(impatient(dir_.store()));
  auto b = Bench::open(client, model_);
  client.hangs = true;
  auto stored = b.store(in_ram_, Durability::durable);
  ASSERT_TRUE(stored.ok()) << stored.status().to_string();
  EXPECT_EQ(stored->level, Durability::accepted);
  EXPECT_EQ(b.stat("ssd_hangs"), 1u);
  EXPECT_EQ(served(b, in_ram_), 64u);
  auto other = Bench::open(client, plain_model(2, 9));
  EXPECT_EQ(other.store(later_)->level, Durability::accepted) << "a new model";
  auto erased = client.erase(b.opened.model, {on_ssd_, {}}, deadline_in(Milliseconds(50)));
  EXPECT_EQ(erased.status().code(), StatusCode::deadline_exceeded);
  client.hangs = false;
  client.run();
  EXPECT_EQ(b.stat("ssd_hangs"), 0u);
  EXPECT_EQ(b.stat("ssd_objects"), 3u + 4 + 4) << "what waited was written; the erase happened";
  EXPECT_EQ(b.store(last_, Durability::durable)->level, Durability::durable);
  EXPECT_EQ(other.store(later_, Durability::durable)->level, Durability::durable);
}

TEST_F(Hang, AFullRamDropsWhatCannotBeWritten) {
  CacheOptions options = impatient(dir_.store());
  options.ram_budget_bytes = 4ull << 20;
  options.room_wait = Milliseconds(3'600'000);
  Stepped client(options);
  auto b = Bench::open(client, model_);
  client.hangs = true;
  Sequence tokens;
  while (b.stat("ram_evicted_dirty") == 0) {
    tokens = random_tokens(rng_, 160);
    ASSERT_TRUE(b.store(tokens).ok()) << "nobody waits for room_wait";
  }
  EXPECT_EQ(served(b, tokens), 160u);
}

TEST_F(Hang, ADrainEndsAtItsDeadline) {
  Stepped client(impatient(dir_.store()));
  auto b = Bench::open(client, model_);
  client.hangs = true;
  ASSERT_TRUE(b.store(in_ram_).ok());
  auto drained = client.call<Status>(
      [&](auto done) { client.core->drain(deadline_in(Milliseconds(20)), done); });
  EXPECT_EQ(drained.code(), StatusCode::deadline_exceeded);
}

// A slow device is no hung one: as long as some read ends, the others wait their turn. Each read
// takes more than half of io_timeout; a run in which this test itself was held up longer says
// nothing.
TEST_F(Hang, ReadsThatWaitBehindOthersAreNotGivenUp) {
  CacheOptions options = impatient(dir_.store());
  options.io_timeout = Milliseconds(160);
  for (int run = 0; run < 50; ++run) {
    bool held_up = false;
    Stepped client(options);
    auto b = Bench::open(client, model_);
    std::optional<Result<FetchReply>> reply;
    FetchRequest request;
    request.model = b.opened.model;
    request.query.tokens = plus_one(on_ssd_);
    client.hangs = true;
    auto last = std::chrono::steady_clock::now();
    client.core->fetch(client.session, request, soon(),
                       [&](Result<FetchReply> r) { reply.emplace(std::move(r)); });
    for (int read = 0; read < 4; ++read) {
      while (std::chrono::steady_clock::now() < last + Milliseconds(90)) client.run_loop();
      client.disk.restart();
      client.disk.poll_one();
      auto ended = std::chrono::steady_clock::now();
      held_up |= ended > last + Milliseconds(140);
      last = ended;
    }
    client.hangs = false;
    client.run();
    if (held_up) continue;
    ASSERT_TRUE(reply.has_value() && reply->ok());
    EXPECT_EQ((*reply)->tokens, 64u);
    EXPECT_EQ(b.stat("io_timeouts"), 0u);
    return;
  }
  GTEST_SKIP() << "this machine held up each of 50 runs";
}

// A read that has begun, is given up, and returns later: `late` runs in between.
class LateRead {
 public:
  LateRead(FaultFiles& faults, const Sequence& tokens) : tokens_(plus_one(tokens)) {
    faults.script = [this](const char* call, const std::string& path) -> Status {
      if (!client_ || std::string(call) != "open_read" || !path.ends_with(".block")) return {};
      Stepped* client = std::exchange(client_, nullptr);
      client->hangs = true;
      client->meanwhile([this] { return reply_.has_value(); });
      late_();
      client->hangs = false;
      return {};
    };
  }
  uint32_t served(Stepped& client, const Bench& b, std::function<void()> late) {
    client_ = &client;
    late_ = std::move(late);
    FetchRequest request;
    request.model = b.opened.model;
    request.query.tokens = tokens_;
    client.core->fetch(client.session, request, soon(),
                       [this](Result<FetchReply> r) { reply_.emplace(std::move(r)); });
    client.run();
    return reply_ && reply_->ok() ? (*reply_)->tokens : UINT32_MAX;
  }

 private:
  Sequence tokens_;
  Stepped* client_ = nullptr;
  std::function<void()> late_;
  std::optional<Result<FetchReply>> reply_;
};

TEST_F(Hang, WhatALateReadFindsOutIsNotForgotten) {
  auto files = inspect_directory(dir_.store(), InspectDepth::headers);
  for (const auto& f : files->files) {
    if (f.kind != FileKind::block) continue;
    std::fstream file(dir_.store() + "/" + f.path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end).put('x');
  }
  FaultFiles faults;
  CacheOptions options = impatient(dir_.store());
  options.ssd_files = &faults;
  {
    Stepped client(options);
    auto b = Bench::open(client, model_);
    LateRead read(faults, on_ssd_);
    EXPECT_EQ(read.served(client, b, [] {}), 0u);
    EXPECT_EQ(b.stat("quarantined"), 1u);
    EXPECT_EQ(b.stat("ssd_objects"), 3u);
    EXPECT_EQ(b.store(on_ssd_, Durability::durable)->level, Durability::durable);
  }
  Stepped client(impatient(dir_.store()));
  auto b = Bench::open(client, model_);
  EXPECT_EQ(served(b, on_ssd_), 64u) << "what was acknowledged";
}

TEST_F(Hang, OneReadThatHangsHoldsNeitherItsCallNorTheRoomOfAPath) {
  Sequence path = random_tokens(rng_, 1600);  // 100 blocks; a window has room for about 30
  {
    auto cache = open_cache(small_options(dir_.store()));
    auto b = Bench::open(*cache, model_);
    ASSERT_TRUE(b.store(path, Durability::durable).ok());
  }
  FaultFiles faults;
  CacheOptions options = impatient(dir_.store());
  options.ram_budget_bytes = 4ull << 20;
  options.ssd_files = &faults;
  Stepped client(options);
  auto b = Bench::open(client, model_);
  LateRead read(faults, path);
  uint64_t reads = 0, stored = 0;
  EXPECT_EQ(read.served(client, b,
                        [&] {
                          stored = client.core->pool()->used_bytes(ChargeKind::stored);
                          reads = b.stat("promotions");
                        }),
            0u);
  EXPECT_LE(stored, RamPool::slab_bytes(16 * 512)) << "of the one that runs";
  EXPECT_GE(reads, 1u);
  EXPECT_LE(reads, 50u) << "only its window was asked for";
}

// What a thread that is left behind uses: outlives every test.
struct LeftBehind {
  FaultFiles faults;
  std::promise<void> gone;
};
LeftBehind& left_behind() {
  static auto& all = *new std::list<LeftBehind>;
  return all.emplace_back();
}

// Real threads, and a read that holds its own for good: the end of the cache leaves it behind.
TEST_F(Hang, TheEndOfACacheDoesNotWaitForADeviceThatHangs) {
  auto& [faults, gone] = left_behind();
  std::promise<void> release;
  auto released = release.get_future().share();
  faults.script = [released](const char* call, const std::string& path) -> Status {
    if (std::string(call) == "pread" && path.ends_with(".block")) released.wait();
    return {};
  };
  faults.before_close = [&gone = gone](const std::string& path) {
    if (path.ends_with("/LOCK")) gone.set_value();
  };
  CacheOptions options = impatient(dir_.store());
  options.ssd_files = &faults;
  options.disk_threads = 1;
  options.drain_timeout = Milliseconds(50);
  {
    auto cache = open_cache(options);
    auto b = Bench::open(*cache, model_);
    EXPECT_EQ(served(b, on_ssd_), 0u);
    EXPECT_GT(b.stat("ram_promotion_bytes"), 0u) << "the read that runs has its memory";
    ASSERT_TRUE(b.store(in_ram_).ok());
    EXPECT_EQ(served(b, in_ram_), 64u);
  }
  release.set_value();
  gone.get_future().wait();
}

// It hangs after the last call: nothing runs, and only the lock is still to be given back.
TEST_F(Hang, TheEndOfAnIdleCacheDoesNotWaitForADeviceThatHangs) {
  auto& [faults, gone] = left_behind();
  std::promise<void> release;
  auto released = release.get_future().share();
  faults.before_close = [&gone = gone, released](const std::string& path) {
    if (!path.ends_with("/LOCK")) return;
    released.wait();
    gone.set_value();
  };
  CacheOptions options = impatient(dir_.store());
  options.ssd_files = &faults;
  {
    auto cache = open_cache(options);
    Bench::open(*cache, model_);  // no more: the double counts calls for one thread at a time
  }
  release.set_value();
  gone.get_future().wait();
}

// What is told of it while it runs, with a reason and without what was stored.
class Told : public Disk {
 protected:
  CacheOptions telling(FaultFiles& faults) {
    CacheOptions o = impatient(dir_.store());
    o.ssd_files = &faults;
    o.on_event = [this](const CacheEvent& e) {
      counts_[e.kind] += e.count;
      text_ = e.text;
    };
    return o;
  }
  std::map<EventKind, uint64_t> counts_;
  std::string text_;  ///< of the last one
};

TEST_F(Told, AFailedWriteAReadAndAFullDevice) {
  FaultFiles faults;
  Stepped client(telling(faults));
  auto b = Bench::open(client, model_);
  const char* failing = "pwrite";
  Status status{StatusCode::io_error, "injected"};
  faults.script = [&](const char* call, const std::string&) {
    return std::string(call) == failing ? status : Status();
  };
  ASSERT_TRUE(b.store(in_ram_, Durability::spilled).ok());
  EXPECT_GE(counts_[EventKind::write_failed], 1u);
  EXPECT_NE(text_.find(".block: injected"), std::string::npos) << text_;
  failing = "pread";
  EXPECT_EQ(served(b, on_ssd_), 0u);
  EXPECT_GE(counts_[EventKind::read_failed], 1u);
  EXPECT_EQ(counts_[EventKind::ssd_full], 0u);
  failing = "allocate";
  status = {StatusCode::resource_exhausted, "injected"};
  ASSERT_TRUE(b.store(later_, Durability::spilled).ok());
  EXPECT_GE(counts_[EventKind::ssd_full], 1u);
}

TEST_F(Told, EveryEvictedObject) {
  FaultFiles faults;
  CacheOptions options = telling(faults);
  options.ssd_limit_bytes = kMinLimitBytes;
  Stepped client(options);
  auto b = Bench::open(client, model_);
  ASSERT_EQ(served(b, on_ssd_), 64u);
  ASSERT_TRUE(counts_.empty());
  Deadline deadline = soon();
  while (b.stat("ssd_evicted") == 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    ASSERT_TRUE(b.store(random_tokens(rng_, 480), Durability::spilled).ok());
  }
  EXPECT_EQ(counts_[EventKind::ssd_evicted], b.stat("ssd_evicted"));
}

TEST_F(Told, AQuarantinedFile) {
  FaultFiles faults;
  for (const auto& e : std::filesystem::recursive_directory_iterator(dir_.store())) {
    std::string path = e.path();
    if (!path.ends_with(".block")) continue;
    testing::flip_byte(path, static_cast<long>(std::filesystem::file_size(path)) - 9);
  }
  Stepped client(telling(faults));
  auto b = Bench::open(client, model_);
  EXPECT_EQ(served(b, on_ssd_), 0u);
  EXPECT_EQ(counts_[EventKind::quarantined], b.stat("quarantined"));
  EXPECT_GE(counts_[EventKind::quarantined], 1u);
  EXPECT_NE(text_.find(".block: "), std::string::npos) << text_;
}

TEST_F(Told, AHangAndItsEnd) {
  FaultFiles faults;
  Stepped client(telling(faults));
  auto b = Bench::open(client, model_);
  client.hangs = true;
  ASSERT_TRUE(b.store(in_ram_, Durability::spilled).ok());
  EXPECT_EQ(counts_[EventKind::hang], 1u);
  EXPECT_EQ(counts_[EventKind::hang_over], 0u);
  client.hangs = false;
  client.run();
  EXPECT_EQ(counts_[EventKind::hang_over], 1u);
}

}  // namespace
}  // namespace kv
