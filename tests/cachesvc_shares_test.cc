// Shares: who gives when bytes are short, by examples and against an oracle; and what a namespace's
// counts refuse.
#include <algorithm>
#include <boost/asio/io_context.hpp>

#include "cachesvc/core/fair_tasks.h"
#include "cachesvc/core/shares.h"
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

constexpr ShareId kGreedy = 1, kModest = 2;

EntryOptions entry(uint64_t bytes, bool dirty = false) {
  EntryOptions options;
  options.charge_bytes = bytes;
  options.dirty = dirty;
  return options;
}

// Two shares of 40 bytes, 20 left for all others.
Shares two_shares() { return Shares({0, 40, 40}, 100); }

TEST(Shares, WhatOneDoesNotUseOthersMay) {
  Shares shares = two_shares();
  for (EntryKey key = 0; key < 8; ++key) shares.insert(kGreedy, key, entry(10));
  shares.insert(kModest, 10, entry(10));
  EXPECT_EQ(shares.bytes(kGreedy), 80u);
  // It gets back what is its own: of the one over its share the least recently used go.
  auto victims = shares.next_victims(30, false, {kModest, 30});
  EXPECT_EQ(victims.keys, (std::vector<EntryKey>{0, 1, 2}));
}

TEST(Shares, WhoAsksForMoreThanItsShareGivesFirst) {
  Shares shares = two_shares();
  for (EntryKey key = 0; key < 4; ++key) shares.insert(kModest, key, entry(10));
  for (EntryKey key = 10; key < 14; ++key) shares.insert(kGreedy, key, entry(10));
  EXPECT_EQ(shares.next_victims(10, false, {kGreedy, 10}).keys, std::vector<EntryKey>{10});
  EXPECT_EQ(shares.next_victims(10, false, {kModest, 10}).keys, std::vector<EntryKey>{0});
}

TEST(Shares, ThoseWithoutAQuotaHaveTheRestTogether) {
  Shares shares = two_shares();
  for (EntryKey key = 0; key < 3; ++key) shares.insert(kCommonShare, key, entry(10));
  for (EntryKey key = 10; key < 14; ++key) shares.insert(kGreedy, key, entry(10));
  EXPECT_EQ(shares.next_victims(10, false).keys, std::vector<EntryKey>{0});
  EXPECT_EQ(shares.limit(kCommonShare), 0u);
}

TEST(Shares, NobodyLosesACleanObjectForOneThatIsOverItsShareAndDirty) {
  Shares shares = two_shares();
  for (EntryKey key = 0; key < 8; ++key) shares.insert(kGreedy, key, entry(10, true));
  shares.insert(kModest, 10, entry(10));
  EXPECT_TRUE(shares.next_victims(10, false, {kModest, 10}).keys.empty());
  EXPECT_EQ(shares.next_victims(10, true, {kModest, 10}).keys, std::vector<EntryKey>{0});
  shares.of(kGreedy).pin(0);
  for (EntryKey key = 1; key < 8; ++key) shares.of(kGreedy).pin(key);
  EXPECT_EQ(shares.next_victims(10, false).keys, std::vector<EntryKey>{10}) << "none may go there";
}

// What is there by share, in order of its last use; victims one by one by the rule's own words.
class SharesOracle {
 public:
  void insert(ShareId share, EntryKey key, uint64_t bytes) { of_[share].push_back({key, bytes}); }
  void erase(ShareId share, EntryKey key) {
    std::erase_if(of_[share], [&](const auto& e) { return e.first == key; });
  }
  uint64_t bytes(ShareId share) const {
    uint64_t sum = 0;
    for (const auto& [key, bytes] : of_[share]) sum += bytes;
    return sum;
  }
  std::vector<EntryKey> victims(uint64_t needed, Asker asker, const std::vector<uint64_t>& limits) {
    auto left = of_;
    std::vector<EntryKey> out;
    for (uint64_t got = 0; got < needed;) {
      size_t chosen = left.size();
      double most = -1;
      for (size_t s = 0; s < left.size(); ++s) {
        if (left[s].empty()) continue;
        double used = s == asker.share ? static_cast<double>(asker.bytes) : 0;
        for (const auto& [key, bytes] : left[s]) used += static_cast<double>(bytes);
        if (used / static_cast<double>(limits[s]) <= most) continue;
        most = used / static_cast<double>(limits[s]);
        chosen = s;
      }
      if (chosen == left.size()) break;
      out.push_back(left[chosen].front().first);
      got += left[chosen].front().second;
      left[chosen].erase(left[chosen].begin());
    }
    return out;
  }
  std::vector<std::vector<std::pair<EntryKey, uint64_t>>> of_{3};
};

TEST(Shares, ChooseAsTheirRuleSays) {
  std::mt19937 random(7);
  auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int run = 0; run < 20; ++run) {
    Shares shares({0, 1024, 2048}, 4096);
    SharesOracle oracle;
    EntryKey next = 0;
    for (int step = 0; step < 300; ++step) {
      const auto share = static_cast<ShareId>(below(3));
      if (below(3) > 0 || oracle.of_[share].empty()) {
        const uint64_t bytes = 1 + below(200);
        ASSERT_TRUE(shares.insert(share, next, entry(bytes)));
        oracle.insert(share, next++, bytes);
      } else {
        const EntryKey key =
            oracle.of_[share][below(static_cast<uint32_t>(oracle.of_[share].size()))].first;
        ASSERT_TRUE(shares.erase(share, key));
        oracle.erase(share, key);
      }
      shares.check_invariants();
      for (ShareId s = 0; s < 3; ++s) ASSERT_EQ(shares.bytes(s), oracle.bytes(s));
      const Asker asker{static_cast<ShareId>(below(3)), below(500)};
      const uint64_t needed = below(1500);
      ASSERT_EQ(shares.next_victims(needed, false, asker).keys,
                oracle.victims(needed, asker, {1024, 1024, 2048}));
    }
  }
}

CacheOptions with_quota(const NamespaceQuota& quota, const std::string& dir = "") {
  CacheOptions options = small_options(dir);
  options.quotas["mine"] = quota;
  return options;
}

TEST(Quotas, OfCountsAreRefusedNamingQuotaUsedAndAsked) {
  NamespaceQuota quota;
  quota.connections = 2;
  CoreOwners c(with_quota(quota));
  auto first = c.calls.connect("mine"), second = c.calls.connect("mine");
  ASSERT_TRUE(first.ok() && second.ok());
  auto third = c.calls.connect("mine");
  EXPECT_EQ(third.status().code(), StatusCode::resource_exhausted);
  EXPECT_EQ(third.status().message(),
            "namespace \"mine\": quota of connections 2, used 2, asked 1");
  EXPECT_TRUE(c.calls.connect("another").ok());
  EXPECT_EQ(c.env->count.over_quota, 1u);
  c.calls.disconnect(*first);
  EXPECT_TRUE(c.calls.connect("mine").ok());
  c.calls.check_invariants();
}

TEST(Quotas, OfRequestsCountWhatIsUnderWay) {
  NamespaceQuota quota;
  quota.requests = 1;
  CoreOwners c(with_quota(quota));
  const uint64_t session = *c.calls.connect("mine");
  Status ended;
  auto done = [&](Status status) { ended = status; };
  auto first = c.calls.begin<Status>(session, soon(), done);
  EXPECT_FALSE(first->finished());
  auto second = c.calls.begin<Status>(session, soon(), done);
  EXPECT_TRUE(second->finished());
  EXPECT_EQ(ended.code(), StatusCode::resource_exhausted);
  first->finish(Status());
  EXPECT_FALSE(c.calls.begin<Status>(session, soon(), done)->finished());
}

TEST(Quotas, OfReservationsAndModelsNameTheirs) {
  NamespaceQuota quota;
  quota.reservations = quota.models = 1;
  auto cache = open_cache(with_quota(quota), "mine");
  Bench b = Bench::open(*cache, plain_model());
  std::mt19937 random(3);
  auto first = b.reserve(random_tokens(random, 40));
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_EQ(b.reserve(random_tokens(random, 40)).status().message(),
            "namespace \"mine\": quota of reservations 1, used 1, asked 1");
  ASSERT_TRUE(cache->abort(first->reservation, soon()).ok());
  EXPECT_TRUE(b.reserve(random_tokens(random, 40)).ok());
  OpenRequest another;
  another.model = plain_model(2, 8);
  auto second = cache->open(another, soon());
  EXPECT_EQ(second.status().code(), StatusCode::resource_exhausted);
  EXPECT_EQ(second.status().message(), "namespace \"mine\": quota of models 1, used 1, asked 1");
  EXPECT_EQ(b.stat("over_quota"), 2u);
}

TEST(Quotas, OfAHitThatIsLargerAsMuchIsServedAsFits) {
  TempDir dir;
  NamespaceQuota quota;
  quota.ram_bytes = 1 << 20;  // 128 blocks
  std::mt19937 random(3);
  const Sequence tokens = random_tokens(random, 3200);
  {
    auto cache = open_cache(small_options(dir.store()), "mine");
    ASSERT_TRUE(Bench::open(*cache, plain_model()).store(tokens, Durability::spilled).ok());
  }
  auto cache = open_cache(with_quota(quota, dir.store()), "mine");
  Bench b = Bench::open(*cache, plain_model());
  auto hit = b.fetch(plus_one(tokens));
  ASSERT_TRUE(hit.ok()) << hit.status().to_string();
  EXPECT_GT(hit->tokens, 1000u);
  EXPECT_LE(hit->tokens, 2048u);
  EXPECT_NE(hit->reason.find("it has 1048576 for this namespace"), std::string::npos)
      << hit->reason;
  b.expect_serves(plus_one(tokens), *hit);
}

TEST(Quotas, WhatCanNeverFitNamesIt) {
  NamespaceQuota quota;
  quota.ram_bytes = 1 << 20;
  CoreOwners c(with_quota(quota));
  Room room;
  room.share = c.env->namespaces.share("mine");
  room.stored = (1 << 20) + 1;
  EXPECT_EQ(c.room.can_never_fit(room).message(),
            "namespace \"mine\": quota of RAM 1048576, used 0, asked 1048577");
  room.share = kCommonShare;
  EXPECT_TRUE(c.room.can_never_fit(room).ok());
}

TEST(Quotas, OfBytesInFlightAreWaitedForAndThenNamed) {
  NamespaceQuota quota;
  quota.in_flight_bytes = 1 << 20;
  CacheOptions options = with_quota(quota);
  options.room_wait = Milliseconds(20);
  CoreOwners c(options);
  const auto room = [&](const char* ns, uint64_t staging, uint64_t reply) {
    return Room{.staging = staging, .reply = reply, .share = c.env->namespaces.share(ns)};
  };
  EXPECT_EQ(c.room.can_never_fit(room("mine", 1 << 19, (1 << 19) + 1)).message(),
            "namespace \"mine\": quota of bytes in flight 1048576, used 0, asked 1048577");
  EXPECT_TRUE(c.room.can_never_fit(room("another", 1 << 19, (1 << 19) + 1)).ok());
  auto under_way = c.room.room_now(room("mine", 1 << 18, 1 << 19));
  ASSERT_TRUE(under_way);
  Status said;
  int served = 0;
  auto ask = [&] {
    c.room.with_room(room("mine", (1 << 18) + 1, 0), soon(),
                     [&](Result<std::shared_ptr<RoomCharges>> got) {
                       said = got.status();
                       ++served;
                     });
  };
  ask();
  EXPECT_EQ(served, 0) << "it waits";
  EXPECT_TRUE(c.room.room_now(room("another", (1 << 18) + 1, 0))) << "others don't";
  c.run_for(Milliseconds(60));
  EXPECT_EQ(said.code(), StatusCode::resource_exhausted);
  EXPECT_EQ(said.message(),
            "namespace \"mine\": quota of bytes in flight 1048576, used 786432, asked 262145");
  EXPECT_EQ(c.env->count.over_quota, 1u);
  ask();
  under_way.reset();
  c.run();
  EXPECT_EQ(served, 2);
  EXPECT_TRUE(said.ok()) << said.to_string();
}

// Pieces of an account that a namespace gets, while others have theirs, until it has to wait.
std::vector<std::shared_ptr<RoomCharges>> all_it_gets(CoreOwners& c, Room piece) {
  std::vector<std::shared_ptr<RoomCharges>> out;
  while (auto got = c.room.room_now(piece)) out.push_back(std::move(got));
  return out;
}

TEST(Quotas, AGreedyTenantLeavesAModestOneItsPartOfStagingAndOfReplies) {
  CacheOptions options = small_options();
  const uint64_t budget = options.ram_budget_bytes;
  options.quotas["greedy"].ram_bytes = budget / 2;
  options.quotas["modest"].ram_bytes = budget / 4;
  CoreOwners c(options);
  const uint64_t accounts[] = {c.env->pool->staging_limit_bytes(), budget / 4 * 3};
  for (int i = 0; i < 2; ++i) {
    const uint64_t limit = accounts[i], piece = limit / 200;
    const auto part = [&](const char* ns) {
      Room room{.share = c.env->namespaces.share(ns)};
      (i == 0 ? room.staging : room.reply) = piece;
      return room;
    };
    auto greedy = all_it_gets(c, part("greedy"));
    auto modest = all_it_gets(c, part("modest"));
    auto others = all_it_gets(c, part("those without a quota"));
    // Half of the account by shares of 1/2, 1/4 and the rest; the other half had come to one.
    EXPECT_NEAR(static_cast<double>(greedy.size() * piece), limit * .75, limit * .01);
    EXPECT_NEAR(static_cast<double>(modest.size() * piece), limit * .125, limit * .01);
    EXPECT_NEAR(static_cast<double>(others.size() * piece), limit * .125, limit * .01);
    greedy.clear();
    EXPECT_NEAR(static_cast<double>(all_it_gets(c, part("modest")).size() * piece), limit * .5,
                limit * .01)
        << "what is nobody's it may have, and no more";
    Room more = part("modest");
    (i == 0 ? more.staging : more.reply) = limit / 100 * 65;
    EXPECT_EQ(c.room.can_never_fit(more).code(), StatusCode::resource_exhausted);
    more.share = c.env->namespaces.share("greedy");
    EXPECT_TRUE(c.room.can_never_fit(more).ok());
  }
  EXPECT_EQ(Transit(*c.env).in_flight(c.env->namespaces.share("modest")), 0u);
}

TEST(Quotas, ThatCannotAllBeHeldAreAnErrorOfTheStart) {
  CacheOptions options = small_options();
  options.quotas["a"].ram_bytes = options.ram_budget_bytes;
  EXPECT_TRUE(check_shares(options, options.ram_budget_bytes).ok());
  options.quotas["b"].ram_bytes = 1;
  EXPECT_EQ(check_shares(options, options.ram_budget_bytes).code(), StatusCode::invalid_argument);
  options.quotas.clear();
  options.quotas["a"].ssd_bytes = 1;
  EXPECT_EQ(check_shares(options, options.ram_budget_bytes).code(), StatusCode::invalid_argument)
      << "there is no SSD tier";
}

// The shares of a greedy and of a modest tenant through the whole cache: however much one stores,
// the other keeps what it has.
TEST(Quotas, AGreedyTenantTakesNothingOfAModestOnes) {
  TempDir dir;
  CacheOptions options = small_options(dir.store());
  options.quotas["greedy"].ram_bytes = options.ram_budget_bytes / 4;
  options.quotas["modest"].ram_bytes = options.ram_budget_bytes / 4;
  auto modest = TieredCache::create(options, "modest");
  ASSERT_TRUE(modest.ok()) << modest.status().to_string();
  auto greedy = (*modest)->connect("greedy");
  ASSERT_TRUE(greedy.ok());
  std::mt19937 random(3);
  Bench mine = Bench::open(**modest, plain_model()), theirs = Bench::open(**greedy, plain_model());
  const auto kept = random_tokens(random, 64);
  ASSERT_TRUE(mine.store(kept, Durability::spilled).ok());
  const uint64_t own = mine.stat("namespace_ram_bytes");
  ASSERT_GT(own, 0u);
  while (theirs.stat("ram_evicted_clean") + theirs.stat("ram_evicted_dirty") < 200) {
    auto stored = theirs.store(random_tokens(random, 512));
    ASSERT_TRUE(stored.ok()) << stored.status().to_string();
  }
  EXPECT_EQ(mine.stat("namespace_ram_bytes"), own);
  EXPECT_EQ(mine.stat("namespace_ram_quota_bytes"), options.ram_budget_bytes / 4);
  EXPECT_GT(theirs.stat("namespace_ram_bytes"), options.ram_budget_bytes / 4) << "it borrows";
}

// The least that owns tasks.
struct Jobs {
  bool closed() const { return false; }
  template <typename Step>
  void run(Step step) {
    step();
  }
  void no_memory() {}
};

// A greedy namespace has a thousand jobs for one thread when a modest one comes with a hundred.
TEST(FairTasks, NamespacesHaveTheirTurnsWithinATenth) {
  boost::asio::io_context loop;
  auto owner = std::make_shared<Jobs>();
  FairTasks tasks(loop.get_executor(), 1);
  std::string ran;
  auto give = [&](const std::string& ns, uint64_t bytes) {
    auto job = [&ran, ns] { return ran += ns; };
    auto then = [&tasks](const std::string&) { tasks.ended(); };
    tasks.submit(ns, bytes,
                 std::make_shared<TaskOf<Jobs, decltype(job), decltype(then)>>(
                     owner, loop.get_executor(), job, then));
  };
  for (int i = 0; i < 1000; ++i) give("g", 100);
  for (int i = 0; i < 100; ++i) give("m", 200);
  while (ran.size() < 150) loop.run_one();
  // Behind what is under way, half of the bytes are the modest one's: a third of the jobs.
  EXPECT_EQ(ran.substr(0, FairTasks::kPerThread), "gggg");
  EXPECT_NEAR(static_cast<double>(std::count(ran.begin(), ran.end(), 'm')), 150 / 3.0, 5);
  tasks.close();
  loop.run();
  EXPECT_LE(ran.size(), 150 + FairTasks::kPerThread) << "those that had not begun never do";
}

TEST(Quotas, WaitersForRoomOfSeveralSharesAreServedInTurn) {
  NamespaceQuota quota;
  quota.ram_bytes = 1 << 20;
  CoreOwners c(with_quota(quota));
  RamPool& pool = *c.env->pool;
  std::optional<Charge> others =
      pool.try_charge(ChargeKind::session, pool.budget_bytes() - pool.used_bytes());
  std::string served;
  auto ask = [&](ShareId share) {
    Room room;
    room.share = share;
    room.reply = 1;
    c.room.with_room(room, soon(), [&served, share](Result<std::shared_ptr<RoomCharges>> got) {
      served += !got.ok() ? '!' : share == kCommonShare ? 'g' : 'm';
    });
  };
  for (int i = 0; i < 5; ++i) ask(kCommonShare);
  for (int i = 0; i < 2; ++i) ask(c.env->namespaces.share("mine"));
  EXPECT_EQ(served, "");
  c.room.check_invariants();
  others.reset();
  c.run();
  EXPECT_EQ(served, "gmgmggg");
}

}  // namespace
}  // namespace kv
