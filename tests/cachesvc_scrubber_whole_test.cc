// Scrubber: bits that flip in files that nobody reads.
#include "tests/support/cachesvc_verify.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

using testing::FaultFiles;

// The store as an earlier process left it, all of it on the SSD.
class Scrub : public Verify {
 protected:
  void SetUp() override {
    auto cache = open_cache(options(kNever, true));
    auto b = Bench::open(*cache, model_);
    ASSERT_TRUE(b.store(tokens_, Durability::durable).ok());
    auto hit = b.fetch(plus_one(tokens_));
    for (const auto& o : hit->lease.prefix().objects) {
      names_.push_back(file_name(o.object->name));
    }
    ASSERT_EQ(names_.size(), 4u);
  }
  std::string the_file(const std::string& ending) {
    for (const auto& e : std::filesystem::recursive_directory_iterator(dir_.store())) {
      std::string name = e.path().filename();
      if (name.ends_with(ending)) return name;
    }
    return {};
  }
  CacheOptions scrubbing(uint64_t bytes_per_second = 1ull << 40) {
    CacheOptions o = options(kNever, true);
    o.scrub_bytes_per_second = bytes_per_second;
    return o;
  }
  // From its `opening` on the file of this name is damaged; what recovery opens does not count.
  CacheOptions spoiling(FaultFiles& faults, const std::string& name, int opening) {
    faults.script = [this, name, opening, opened = 0](const char* call,
                                                      const std::string& at) mutable -> Status {
      bool opens = call == std::string("open_read") && at == path(name);
      if (opens && recovered_ && ++opened == opening) flip_file(name, 3);
      return {};
    };
    CacheOptions o = scrubbing();
    o.ssd_files = &faults;
    recovered_ = false;
    o.on_recovered = [this](const Recovery&) { recovered_ = true; };
    return o;
  }
  std::string path(const std::string& name) { return dir_.store() + "/" + name[0] + "/" + name; }
  void flip_file(const std::string& name, long before_end = 40) {
    auto bytes = static_cast<long>(std::filesystem::file_size(path(name)));
    testing::flip_byte(path(name), bytes - before_end);
  }
  void wait_for_a_pass(Stepped& client, Bench& b) {
    Deadline deadline = soon();
    while (b.stat("scrub_passes") == 0) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    }
    client.run();
  }
  std::vector<std::string> names_;
  bool recovered_ = false;
};

TEST_F(Scrub, AFlippedBitInAFileThatNobodyReadsIsFound) {
  flip_file(names_[2]);
  {
    Stepped client(scrubbing());
    auto b = Bench::open(client, model_);
    wait_for_a_pass(client, b);
    EXPECT_EQ(b.stat("scrubbed_files"), 6u) << "four blocks, a profile, a model record";
    EXPECT_EQ(b.stat("scrub_damaged"), 1u);
    EXPECT_EQ(b.stat("quarantined"), 1u);
    EXPECT_EQ(b.stat("promotions"), 0u);
    EXPECT_GT(b.stat("ssd_quarantine_bytes"), 0u);
    EXPECT_EQ(b.stat("ssd_objects"), 3u);
    EXPECT_FALSE(std::filesystem::exists(path(names_[2])));
    expect_served(b, tokens_, 32);
    ASSERT_TRUE(b.store(tokens_, Durability::durable).ok());
  }
  auto cache = open_cache(options(kNever, true));
  auto b = Bench::open(*cache, model_);
  expect_served(b, tokens_, 64);
}

TEST_F(Scrub, WhatIsInRamIsWrittenAnew) {
  {
    FaultFiles faults;
    Stepped client(spoiling(faults, names_[2], 2));  // after its promote
    client.hangs = true;  // the scrubber too, until there is something to give way to
    auto b = Bench::open(client, model_);
    ASSERT_TRUE(b.client.prefetch({b.opened.model, {plus_one(tokens_), {}}}, soon()).ok());
    client.hangs = false;
    wait_for_a_pass(client, b);
    EXPECT_EQ(b.stat("scrub_damaged"), 1u);
    EXPECT_EQ(b.stat("ssd_objects"), 4u);
    EXPECT_TRUE(std::filesystem::exists(path(names_[2])));
  }
  auto cache = open_cache(options(kNever, true));
  auto b = Bench::open(*cache, model_);
  expect_served(b, tokens_, 64);
}

// Without its profile or model record nothing of a model could be served after the next start.
TEST_F(Scrub, DamagedRecordsAreWrittenAnew) {
  for (bool profile : {true, false}) {
    SCOPED_TRACE(profile ? "profile" : "model record");
    {
      FaultFiles faults;
      std::string name = the_file(profile ? ".profile" : ".model");
      Stepped client(spoiling(faults, name, 1));
      auto b = Bench::open(client, model_);
      wait_for_a_pass(client, b);
      EXPECT_EQ(b.stat("scrub_damaged"), 1u);
    }
    auto cache = open_cache(options(kNever, true));
    EXPECT_EQ(Bench::open(*cache, model_).stat("recovered_skipped"), 0u);
    auto b = Bench::open(*cache, model_);
    expect_served(b, tokens_, 64);
  }
}

TEST_F(Scrub, KeepsItsPace) {
  Stepped client(scrubbing(1));  // a file in an hour
  auto b = Bench::open(client, model_);
  for (int i = 0; i < 10; ++i) client.run();
  EXPECT_EQ(b.stat("scrubbed_files"), 1u);
}

TEST_F(Scrub, GoesOnWhereAnEarlierProcessWas) {
  std::vector<std::string> all, opened;
  for (const auto& e : std::filesystem::recursive_directory_iterator(dir_.store())) {
    if (e.path().parent_path().filename().string().size() == 1) all.push_back(e.path());
  }
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), 6u);
  FaultFiles files;
  files.script = [&](const char* call, const std::string& at) -> Status {
    if (call == std::string("open_read") && recovered_) opened.push_back(at);
    return {};
  };
  CacheOptions o = scrubbing();
  o.ssd_files = &files;
  o.on_recovered = [this](const Recovery&) { recovered_ = true; };
  {
    Stepped client(o);
    while (opened.empty() || opened.back() < all[3]) client.run_once();
    auto drained = client.call<Status>([&](auto done) { client.core->drain(soon(), done); });
    ASSERT_TRUE(drained.ok()) << drained.to_string();
  }
  ASSERT_EQ(opened.front(), all[0]);
  std::string last = opened.back();
  opened.clear();
  recovered_ = false;
  Stepped client(o);
  while (opened.empty()) client.run_once();
  EXPECT_EQ(opened.front(), last);
}

TEST_F(Scrub, GivesWayToPromotes) {
  Stepped client(scrubbing());
  client.hangs = true;  // its listing comes first, and waits
  auto b = Bench::open(client, model_);
  FetchRequest request;
  request.model = b.opened.model;
  request.query.tokens = plus_one(tokens_);
  std::optional<Result<FetchReply>> served;
  client.core->fetch(client.session, request, soon(),
                     [&served](Result<FetchReply> reply) { served = std::move(reply); });
  while (!served) {  // one job of the disk, and all that follows from it
    client.loop.restart();
    client.workers.restart();
    client.disk.restart();
    if (client.loop.poll_one() + client.workers.poll_one() == 0) client.disk.poll_one();
  }
  client.disk.restart();
  client.disk.poll();  // what was asked of it beside the promotes
  client.run_loop();
  EXPECT_EQ((*served)->tokens, 64u);
  EXPECT_EQ(b.stat("scrubbed_files"), 0u) << "the files were listed, and none was read";
  client.hangs = false;
  wait_for_a_pass(client, b);
  EXPECT_EQ(b.stat("scrubbed_files"), 6u) << "once nobody promotes";
}

// After a start all files are to be synced, and a sync marks them in many steps of the loop, in the
// order in which they were written. `late_`, the last one, is found damaged and written anew.
class ScrubInSync : public Scrub {
 protected:
  void SetUp() override {
    Scrub::SetUp();
    auto cache = open_cache(options(kNever, true));
    auto b = Bench::open(*cache, model_);
    for (const Sequence& tokens : {random_tokens(rng_, 700 * 16), late_}) {
      ASSERT_TRUE(b.store(tokens, Durability::durable).ok());
    }
    auto hit = b.fetch(plus_one(late_));
    late_path_ = path(file_name(hit->lease.prefix().objects[0].object->name));
    for (const auto& e : std::filesystem::recursive_directory_iterator(dir_.store())) {
      bool file = e.path().parent_path().filename().string().size() == 1;
      if (file && e.path() < late_path_) before_ = std::max<std::string>(before_, e.path());
    }
    ASSERT_FALSE(before_.empty());
  }
  // Until the scrubber has read this file; what it found waits for the loop.
  void scrub_up_to(const std::string& file) {
    client_ = std::make_unique<Stepped>(watching());
    client_->hangs = true;
    auto b = Bench::open(*client_, model_);
    auto early = b.reserve(tokens_), late = b.reserve(late_);
    ASSERT_TRUE(early.ok() && late.ok());
    early_reservation_ = early->reservation;
    late_reservation_ = late->reservation;
    ASSERT_TRUE(b.client.prefetch({b.opened.model, {plus_one(late_), {}}}, soon()).ok());
    client_->hangs = false;
    Deadline deadline = soon();
    while (scrubbed_ != file) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      client_->run_loop();
      client_->run_workers();
    }
  }
  CacheOptions watching() {
    faults_.script = [this](const std::string& call, const std::string& at) -> Status {
      if (!recovered_) return {};
      if (call == "open_read" && (at != late_path_ || std::exchange(promoted_, true))) {
        scrubbed_ = at;
        if (at == late_path_ && !std::exchange(damaged_, true)) testing::flip_byte(at, 3000);
      }
      if (call == "rename" && at == late_path_) renamed_ = true;
      if (call == "sync_dir" && late_path_.starts_with(at + "/")) late_synced_ = renamed_;
      return {};
    };
    CacheOptions o = scrubbing();
    o.ssd_files = &faults_;
    o.durable_group_delay = Milliseconds(0);
    o.on_recovered = [this](const Recovery&) { recovered_ = true; };
    return o;
  }
  void begin_commit(uint64_t reservation, std::optional<Durability>& level) {
    client_->core->commit(
        client_->session, reservation, Durability::durable, soon(),
        [&level](const Result<CommitReply>& r) { level = r.ok() ? r->level : Durability::none; });
  }
  // One handler of the loop at a time, and every job at once.
  template <typename Done>
  void step_until(Done done) {
    Deadline deadline = soon();
    while (!done()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      client_->loop.restart();
      client_->loop.poll_one();
      client_->run_workers();
    }
  }
  // After a sync's last step, and the early ones' commit with it.
  void expect_late_durable_only_when_synced() {
    step_until([&] { return early_level_.has_value(); });
    ASSERT_TRUE(renamed_) << "after the sync's last step";
    EXPECT_EQ(early_level_, Durability::durable);
    ASSERT_FALSE(late_synced_) << "a second sync";
    begin_commit(late_reservation_, late_level_);
    EXPECT_TRUE(!late_level_ || late_synced_) << "answered at once";
    step_until([&] { return late_level_.has_value(); });
    EXPECT_EQ(late_level_, Durability::durable);
    EXPECT_TRUE(late_synced_);
  }

  Sequence late_ = random_tokens(rng_, 16);
  std::string late_path_, before_, scrubbed_;  // before_: what is scrubbed before it
  bool promoted_ = false, damaged_ = false, renamed_ = false, late_synced_ = false;
  FaultFiles faults_;
  uint64_t early_reservation_ = 0, late_reservation_ = 0;
  std::optional<Durability> early_level_, late_level_;
  std::unique_ptr<Stepped> client_;
};

TEST_F(ScrubInSync, WhatIsWrittenAnewBetweenTwoStepsIsNotSynced) {
  ASSERT_NO_FATAL_FAILURE(scrub_up_to(before_));
  begin_commit(early_reservation_, early_level_);
  expect_late_durable_only_when_synced();
}

}  // namespace
}  // namespace kv
