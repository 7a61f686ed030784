// The shared tier over a real cluster of three shards with a replica each.
#include <gtest/gtest.h>

#include "tests/support/cachesvc_redis.h"

namespace kv {
namespace {

using testing::expect_same;
using testing::RedisShards;
using testing::RemoteChain;
using testing::RemoteTierRig;
using Found = RemoteFound::State;

// What is found and right of a chain; what is found and wrong fails the test.
size_t served(RemoteTierRig& rig, const RemoteChain& chain) {
  size_t right = 0;
  const auto found = rig.find(chain.names);
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i].state != Found::there) continue;
    auto got = rig.get(found[i]);
    if (!got.ok()) continue;
    expect_same(chain.images[i], *got);
    ++right;
  }
  return right;
}

std::vector<std::string> keys_of_chain(const RemoteChain& chain) {
  std::vector<std::string> keys;
  for (const RemoteName& name : chain.names) {
    keys.push_back(remote_key(name));
  }
  return keys;
}

TEST(RemoteCluster, AChainLiesInManyShardsAndIsFoundInOneQuestion) {
  KV_NEEDS_REDIS();
  RedisShards shards;
  RemoteTierRig rig({shards[5].address()});
  std::mt19937_64 rng(20);
  RemoteChain chain(rng, 160);
  for (size_t i = 0; i < chain.names.size(); ++i) {
    auto put = rig.put(chain.images[i], chain.names[i]);
    ASSERT_TRUE(put.ok()) << put.status().to_string() << shards.created();
  }
  EXPECT_EQ(served(rig, chain), 160u);
  EXPECT_EQ(rig.tier.counts().found, 160u);
  EXPECT_EQ(rig.cluster.counts().redirects, 0u);
  EXPECT_FALSE(rig.cluster.single());
  size_t with_keys = 0;
  for (size_t i = 0; i < 3; ++i) with_keys += shards[i].cli({"DBSIZE"}) != "0";
  EXPECT_EQ(with_keys, 3u);
  for (const std::string& key : keys_of_chain(chain)) {
    EXPECT_EQ(shards[0].cli({"CLUSTER", "KEYSLOT", key}), std::to_string(key_slot(key)));
    if (key > "kv3:8") break;
  }
}

// The slot's keys go to another shard half way, then all, then the slot itself.
TEST(RemoteCluster, SlotsThatMoveWhileTheyAreReadLoseNothing) {
  KV_NEEDS_REDIS();
  RedisShards shards;
  RemoteTierRig rig({shards[0].address()});
  std::mt19937_64 rng(21);
  RemoteChain chain(rng, 16);
  for (RemoteName& name : chain.names) name.tag = chain.names[0].tag;  // one slot
  for (size_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(rig.put(chain.images[i], chain.names[i]).ok());
  }
  const auto keys = keys_of_chain(chain);
  const uint16_t slot = key_slot(keys[0]);
  const std::string number = std::to_string(slot);
  const size_t from = shards.master_of(slot), to = (from + 1) % 3;
  shards[to].cli({"CLUSTER", "SETSLOT", number, "IMPORTING", shards.id_of(from)});
  shards[from].cli({"CLUSTER", "SETSLOT", number, "MIGRATING", shards.id_of(to)});
  const std::string port = std::to_string(shards[to].port());
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(shards[from].cli({"MIGRATE", "127.0.0.1", port, keys[i], "0", "5000"}), "OK");
  }
  EXPECT_EQ(served(rig, chain), 8u);
  EXPECT_GT(rig.cluster.counts().redirects, 0u);  // ASK
  // New keys go where the slot goes.
  ASSERT_TRUE(rig.put(chain.images[8], chain.names[8]).ok());
  EXPECT_EQ(shards[to].cli({"CLUSTER", "COUNTKEYSINSLOT", number}), "5");
  for (size_t i = 4; i < 8; ++i) {
    EXPECT_EQ(shards[from].cli({"MIGRATE", "127.0.0.1", port, keys[i], "0", "5000"}), "OK");
  }
  for (size_t i : {to, from}) {
    EXPECT_EQ(shards[i].cli({"CLUSTER", "SETSLOT", number, "NODE", shards.id_of(to)}), "OK");
  }
  const uint64_t before = rig.cluster.counts().redirects;
  EXPECT_EQ(served(rig, chain), 9u);
  EXPECT_GT(rig.cluster.counts().redirects, before);  // MOVED
  for (size_t i = 9; i < 16; ++i) {
    ASSERT_TRUE(rig.put(chain.images[i], chain.names[i]).ok());
  }
  const uint64_t known = rig.cluster.counts().redirects;
  EXPECT_EQ(served(rig, chain), 16u);
  EXPECT_EQ(rig.cluster.counts().redirects, known);
}

TEST(RemoteCluster, AMasterKilledInTheMiddleCostsMissesAndNoWrongByte) {
  KV_NEEDS_REDIS();
  RedisShards shards;
  RemoteLinkOptions link;
  link.answer_timeout = std::chrono::milliseconds(200);
  RemoteTierRig rig({shards[0].address(), shards[1].address()}, {}, link);
  std::mt19937_64 rng(22);
  RemoteChain chain(rng, 96, 2000), later(rng, 96, 2000);
  for (size_t i = 0; i < chain.names.size(); ++i) {
    ASSERT_TRUE(rig.put(chain.images[i], chain.names[i]).ok());
  }
  for (size_t i = 0; i < 3; ++i) ASSERT_EQ(shards[i].cli({"WAIT", "1", "5000"}), "1");
  const size_t victim = shards.master_of(key_slot(keys_of_chain(chain)[0]));
  const auto found = rig.find(chain.names);
  // Fetches and stores under way when it dies: stopped, it answers none of them.
  shards[victim].signal(SIGSTOP);
  size_t ended = 0, got = 0;
  std::vector<size_t> stored;
  for (size_t i = 0; i < 96; ++i) {
    ASSERT_EQ(found[i].state, Found::there);
    rig.tier.get(found[i], rig.soon(), [&, i](Result<FileImage> image) {
      if (image.ok()) expect_same(chain.images[i], *image);
      got += image.ok();
      ++ended;
    });
    rig.tier.put(later.images[i], later.names[i], rig.soon(), [&, i](Result<RemotePut> put) {
      if (put.ok()) stored.push_back(i);
      ++ended;
    });
  }
  rig.run_until([&] { return ended >= 20; });
  shards[victim].signal(SIGKILL);
  rig.run_until([&] { return ended == 192; });
  EXPECT_GT(rig.cluster.counts().failures, 0u);
  // The replica has what was confirmed to it, before the failover too.
  rig.run_until([&] { return served(rig, chain) == 96; });
  EXPECT_GT(rig.cluster.counts().to_replicas, 0u);
  // After the failover puts work again, by the new map.
  rig.run_until([&] {
    size_t good = 0;
    for (size_t i = 0; i < 96; ++i) good += rig.put(later.images[i], later.names[i]).ok();
    return good == 96;
  });
  EXPECT_EQ(served(rig, later), 96u);
  EXPECT_GT(rig.cluster.counts().maps, 1u);
}

TEST(RemoteCluster, AStoppedMasterIsReadAtItsReplica) {
  KV_NEEDS_REDIS();
  RedisShards shards;
  RemoteLinkOptions link;
  link.answer_timeout = std::chrono::milliseconds(100);
  RemoteTierRig rig({shards[0].address()}, {}, link);
  std::mt19937_64 rng(23);
  RemoteChain chain(rng, 48);
  for (size_t i = 0; i < chain.names.size(); ++i) {
    ASSERT_TRUE(rig.put(chain.images[i], chain.names[i]).ok());
  }
  for (size_t i = 0; i < 3; ++i) ASSERT_EQ(shards[i].cli({"WAIT", "1", "5000"}), "1");
  const size_t victim = shards.master_of(key_slot(keys_of_chain(chain)[0]));
  shards[victim].signal(SIGSTOP);
  rig.run_until([&] { return served(rig, chain) == 48; });
  EXPECT_GT(rig.cluster.counts().to_replicas, 0u);
  shards[victim].signal(SIGCONT);
  rig.run_until([&] { return served(rig, chain) == 48; });
}

TEST(RemoteCluster, ANamespaceIsErasedOnEveryNodeAndNoOther) {
  KV_NEEDS_REDIS();
  RedisShards shards;
  RemoteTierRig rig({shards[0].address()});
  std::mt19937_64 rng(26);
  RemoteChain chain(rng, 1500);  // more than one answer of each node
  RemoteName other = chain.names[0];
  other.space = remote_space("other");
  size_t stored = 0;
  for (size_t i = 0; i < chain.names.size(); ++i) {
    rig.tier.put(chain.images[i], chain.names[i], rig.soon(),
                 [&](const Result<RemotePut>& put) { stored += put.ok(); });
    if (i % 100 == 99) rig.run_until([&] { return stored == i + 1; });
  }
  // Of this one two parts.
  const FileImage large = raw_image(testing::sample_block(rng, {}, 0, 256, 900));
  ASSERT_TRUE(
      rig.put(large, {remote_space("tenant"), large.header.name, large.header.name.id}).ok());
  ASSERT_TRUE(rig.put(chain.images[0], other).ok());
  EXPECT_EQ(rig.erase_all().erased, 1501u);
  for (const RemoteFound& found : rig.find(chain.names)) EXPECT_EQ(found.state, Found::absent);
  EXPECT_EQ(rig.find({other})[0].state, Found::there);
  int keys = 0;
  for (size_t i = 0; i < 3; ++i) keys += std::stoi(shards[i].cli({"DBSIZE"}));
  EXPECT_EQ(keys, 1);
  shards[0].kill();
  const RemoteErased erased = rig.erase_all();
  EXPECT_EQ(erased.erased, 0u);
  EXPECT_EQ(erased.unreached, 1u);
}

// The master stays silent, and its connection whole: what its replica has is there.
TEST(RemoteCluster, ASlowMastersQuestionsAndValuesAreAskedOfAReplicaToo) {
  KV_NEEDS_REDIS();
  RedisShards shards;
  RemoteLinkOptions link;
  link.answer_timeout = std::chrono::minutes(2);
  RemoteTierRig rig({shards[0].address()}, {}, link, std::chrono::milliseconds(20));
  std::mt19937_64 rng(25);
  RemoteChain chain(rng, 16);
  for (RemoteName& name : chain.names) name.tag = chain.names[0].tag;  // one slot
  for (size_t i = 0; i < chain.names.size(); ++i) {
    ASSERT_TRUE(rig.put(chain.images[i], chain.names[i]).ok());
  }
  const size_t victim = shards.master_of(key_slot(keys_of_chain(chain)[0]));
  ASSERT_EQ(shards[victim].cli({"WAIT", "1", "5000"}), "1");
  rig.run_until([&] { return served(rig, chain) == 16; });
  shards[victim].signal(SIGSTOP);
  const auto found = rig.find(chain.names);
  ASSERT_EQ(found[15].state, Found::there);
  EXPECT_GE(rig.cluster.counts().hedges, 16u);
  const auto got = rig.get(found[15]);
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  expect_same(chain.images[15], *got);
  EXPECT_GT(rig.tier.bytes_in_flight(), 0u);  // the master may still write there
  shards[victim].signal(SIGCONT);
  rig.run_until([&] { return rig.tier.bytes_in_flight() == 0; });
  EXPECT_EQ(served(rig, chain), 16u);
}

TEST(RemoteCluster, WithoutOneShardTheOthersServe) {
  KV_NEEDS_REDIS();
  RedisShards shards;
  for (size_t i = 0; i < 6; ++i) {
    shards[i].cli({"CONFIG", "SET", "cluster-require-full-coverage", "no"});
  }
  RemoteLinkOptions link;
  link.answer_timeout = std::chrono::milliseconds(200);
  RemoteTierRig rig({shards[0].address(), shards[1].address()}, {}, link);
  std::mt19937_64 rng(24);
  RemoteChain chain(rng, 160);
  for (size_t i = 0; i < chain.names.size(); ++i) {
    ASSERT_TRUE(rig.put(chain.images[i], chain.names[i]).ok());
  }
  const SlotMap map = shards.map();
  size_t gone = 0;
  for (size_t i = 0; i < 6; ++i) {
    const Shard* lost = map.shard_of(0);
    const bool replica = !lost->replicas.empty() && lost->replicas[0].port == shards[i].port();
    if (lost->master.port == shards[i].port() || replica) shards[i].kill();
  }
  for (const RemoteName& name : chain.names) {
    gone += map.shard_of(key_slot(name.tag.hex())) == map.shard_of(0);
  }
  ASSERT_GT(gone, 0u);
  ASSERT_LT(gone, 160u);
  rig.run_until([&] { return served(rig, chain) == 160 - gone; });
  const RemoteErased erased = rig.erase(chain.names);
  EXPECT_EQ(erased.erased, 160 - gone);
  EXPECT_EQ(erased.unreached, gone);
  EXPECT_EQ(served(rig, chain), 0u);
}

}  // namespace
}  // namespace kv
