// Daemons on directories of their own that share one tier: a real cluster of three shards.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>

#include "cachesvc/daemon/http_names.h"
#include "tests/support/cachesvc_machines.h"

namespace kv {
namespace {

std::vector<std::vector<uint8_t>> bytes_of(const FetchReply& reply) {
  std::vector<std::vector<uint8_t>> out;
  for (const FetchedObject& o : reply.lease.prefix().objects) {
    for (const Plane& p : o.object->planes) {
      out.emplace_back(p.bytes.data(), p.bytes.data() + p.bytes.size());
    }
  }
  return out;
}

TEST(RemoteDaemon, WhatOneMachineStoredAnEmptyOneServesAfterItsEnd) {
  KV_NEEDS_REDIS();
  const auto tokens = tokens_of(1);
  const auto asked = plus_one(tokens);
  std::vector<std::vector<uint8_t>> stored;
  {
    Machine a(settings());
    Bench at_a = a.open();
    ASSERT_TRUE(at_a.store(tokens, Durability::spilled).ok());
    a.written(kObjects);
    auto own = at_a.fetch(asked);
    ASSERT_TRUE(own.ok());
    ASSERT_EQ(own->tokens, kTokens);
    stored = bytes_of(*own);
    EXPECT_EQ(a.stat("remote_questions"), 0u);  // all was there
    a.lose();
  }
  Machine b(settings());
  Bench at_b = b.open();
  auto looked = heard(b, [&] {
    return b.client().lookup({at_b.opened.model, {asked, {}}, {}}, soon());
  });
  ASSERT_TRUE(looked.ok()) << looked.status().to_string();
  EXPECT_EQ(looked->tokens, kTokens);
  EXPECT_EQ(looked->tier, Tier::remote);
  auto got = heard(b, at_b, asked);
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  ASSERT_EQ(got->tokens, kTokens);
  EXPECT_EQ(got->tier, Tier::remote);
  EXPECT_EQ(b.stat("hit_tokens_remote"), got->tokens);
  at_b.expect_serves(asked, *got);
  EXPECT_EQ(bytes_of(*got), stored);
  EXPECT_EQ(b.stat("remote_objects_read"), kObjects);
  // It is this machine's now, on its SSD too, and not written back.
  for (int i = 0; i < 6000 && b.stat("ssd_objects") < kObjects; ++i) ::usleep(10'000);
  EXPECT_EQ(b.stat("ssd_objects"), kObjects);
  const uint64_t questions = b.stat("remote_questions");
  auto again = at_b.fetch(asked);
  ASSERT_TRUE(again.ok());
  ASSERT_EQ(again->tokens, kTokens);
  EXPECT_EQ(again->tier, Tier::ram);
  EXPECT_EQ(b.stat("hit_tokens_remote"), again->tokens) << "once";
  EXPECT_EQ(b.stat("remote_questions"), questions);
  EXPECT_EQ(b.stat("remote_objects_written") + b.stat("remote_existed"), 0u);
  auto stats = b.client().stats(soon());
  ASSERT_TRUE(stats.ok());
  for (const auto& each : stats->values) {
    if (!each.first.starts_with("remote_")) continue;
    EXPECT_NE(find_stat_name(each.first), nullptr) << each.first;
  }
}

TEST(RemoteDaemon, AFetchThatDoesNotWaitIsPendingAndThenThere) {
  KV_NEEDS_REDIS();
  const auto tokens = tokens_of(2);
  Machine a(settings()), b(settings());
  Bench at_a = a.open("pending");
  ASSERT_TRUE(at_a.store(tokens, Durability::spilled).ok());
  a.written(kObjects);
  Bench at_b = b.open("pending");
  FetchRequest request = fetch_of(at_b, tokens);
  request.wait = false;
  auto first = heard(b, [&] { return b.client().fetch(request, soon()); });
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(first->pending);
  EXPECT_EQ(first->tokens, kTokens - 1);
  auto then = b.client().fetch(request, soon());
  for (int i = 0; i < 12'000 && then.ok() && (then->pending || then->tokens == 0); ++i) {
    ::usleep(5000);
    then = b.client().fetch(request, soon());
  }
  ASSERT_TRUE(then.ok()) << then.status().to_string();
  ASSERT_EQ(then->tokens, kTokens - 1);
  at_b.expect_serves(tokens, *then);
  // A prefetch brings it likewise.
  Machine c(settings());
  Bench at_c = c.open("pending");
  PrefetchRequest prefetch;
  prefetch.model = at_c.opened.model;
  prefetch.query.tokens = tokens;
  prefetch.wait = true;
  auto reply = heard(c, [&] { return c.client().prefetch(prefetch, soon()); });
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->tokens, kTokens - 1);
  EXPECT_EQ(reply->tier, Tier::ram);
}

TEST(RemoteDaemon, AnEraseReachesTheTierAndANamespaceToo) {
  KV_NEEDS_REDIS();
  const auto one = tokens_of(3), other = tokens_of(4);
  Machine a(settings());
  Bench at_a = a.open("erase");
  ASSERT_TRUE(at_a.store(one, Durability::spilled).ok());
  ASSERT_TRUE(at_a.store(other, Durability::spilled).ok());
  a.written(2 * kObjects);
  auto erased = a.client().erase_entry({at_a.opened.model, {one, {}}, {}}, soon());
  ASSERT_TRUE(erased.ok()) << erased.status().to_string();
  EXPECT_EQ(a.stat("remote_erased"), kObjects);
  {
    Machine b(settings());
    Bench at_b = b.open("erase");
    EXPECT_EQ(heard(b, at_b, one)->tokens, 0u);
    EXPECT_EQ(heard(b, at_b, other)->tokens, kTokens - 1);
  }
  ASSERT_TRUE(a.client().erase(0, {}, soon()).ok());
  Machine c(settings());
  Bench at_c = c.open("erase");
  EXPECT_EQ(heard(c, at_c, other)->tokens, 0u);
}

TEST(RemoteDaemon, ValuesThatWereChangedAreMissesAndMakeRoom) {
  KV_NEEDS_REDIS();
  const auto tokens = tokens_of(5);
  Machine a(settings()), b(settings());
  Bench at_a = a.open("damage");
  ASSERT_TRUE(at_a.store(tokens, Durability::spilled).ok());
  a.written(kObjects);
  const std::string prefix = remote_prefix(remote_space("damage"));
  size_t changed = 0;
  for (size_t i = 0; i < 3; ++i) {
    std::stringstream keys(shards()[i].cli({"KEYS", prefix + "*"}));
    for (std::string key; keys >> key; ++changed) {
      shards()[i].cli({"SETRANGE", key, "2000", "xxxxxxxx"});
    }
  }
  ASSERT_EQ(changed, kObjects);
  Bench at_b = b.open("damage");
  auto got = heard(b, at_b, tokens);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->tokens, 0u);
  EXPECT_GT(b.stat("remote_damaged"), 0u);
  EXPECT_EQ(b.stat("remote_objects_read"), 0u);
}

// Its tail is damaged, or gone: its blocks come all the same.
TEST(RemoteDaemon, AWrongTailCostsTheTailAlone) {
  KV_NEEDS_REDIS();
  const auto tokens = tokens_of(9);
  Machine a(settings());
  Bench at_a = a.open("tail");
  ASSERT_TRUE(at_a.store(tokens, Durability::spilled).ok());
  a.written(kObjects);
  size_t changed = 0, where = 0;
  std::string tail;
  for (size_t i = 0; i < 3; ++i) {
    std::stringstream keys(shards()[i].cli({"KEYS", remote_prefix(remote_space("tail")) + "*"}));
    for (std::string key; keys >> key;) {
      if (!key.ends_with(".tail")) continue;
      shards()[i].cli({"SETRANGE", key, "2000", "xxxxxxxx"});
      ++changed;
      tail = key;
      where = i;
    }
  }
  ASSERT_EQ(changed, 1u);
  const auto there = [&] { return shards()[where].cli({"EXISTS", tail}) != "0"; };
  for (int round = 0; round < 2; ++round) {  // it is unlinked by the first
    Machine b(settings());
    Bench at_b = b.open("tail");
    auto got = heard(b, at_b, tokens);
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got->tokens, kBlocks * 256);
    at_b.expect_serves(tokens, *got);
    EXPECT_EQ(b.stat("remote_damaged"), round == 0 ? 1u : 0u);
    for (int i = 0; i < 3000 && there(); ++i) ::usleep(20'000);
    ASSERT_FALSE(there());
  }
}

// A repeat comes back whole, of each kind of cache; another sequence goes on from the last block's
// end where what it needs has names that follow from its tokens, else from an earlier place.
TEST(RemoteDaemon, EveryKindOfCacheComesBack) {
  KV_NEEDS_REDIS();
  struct Kind {
    const char* name;
    std::vector<PartSpec> parts;
    uint32_t least;  // that another sequence goes on from
  };
  const std::vector<Kind> kinds = {
      {"windows", {full_part(), window_part(300, 4)}, kBlocks * 256},
      {"chunks", {full_part(), chunk_part(512)}, kBlocks * 256},
      {"states", {full_part(), state_part(SnapshotPlace::checkpoint)}, 0},
      {"carries", {latent_part(), state_part(SnapshotPlace::block_end)}, kBlocks * 256},
      {"pooled", {pooled_part(4, true), window_part(128, 0)}, kBlocks * 256},
  };
  Machine a(settings()), b(settings());
  for (size_t i = 0; i < kinds.size(); ++i) {
    SCOPED_TRACE(kinds[i].name);
    std::vector<LayerSpec> layers;
    for (const PartSpec& part : kinds[i].parts) layers.push_back({{part}});
    const ModelSpec model = model_of(layers, static_cast<uint8_t>(40 + i));
    const auto tokens = tokens_of(30 + static_cast<int>(i));
    Bench at_a = a.open(kinds[i].name, model);
    ASSERT_TRUE(at_a.store(tokens, Durability::spilled).ok());
    a.written(a.stat("ssd_objects"));
    Bench at_b = b.open(kinds[i].name, model);
    auto got = heard(b, at_b, plus_one(tokens));
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    EXPECT_EQ(got->tokens, kTokens) << got->reason;
    at_b.expect_serves(plus_one(tokens), *got);
    Machine c(settings());
    Bench at_c = c.open(kinds[i].name, model);
    Sequence other = slice(tokens, 0, kBlocks * 256);
    other.resize(other.size() + 20, 7);
    got = heard(c, at_c, other);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    EXPECT_GE(got->tokens, kinds[i].least) << got->reason;
    at_c.expect_serves(other, *got);
  }
}

// A conversation of three turns, one machine's; others go on with it from each of its turns, as far
// as the machine itself could.
TEST(RemoteDaemon, ALaterTurnComesBackAsOnTheMachineThatStoredIt) {
  KV_NEEDS_REDIS();
  const std::vector<std::pair<const char*, std::vector<PartSpec>>> kinds = {
      {"windows", {full_part(), window_part(300, 4)}},
      {"chunks", {full_part(), chunk_part(512)}},
      {"states", {full_part(), state_part(SnapshotPlace::checkpoint)}},
  };
  Machine a(settings());
  for (size_t i = 0; i < kinds.size(); ++i) {
    SCOPED_TRACE(kinds[i].first);
    std::vector<LayerSpec> layers;
    for (const PartSpec& part : kinds[i].second) layers.push_back({{part}});
    const ModelSpec model = model_of(layers, static_cast<uint8_t>(50 + i));
    const std::string ns = std::string("turns ") + kinds[i].first;
    const auto whole = tokens_of(50 + static_cast<int>(i));
    Bench at_a = a.open(ns, model);
    for (const uint32_t turn : {900u, 1300u, 2900u}) {
      ASSERT_TRUE(at_a.store(slice(whole, 0, turn), Durability::spilled).ok());
    }
    a.written(a.stat("spills_written"));
    Machine b(settings());
    Bench at_b = b.open(ns, model);
    for (const uint32_t turn : {900u, 1300u, 2900u}) {
      SCOPED_TRACE(turn);
      Sequence asked = slice(whole, 0, turn);
      asked.resize(asked.size() + 600, 7);
      auto own = at_a.fetch(asked);
      ASSERT_TRUE(own.ok()) << own.status().to_string();
      auto got = heard(b, at_b, asked);
      ASSERT_TRUE(got.ok()) << got.status().to_string();
      EXPECT_EQ(got->tokens, own->tokens) << got->reason;
      EXPECT_EQ(own->tokens, turn);
      at_b.expect_serves(asked, *got);
    }
  }
}

TEST(RemoteDaemon, AWrongPasswordIsAMissAndIsTold) {
  KV_NEEDS_REDIS();
  RedisServer server({"--requirepass", "a password of the test"});
  const auto tokens = tokens_of(6);
  testing::TempDir dir;
  const auto with = [&](const std::string& password) {
    const std::string path = dir.path() + "/" + std::to_string(password.size());
    std::ofstream(path) << password << "\n";
    ::chmod(path.c_str(), 0600);
    return std::vector<std::string>{"nodes = [\"127.0.0.1:" + std::to_string(server.port()) + "\"]",
                                    "password_file = \"" + path + "\""};
  };
  Machine right(with("a password of the test")), wrong(with("another password of it"));
  Bench at_right = right.open();
  ASSERT_TRUE(at_right.store(tokens, Durability::spilled).ok());
  right.written(kObjects);
  Bench at_wrong = wrong.open();
  auto got = at_wrong.fetch(tokens);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->tokens, 0u);
  EXPECT_EQ(wrong.stat("remote_unreached"), 1u);
  for (int i = 0; i < 6000 && wrong.stat("remote_nodes_lost") == 0; ++i) ::usleep(10'000);
  EXPECT_GE(wrong.stat("remote_nodes_lost"), 1u);
  // Stores and hits are those of a machine without the tier.
  ASSERT_TRUE(at_wrong.store(tokens, Durability::spilled).ok());
  EXPECT_EQ(at_wrong.fetch(tokens)->tokens, kTokens - 1);
}

// Nobody waits for a tier that hangs but the one who finds it out.
TEST(RemoteDaemon, AStoppedTierCostsLocalPathsNoStep) {
  KV_NEEDS_REDIS();
  RedisServer server;
  const std::vector<std::string> nodes = {"nodes = [\"127.0.0.1:" + std::to_string(server.port()) +
                                          "\"]"};
  const auto here = tokens_of(7), nowhere = tokens_of(8);
  Machine a(nodes);
  Bench at_a = a.open();
  ASSERT_TRUE(at_a.store(here, Durability::spilled).ok());
  a.written(kObjects);
  server.signal(SIGSTOP);
  EXPECT_EQ(at_a.fetch(here)->tokens, kTokens - 1);
  EXPECT_EQ(a.stat("remote_questions"), 0u);
  EXPECT_EQ(at_a.fetch(nowhere)->tokens, 0u);
  EXPECT_EQ(a.stat("remote_questions"), 1u);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(at_a.fetch(nowhere)->tokens, 0u);
    EXPECT_EQ(at_a.fetch(here)->tokens, kTokens - 1);
  }
  EXPECT_EQ(a.stat("remote_questions"), 1u);
  EXPECT_EQ(a.stat("remote_silent"), 1u);
  server.signal(SIGCONT);
  for (int i = 0; i < 3000 && a.stat("remote_silent") == 1; ++i) {
    ::usleep(10'000);
    (void)at_a.fetch(nowhere);
  }
  EXPECT_EQ(a.stat("remote_silent"), 0u);
}

// Three prompts, more than RAM or the SSD holds, from a daemon that dies and from one on
// an empty directory. KV_PROMPT_TOKENS: another length.
TEST(RemoteDaemon, ThreePromptsBeyondRamAndSsdComeBackAlsoAfterTheEndOfEveryDaemon) {
  KV_NEEDS_REDIS();
  const char* set = std::getenv("KV_PROMPT_TOKENS");
  const auto n = static_cast<uint32_t>(set != nullptr ? std::atoi(set) : 6'000);
  const ModelSpec model = model_of({{{full_part(8, 64)}}, {{full_part(8, 64)}}});
  const uint64_t prompt = uint64_t{n} * 1700;  // bytes of its blocks, about
  // Half of the RAM's stored part is for what comes from the tier.
  const std::string ram = std::to_string(prompt * 17 / 5 + (1u << 20)),
                    ssd = std::to_string(prompt * 3 / 2 + (1u << 20));
  std::vector<std::string> use = settings();
  use.push_back("min_tokens = 1");  // else less than that is computed sooner than brought
  std::vector<std::vector<Token>> prompts;
  uint64_t objects = 0;
  const auto all_come = [&](Machine& machine, const char* what) {
    SCOPED_TRACE(what);
    Bench bench = machine.open("beyond", model);
    for (const auto& tokens : prompts) {
      auto got = heard(machine, bench, plus_one(tokens));
      // A piece that had no time on a busy machine makes a shorter hit: the rest is asked for
      // again.
      for (int i = 0; i < 100 && got.ok() && got->tokens < n; ++i) {
        ::usleep(100'000);
        got = heard(machine, bench, plus_one(tokens));
      }
      ASSERT_TRUE(got.ok()) << got.status().to_string();
      EXPECT_EQ(got->tokens, n) << got->reason;
      bench.expect_serves(plus_one(tokens), *got);
    }
  };
  {
    Machine a(use, ram, ssd);
    Bench at_a = a.open("beyond", model);
    for (int i = 0; i < 3; ++i) {
      std::mt19937 rng(70 + static_cast<unsigned>(i));
      prompts.push_back(random_tokens(rng, n));
      ASSERT_TRUE(at_a.store(prompts.back(), Durability::spilled).ok());
      a.written(objects += (n + 255) / 256);
    }
    EXPECT_LT(a.stat("ram_objects"), objects);
    EXPECT_LT(a.stat("ssd_objects"), objects * 2 / 3);
    all_come(a, "the daemon that stored them");
    EXPECT_GT(a.stat("hit_tokens_remote"), 0u);
    a.kill();
    a.start(use);
    all_come(a, "its next one, after kill -9");
    a.kill();
  }
  Machine b(use, ram, ssd);
  all_come(b, "another one on an empty directory");
}

// Last: one of the cluster's masters is gone after it.
TEST(RemoteDaemon, AMasterKilledInAFetchCostsAShorterHitAndNoWrongByte) {
  KV_NEEDS_REDIS();
  Machine a(settings());
  Bench at_a = a.open("killed");
  std::vector<std::vector<Token>> all;
  for (int i = 0; i < 6; ++i) {
    all.push_back(tokens_of(20 + i));
    ASSERT_TRUE(at_a.store(all.back(), Durability::spilled).ok());
  }
  a.written(6 * kObjects);
  ASSERT_TRUE(shards().copied());
  Machine b(settings());
  Bench at_b = b.open("killed");
  for (size_t i = 0; i < all.size(); ++i) {
    FetchRequest request = fetch_of(at_b, all[i]);
    request.wait = i != 2;  // it dies while this one is brought
    auto got = b.client().fetch(request, soon());
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    if (i == 2) shards()[2].kill();
    if (request.wait) at_b.expect_serves(all[i], *got);
  }
  // After the failover all is there that the master had copied.
  uint32_t sum = 0;
  for (int i = 0; i < 2400 && sum < 6 * (kTokens - 1); ++i) {
    sum = 0;
    for (const auto& tokens : all) {
      auto got = at_b.fetch(tokens);
      ASSERT_TRUE(got.ok());
      at_b.expect_serves(tokens, *got);
      sum += got->tokens;
    }
    if (sum < 6 * (kTokens - 1)) ::usleep(50'000);
  }
  EXPECT_EQ(sum, 6 * (kTokens - 1));
}

}  // namespace
}  // namespace kv
