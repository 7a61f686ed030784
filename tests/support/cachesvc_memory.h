// MemoryTest: operations of a CacheCore whose N-th allocation fails, and what must hold after each.
// One test binary includes it, in one file (FailingNew defines the global operators).
//
// SQLite's allocations are tried too. Both contexts of the core are pumped by the test's own
// thread, so allocation N is the same in every run.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include "storage/ssd_tier.h"
#include "tests/support/cachesvc_oracle.h"
#include "tests/support/cachesvc_stepped.h"
#include "tests/support/failing_new.h"
#include "tests/support/storage_failing_sqlite.h"
#include "tests/support/storage_testing.h"

namespace kv {

using Sequence = std::vector<Token>;
using testing::du;

inline const bool kSqliteToo = fail_sqlite_too();
inline constexpr int64_t kForEver = 1'000'000, kSqliteForEver = -1;  ///< `more` failures

// No string of the service fits into its object: each that is copied takes memory.
inline const char* const kNamespace = "a namespace of more than fifteen bytes";

// In memory where there is such a place: thousands of stores and starts, each with its syncs.
inline const bool kInMemory =
    ::access("/dev/shm", W_OK) == 0 && ::setenv("TMPDIR", "/dev/shm", 1) == 0;

// Of slow operations fewer: those that wait for files to be synced.
inline int64_t stride(bool slow) {
  if (const char* own = std::getenv("KV_MEMORY_STRIDE")) return std::max(1, std::atoi(own));
#if defined(__SANITIZE_ADDRESS__)
  return slow ? 151 : 41;
#else
  return slow ? 19 : 5;
#endif
}

// The core under a loop that goes on after std::bad_alloc, as run_loop does.
class Pumped {
 public:
  static constexpr bool kIdle = true;  ///< what it does by itself waits for the first pump
  explicit Pumped(const CacheOptions& options, bool idle = false) : options_(options) {
    idle ? create() : start();
  }
  ~Pumped() {
    core.reset();
    pump();
  }
  void start() {
    create();
    pump();
  }
  // What it does at once, of what it does by itself nothing yet.
  void create() {
    auto made = CacheCore::create(options_, loop.get_executor(), workers.get_executor());
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    core = std::move(*made);
    session = *core->connect(kNamespace);
  }
  void restart() {
    core.reset();
    pump();
    start();
  }
  bool pump_once() {
    loop.restart();
    workers.restart();
    try {
      return loop.poll() + workers.poll() > 0;
    } catch (const std::bad_alloc&) {
      return true;
    }
  }
  void pump() {
    while (pump_once()) {
    }
  }
  // The answer, if there is one as soon as nothing is left to do.
  template <typename T, typename Start>
  std::optional<T> call(Start begin) {
    auto out = std::make_shared<std::optional<T>>();
    Done<T> done = [out](T value) {
      Unwatched own;
      out->emplace(std::move(value));
    };
    {
      Unwatched watched(true);
      begin(std::move(done));
      pump();
      for (int i = 0; i < 10'000 && !*out && waits; ++i) {  // for a timer, its own at the latest
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        pump();
      }
    }
    return std::move(*out);
  }
  bool waits = false;

  const CacheOptions options_;
  boost::asio::io_context loop, workers;
  std::unique_ptr<CacheCore> core;
  uint64_t session = 0;
};

// What a call answered: its status, and whether it answered at all.
template <typename T>
inline Status status_of(const std::optional<Result<T>>& answer) {
  if (!answer) return {StatusCode::internal, "no answer"};
  return answer->status();
}
inline Status status_of(const std::optional<Status>& answer) {
  return answer ? *answer : Status(StatusCode::internal, "no answer");
}

class MemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    FailingNew::watched = false;
    RecordProperty("in_memory", kInMemory);
    ASSERT_TRUE(kSqliteToo);
  }
  void TearDown() override { FailingNew::watched = true; }

  static ModelSpec all_kinds() {
    auto layer = [](std::vector<PartSpec> parts) { return LayerSpec{std::move(parts)}; };
    return model_of({layer({full_part()}), layer({window_part(6, 2)}),
                     layer({state_part(SnapshotPlace::checkpoint)})});
  }
  CacheOptions options() const {
    CacheOptions o = small_options(dir_.store());
    o.ram_budget_bytes = 4u << 20;
    o.room_wait = Milliseconds(20);
    o.durable_group_delay = Milliseconds(0);
    o.io_backoff = Milliseconds(5);
    o.coding.k_bits = o.coding.v_bits = 4;
    return o;
  }
  void open(const CacheOptions& o) {
    cache_ = std::make_unique<Pumped>(o);
    open_model();
  }
  void open_model() {
    OpenRequest request;
    request.model = all_kinds();
    auto opened = cache_->call<Result<OpenReply>>(
        [&](auto done) { cache_->core->open(cache_->session, request, soon(), std::move(done)); });
    ASSERT_TRUE(opened && opened->ok());
    opened_ = **opened;
    codec_ = *Codec::create(request.model, opened_.profile);
    base_ = gauges();
  }
  // Something that is served whatever fails afterwards.
  void keep() {
    if (kept_.empty()) kept_ = tokens(40);
    ASSERT_TRUE(store(kept_).ok());
  }

  // Each verb: answered without a time-out.
  Status store(const Sequence& tokens, Durability level = Durability::accepted) {
    auto& core = *cache_->core;
    uint64_t s = cache_->session;
    ReserveRequest request{opened_.model, opened_.realm.profile, {tokens, {}}};
    auto reserved = cache_->call<Result<ReserveReply>>(
        [&](auto done) { core.reserve(s, std::move(request), soon(), std::move(done)); });
    if (!status_of(reserved).ok()) return status_of(reserved);
    uint64_t id = (*reserved)->reservation;
    for (const Need& need : (*reserved)->needs) {
      auto put = make_put(all_kinds(), 16, tokens, need, id);
      Status status = status_of(cache_->call<Status>(
          [&](auto done) { core.put(s, std::move(put), nullptr, soon(), std::move(done)); }));
      if (status.ok()) continue;
      Status aborted = status_of(
          cache_->call<Status>([&](auto done) { core.abort(s, id, soon(), std::move(done)); }));
      EXPECT_TRUE(aborted.ok() || aborted.code() == StatusCode::busy) << aborted.to_string();
      return status;
    }
    cache_->waits = level > Durability::accepted;
    bool failing = FailingNew::armed() && cache_->waits;
    Deadline deadline = deadline_in(Milliseconds(failing ? 100 : 10'000));
    auto committed = cache_->call<Result<CommitReply>>(
        [&](auto done) { core.commit(s, id, level, deadline, std::move(done)); });
    cache_->waits = false;
    if (!status_of(committed).ok()) return status_of(committed);
    return (*committed)->level >= level ? Status() : Status(StatusCode::busy, "a lower level");
  }
  Status fetch(const Sequence& tokens, uint32_t expected, FetchForm form = FetchForm::stored) {
    FetchRequest request;
    request.model = opened_.model;
    request.query.tokens = tokens;
    request.form = form;
    auto reply = cache_->call<Result<FetchReply>>([&](auto done) -> void {
      cache_->core->fetch(cache_->session, std::move(request), soon(), std::move(done));
    });
    if (!status_of(reply).ok()) return status_of(reply);
    auto hashes = prefix_hashes(tokens);
    ReplyCheck(all_kinds(), *codec_, hashes).expect(**reply, form);
    uint32_t served = (*reply)->tokens;
    reply.reset();
    cache_->pump();
    EXPECT_LE(served, expected);
    served_ = served;
    return served == expected ? Status() : Status(StatusCode::busy, "a shorter hit");
  }
  std::optional<Result<uint64_t>> erase_of(uint32_t model, const Sequence& tokens) {
    Query query{tokens, {}};
    return cache_->call<Result<uint64_t>>([&](auto done) -> void {
      cache_->core->erase(cache_->session, model, std::move(query), soon(), std::move(done));
    });
  }
  Status erase(const Sequence& tokens) { return status_of(erase_of(opened_.model, tokens)); }
  std::map<std::string, uint64_t> gauges() {
    auto reply = cache_->call<Result<StatsReply>>(
        [&](auto done) { cache_->core->stats(cache_->session, soon(), std::move(done)); });
    EXPECT_TRUE(status_of(reply).ok());
    return {(*reply)->values.begin(), (*reply)->values.end()};
  }

  // The stats, and the bytes of the directory at the same time, when no timer's work came between;
  // far longer than any such work takes, should something be left under way.
  std::pair<std::map<std::string, uint64_t>, uint64_t> settled() {
    std::pair<std::map<std::string, uint64_t>, uint64_t> out;
    for (int i = 0; i < 2'000; ++i) {
      cache_->pump();
      out.second = du(dir_.store());
      out.first = gauges();
      bool quiet = out.first["pins"] == 0 && out.first["ram_spill_bytes"] == 0;
      if (quiet && du(dir_.store()) == out.second) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return out;
  }

  // Nothing of the operation is left under way, and the ledger of files agrees with the directory.
  void expect_sound() {
    auto [value, on_disk] = settled();
    for (const char* name : {"pins", "reservations", "ram_staging_bytes", "ram_promotion_bytes",
                             "ram_spill_bytes", "ram_reply_bytes"}) {
      EXPECT_EQ(value[name], 0u) << name;
    }
    EXPECT_EQ(value["waiting_calls"], 1u) << "this one";
    EXPECT_EQ(value["quarantined"], 0u);
    // Where even its size could not be asked for, a folder is charged what it may have grown.
    EXPECT_GE(value["ssd_used_bytes"], on_disk);
    if (!kept_.empty()) {
      EXPECT_TRUE(fetch(kept_and_more(), 40).ok()) << "what was stored before";
    }
  }
  // After an erase of everything the accounts are what they were.
  void expect_empty() {
    Status erased = erase({});
    ASSERT_TRUE(erased.ok()) << erased.to_string();
    auto [value, on_disk] = settled();
    for (const char* name : {"ram_used_bytes", "ram_objects", "ssd_objects", "spill_queue_bytes"}) {
      EXPECT_EQ(value[name], base_[name]) << name;
    }
    EXPECT_EQ(value["ssd_used_bytes"], on_disk);
    if (!kept_.empty()) keep();
    expect_sound();
  }
  std::set<std::string> files() const {
    std::set<std::string> out;
    for (const auto& e : std::filesystem::recursive_directory_iterator(dir_.store())) {
      out.insert(e.path());
    }
    return out;
  }
  Sequence kept_and_more() const {
    Sequence query = kept_;
    query.push_back(1);
    return query;
  }
  // Pumps, timers and all, until the stat has at least this value; far longer than any timer of the
  // cache.
  void wait_for(const char* name, uint64_t value) {
    for (int i = 0; i < 30'000 && gauges()[name] < value; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      cache_->pump();
    }
    ASSERT_GE(gauges()[name], value) << name;
  }

  // `run` with allocation N and `more` after it failing, for N = 1 until none fails. It may answer
  // busy or ok; then, with memory, it must answer ok. `reset` makes it ready to run again.
  void for_each_failure(const char* what, int64_t more, const std::function<Status()>& run,
                        const std::function<void()>& reset, bool slow = false) {
    int64_t n = 1, failed = 0;
    for (;; n += stride(slow)) {
      SCOPED_TRACE(std::string(what) + ": allocation " + std::to_string(n) + " and " +
                   std::to_string(more) + " more");
      bool sqlite = more == kSqliteForEver;
      FailingNew::arm(n, sqlite ? kForEver : more, sqlite);
      Status status = run();
      FailingNew::disarm();
      if (HasFailure()) return;
      bool expected = status.ok() || status.code() == StatusCode::busy ||
                      status.code() == StatusCode::not_found ||
                      status.code() == StatusCode::deadline_exceeded;
      ASSERT_TRUE(expected) << status.to_string();
      failed += !status.ok();
      if (cache_) expect_sound();
      if (HasFailure()) return;
      bool passed = FailingNew::failures() == 0;
      if (!passed || !status.ok()) status = run();  // it may have been the machine that was late
      ASSERT_TRUE(status.ok()) << status.to_string();
      reset();
      if (HasFailure()) return;
      if (passed) break;
    }
    std::cout << what << ", " << more << " more: " << n << " allocations, " << failed
              << " times busy or shorter\n";
    EXPECT_TRUE(failed > 0 || more == kSqliteForEver);  // a store can do without its catalog
  }
  void for_each_failure(const char* what, const std::function<Status()>& run,
                        const std::function<void()>& reset) {
    for (int64_t more : {int64_t{0}, kForEver}) {
      for_each_failure(what, more, run, reset);
      if (HasFailure()) return;
    }
  }
  Sequence tokens(size_t n) { return random_tokens(rng_, n); }

  TempDir dir_;
  std::mt19937 rng_{17};
  std::unique_ptr<Pumped> cache_;
  OpenReply opened_;
  std::shared_ptr<const Codec> codec_;
  std::map<std::string, uint64_t> base_;
  Sequence kept_;
  uint32_t served_ = 0;  ///< tokens of the last fetch
};

}  // namespace kv
