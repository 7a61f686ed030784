// What a commit acks `spilled` or `durable` is served whole after a kill and a restart, whatever
// happened before the ack: bad sectors, rot at rest, failing writes, erases of others. Random walks
// over lives of one store, against the plainest oracle: the list of what was acked since the device
// last did harm.
#include <set>

#include "tests/support/cachesvc_stepped.h"
#include "tests/support/soak.h"
#include "tests/support/storage_damage.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

using testing::FaultFiles;

// Files whose reads fail until they are replaced, and writes that fail for a while.
class BadDisk {
 public:
  BadDisk() {
    files.script = [this](const std::string& call, const std::string& path) -> Status {
      if (call == "rename" || call == "unlink") bad_.erase(path);
      if (call == "open_read" && bad_.contains(path)) return {StatusCode::io_error, "bad sector"};
      bool write = call == "pwrite" || call == "rename" || call == "fdatasync";
      bool catalog = path.find("catalog") != std::string::npos;
      bool fails = write && !catalog && failing_writes_ > 0 && failing_writes_-- > 0;
      return fails ? Status(StatusCode::io_error, "injected") : Status();
    };
  }
  void break_some(std::mt19937& rng, const std::string& store) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(store)) {
      if (entry.is_regular_file() && rng() % 3 == 0) bad_.insert(entry.path());
    }
  }
  void fail_writes(uint32_t calls) { failing_writes_ = calls; }

  FaultFiles files;

 private:
  std::set<std::string> bad_;
  uint32_t failing_writes_ = 0;
};

class Walk {
 public:
  explicit Walk(uint32_t seed) : rng_(seed) {
    options_ = small_options(dir_.store());
    options_.ram_budget_bytes = (seed % 2 == 0 ? 64ull : 3ull) << 20;
    options_.ssd_files = &disk_.files;
    options_.io_backoff = Milliseconds(1);
    options_.warm_start_bytes = seed % 3 == 0 ? 1 << 20 : 0;
    for (int i = 0; i < 12; ++i) entries_.push_back(random_entry());
  }
  void run() {
    for (int life = 0; life < 6 && !::testing::Test::HasFatalFailure(); ++life) live();
    disk_.fail_writes(0);
    check_all();
  }

 private:
  // Some share a beginning.
  Sequence random_entry() {
    Sequence tokens = random_tokens(rng_, 3 + rng_() % 90);
    if (entries_.empty() || rng_() % 2 == 0) return tokens;
    const Sequence& other = entries_[rng_() % entries_.size()];
    size_t shared = rng_() % (other.size() + 1);
    std::copy_n(other.begin(), std::min(shared, tokens.size()), tokens.begin());
    return tokens;
  }
  void live() {
    Stepped client(options_);
    auto b = Bench::open(client, model_);
    for (int step = 0; step < 40 && !::testing::Test::HasFatalFailure(); ++step) {
      const Sequence& tokens = entries_[rng_() % entries_.size()];
      switch (rng_() % 9) {
        case 0:
        case 1:
        case 2:
          store(b, tokens);
          break;
        case 3:
        case 4:
        case 5:
          fetch(b, tokens);
          break;
        case 6:
          erase(b, rng_() % 3 == 0 ? tokens : random_tokens(rng_, 1 + rng_() % 40));
          break;
        case 7:
          disk_.fail_writes(rng_() % 4);
          break;
        default:
          erase_entry(b, tokens);
          break;
      }
      client.core->check_invariants();
    }
    if (rng_() % 2 == 0) check(b);  // else it is killed, and another process is asked
    client.core.reset();
    harm();
  }
  // Between two lives: what was verified in one may rot in the same.
  void harm() {
    const uint32_t kind = rng_() % 4;
    std::mt19937_64 rng(rng_());
    if (kind == 0) testing::damage_some(rng, options_.ssd_dir);
    if (kind == 1) disk_.break_some(rng_, options_.ssd_dir);
    if (kind < 2) acked_.clear();
  }
  void store(Bench& b, const Sequence& tokens) {
    auto level = static_cast<Durability>(1 + rng_() % 3);
    auto reply = b.store(tokens, level);
    ASSERT_TRUE(reply.ok()) << reply.status().to_string();
    bool acked = reply->level >= Durability::spilled;
    EXPECT_TRUE(!acked || reply->lost.empty());
    if (acked) acked_.insert(tokens);
  }
  void fetch(Bench& b, const Sequence& tokens) {
    auto reply = b.fetch(plus_one(tokens));
    ASSERT_TRUE(reply.ok()) << reply.status().to_string();
    b.expect_serves(plus_one(tokens), *reply);
  }
  void erase(Bench& b, const Sequence& begins) {
    auto erased = b.client.erase(b.opened.model, {begins, {}}, soon());
    bool other = !erased.ok() && erased.status().code() != StatusCode::io_error;
    ASSERT_FALSE(other) << erased.status().to_string();
    std::erase_if(acked_, [&](const Sequence& s) {
      return s.size() >= begins.size() && std::equal(begins.begin(), begins.end(), s.begin());
    });
  }
  // Goes whole or not at all; entries that begin with it, or that it begins with, stay.
  void erase_entry(Bench& b, const Sequence& tokens) {
    auto erased = b.client.erase_entry({b.opened.model, {tokens, {}}}, soon());
    bool other = !erased.ok() && erased.status().code() != StatusCode::io_error;
    ASSERT_FALSE(other) << erased.status().to_string();
    std::erase_if(acked_, [&](const Sequence& s) {
      return s.size() <= tokens.size() && std::equal(s.begin(), s.end(), tokens.begin());
    });
  }
  void check_all() {
    Stepped client(options_);
    auto b = Bench::open(client, model_);
    check(b);
  }
  void check(Bench& b) {
    for (const Sequence& tokens : acked_) {
      auto reply = b.fetch(plus_one(tokens));
      ASSERT_TRUE(reply.ok());
      EXPECT_EQ(reply->tokens, tokens.size()) << reply->reason;
      b.expect_serves(plus_one(tokens), *reply);
    }
  }

  std::mt19937 rng_;
  TempDir dir_;
  BadDisk disk_;
  CacheOptions options_;
  ModelSpec model_ = plain_model();
  std::vector<Sequence> entries_;
  std::set<Sequence> acked_;
};

TEST(AckProperty, WhatWasAckedIsServedAfterAKill) {
  const uint32_t first = first_seed(18);
  for (uint32_t i = first, n = shared_rounds(18); i < first + n; ++i) {
    SCOPED_TRACE("seed " + std::to_string(i));
    Walk(i).run();
    if (::testing::Test::HasFailure()) return;
  }
}

// Two tenants, an index that is always full, an SSD nearly so; what one erases is its own, and a
// restart serves what was served before it.
class FullIndexWalk {
 public:
  explicit FullIndexWalk(uint32_t seed) : rng_(seed) {
    options_ = small_options(dir_.store());
    options_.ram_budget_bytes = 2u << 20;
    options_.index_fraction = 0.03;
    options_.room_wait = Milliseconds(20);
    if (seed % 2 == 0) options_.ssd_limit_bytes = kMinLimitBytes;
  }
  void run() {
    for (int life = 0; life < 4 && !::testing::Test::HasFatalFailure(); ++life) live();
  }

 private:
  using Served = std::set<std::pair<int, Sequence>>;
  Bench bench(Stepped& client, int tenant) {
    client.session = *client.core->connect("tenant " + std::to_string(tenant));
    return Bench::open(client, model_);
  }
  Served served(Stepped& client) {
    Served out;
    for (int tenant : {0, 1}) {
      Bench b = bench(client, tenant);
      for (const Sequence& tokens : stored_) {
        auto hit = client.lookup({b.opened.model, {plus_one(tokens), {}}}, soon());
        if (hit.ok() && hit->tokens == tokens.size()) out.insert({tenant, tokens});
      }
    }
    return out;
  }
  void live() {
    Stepped client(options_);
    EXPECT_TRUE(before_ == served(client)) << "after the restart";
    for (int step = 0; step < 120 && !::testing::Test::HasFatalFailure(); ++step) {
      Bench b = bench(client, static_cast<int>(rng_() % 2));
      auto tokens = random_tokens(rng_, 1 + rng_() % 5);
      if (rng_() % 8 == 0 && !stored_.empty()) {
        auto one = rng_() % 2 ? stored_[rng_() % stored_.size()] : tokens;  // or of nothing stored
        one.resize(1 + rng_() % one.size());
        ASSERT_TRUE(client.erase(b.opened.model, {one, {}}, soon()).ok());
      } else {
        stored_.push_back(tokens);
        ASSERT_TRUE(b.store(tokens, Durability::spilled).ok());
      }
      client.core->check_invariants();
    }
    client.run();
    before_ = served(client);
    expect_own_erases_only(client);
    before_ = served(client);
  }
  // One tenant erases all; the other has what it had.
  void expect_own_erases_only(Stepped& client) {
    if (rng_() % 2 == 0) return;
    const int tenant = static_cast<int>(rng_() % 2);
    Bench b = bench(client, tenant);
    ASSERT_TRUE(client.erase(b.opened.model, {}, soon()).ok());
    std::erase_if(before_, [&](const auto& entry) { return entry.first == tenant; });
    EXPECT_TRUE(before_ == served(client)) << "after tenant " << tenant << " erased all";
  }

  std::mt19937 rng_;
  TempDir dir_;
  CacheOptions options_;
  ModelSpec model_ = plain_model(1);
  std::vector<Sequence> stored_;
  Served before_;
};

TEST(AckProperty, AtAFullIndexARestartServesWhatWasServedAndErasesTakeTheirOwn) {
  const uint32_t first = first_seed(12);
  for (uint32_t i = first, n = shared_rounds(12); i < first + n; ++i) {
    SCOPED_TRACE("seed " + std::to_string(i));
    FullIndexWalk(i).run();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace kv
