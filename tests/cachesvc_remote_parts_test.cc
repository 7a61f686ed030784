// The shared tier's parts: slots, breakers, names, values.
#include <gtest/gtest.h>

#include "tests/support/cachesvc_redis.h"

namespace kv {
namespace {

using testing::expect_same;
using testing::key_of;
using testing::RemoteChain;
using testing::sample_block;

TEST(RemoteSlots, AreThoseOfRedis) {
  EXPECT_EQ(key_slot("123456789"), 0x31c3);
  EXPECT_EQ(key_slot("foo{bar}x"), key_slot("bar"));
  EXPECT_EQ(key_slot("{bar}.{x}"), key_slot("bar"));
  EXPECT_EQ(key_slot("foo{{bar}}zap"), key_slot("{bar"));
  EXPECT_EQ(key_slot("foo{}{bar}"), 8363);
  EXPECT_EQ(key_slot(""), 0);
}

TEST(RemoteSlots, RedirectsAreReadAndAnythingElseIsNone) {
  const NodeAddress asked{"10.0.0.1", 6379};
  auto moved = parse_redirect("MOVED 3999 127.0.0.1:6381", asked);
  ASSERT_TRUE(moved.has_value());
  EXPECT_FALSE(moved->ask);
  EXPECT_EQ(moved->slot, 3999);
  EXPECT_EQ(moved->to, (NodeAddress{"127.0.0.1", 6381}));
  auto ask = parse_redirect("ASK 1 :7000", asked);
  ASSERT_TRUE(ask.has_value());
  EXPECT_TRUE(ask->ask);
  EXPECT_EQ(ask->to, (NodeAddress{"10.0.0.1", 7000}));
  EXPECT_EQ(parse_redirect("MOVED 1 fe80::1:7000", asked)->to.host, "fe80::1");
  for (const char* bad : {"MOVED", "MOVED 1", "MOVED 16384 a:1", "MOVED -1 a:1", "MOVED 1 a:0",
                          "ASK 1 a:65536", "ASK 1 a", "ERR MOVED 1 a:1"}) {
    EXPECT_FALSE(parse_redirect(bad, asked).has_value()) << bad;
  }
}

RespReply bulk(const std::string& text) { return {RespType::bulk, text, 0, false, {}}; }
RespReply number(int64_t n) { return {RespType::integer, "", n, false, {}}; }
RespReply list(std::vector<RespReply> items) {
  return {RespType::array, "", 0, false, std::move(items)};
}

TEST(RemoteSlots, TheMapIsWhatANodeSaysWithinBounds) {
  const NodeAddress asked{"10.0.0.1", 6379};
  auto map = SlotMap::decode(
      list({list({number(0), number(99), list({bulk("a"), number(1)}), list({bulk("b"), number(2)}),
                  list({bulk("?"), number(3)})}),
            list({number(100), number(16383), list({RespReply{}, number(4), bulk("id")})}),
            list({number(50), number(60), list({bulk("a"), number(1)})})}),
      asked);
  ASSERT_TRUE(map.ok()) << map.status().to_string();
  ASSERT_EQ(map->shards().size(), 2u);
  EXPECT_EQ(map->shard_of(55)->master, (NodeAddress{"a", 1}));
  EXPECT_EQ(map->shard_of(55)->replicas, (std::vector<NodeAddress>{{"b", 2}}));
  EXPECT_EQ(map->shard_of(16383)->master, (NodeAddress{"10.0.0.1", 4}));
  map->moved(55, {"c", 9});
  EXPECT_EQ(map->shard_of(55)->master, (NodeAddress{"c", 9}));
  EXPECT_EQ(map->shard_of(56)->master, (NodeAddress{"a", 1}));
  EXPECT_EQ(SlotMap().shard_of(0), nullptr);
  auto of = [](int64_t first, int64_t last, RespReply node) {
    return list({list({number(first), number(last), std::move(node)})});
  };
  EXPECT_FALSE(SlotMap::decode(bulk("x"), asked).ok());
  EXPECT_FALSE(SlotMap::decode(of(-1, 5, list({bulk("a"), number(1)})), asked).ok());
  EXPECT_FALSE(SlotMap::decode(of(5, 16384, list({bulk("a"), number(1)})), asked).ok());
  EXPECT_FALSE(SlotMap::decode(of(5, 4, list({bulk("a"), number(1)})), asked).ok());
  EXPECT_FALSE(SlotMap::decode(list({list({number(1), number(2)})}), asked).ok());
  std::vector<RespReply> many;
  for (int64_t i = 0; i <= static_cast<int64_t>(kMaxShards); ++i) {
    many.push_back(list({number(i), number(i), list({bulk("a"), number(i + 1)})}));
  }
  EXPECT_FALSE(SlotMap::decode(list(std::move(many)), asked).ok());
}

TEST(RemoteBreaker, EveryArrow) {
  Breaker b;
  auto now = Breaker::Clock::now();
  EXPECT_TRUE(b.allow(now));
  b.failed(now);
  b.failed(now);  // another command of the same connection
  EXPECT_EQ(b.state(), BreakerState::open);
  EXPECT_FALSE(b.allow(now + Breaker::kFirstPause / 2));
  now += Breaker::kFirstPause;
  EXPECT_TRUE(b.allow(now));
  EXPECT_EQ(b.state(), BreakerState::probing);
  EXPECT_FALSE(b.allow(now));  // one is under way
  b.failed(now);
  EXPECT_FALSE(b.allow(now + Breaker::kFirstPause));  // the pause has doubled
  now += 2 * Breaker::kFirstPause;
  EXPECT_TRUE(b.allow(now));
  b.answered();
  EXPECT_EQ(b.state(), BreakerState::closed);
  b.failed(now);
  EXPECT_TRUE(b.allow(now + Breaker::kFirstPause));  // and is short again
  for (int i = 0; i < 20; ++i) {
    b.failed(now);
    now += Breaker::kLongestPause;
    EXPECT_TRUE(b.allow(now));
  }
}

TEST(RemoteCommands, BytesUnderWayAreBoundedUntilTheirLastHolderGoes) {
  boost::asio::io_context io;
  RedisCluster cluster(io, {});
  RemoteCounts counts;
  std::shared_ptr<const void> longest;
  {
    RemoteCommands commands(cluster, {std::chrono::hours(1), 100}, counts);
    auto first = commands.charge(60), copy = first;
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(commands.charge(41), nullptr);
    EXPECT_EQ(counts.busy, 1u);
    longest = commands.charge(40);
    ASSERT_NE(longest, nullptr);
    first.reset();
    EXPECT_EQ(commands.bytes_in_flight(), 100u);
    copy.reset();
    EXPECT_EQ(commands.bytes_in_flight(), 40u);
    EXPECT_EQ(commands.charge(101), nullptr);
  }
  longest.reset();  // the network may hold it longer than the commands
}

TEST(RemoteNames, BlocksOfAGroupShareASlotAndSupplementsTheirBlocks) {
  std::mt19937_64 rng(1);
  RemoteChain chain(rng, 40);
  const std::string prefix = remote_prefix(remote_space("tenant"));
  for (size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(chain.names[i].tag, chain.images[remote_tag_depth(i)].header.name.id);
    const std::string key = remote_key(chain.names[i]);
    EXPECT_EQ(key_slot(key), key_slot(chain.names[i].tag.hex()));
    EXPECT_EQ(key_slot(remote_part_key(key, {}, 1)), key_slot(key));
  }
  EXPECT_NE(prefix, remote_prefix(remote_space("other")));
}

// REMOTE.md, "Keys": what nodes of one version agree on, byte for byte.
TEST(RemoteNames, KeysAreThoseOfTheirVersion) {
  RemoteName name{remote_space("tenant"), {}, {}};
  name.object.id.bytes[0] = 0xab;
  name.tag.bytes[31] = 0xcd;
  const std::string zeros(62, '0'), tag = "{" + zeros + "cd}:", id = "ab" + zeros;
  const std::string prefix = "kv3:e9da86d351cf9a76:";
  EXPECT_EQ(remote_key(name), prefix + tag + id + ".block");
  name.object.kind = ObjectKind::tail;
  EXPECT_EQ(remote_key(name), prefix + tag + id + ".tail");
  name.object = {ObjectKind::supplement, name.object.id, 3, 40, 256};
  EXPECT_EQ(remote_key(name), prefix + tag + id + ".3.40-256.supplement");
  RemoteSum sum{};
  sum[0] = 0x12;
  EXPECT_EQ(remote_part_key("first", sum, 7), "first:12" + std::string(30, '0') + ".7");
  EXPECT_EQ(kRemotePartBytes, 1'048'512u);
  EXPECT_EQ(remote_list_key({name.space, name.object.id, name.tag}), prefix + tag + id + ":list");
  EXPECT_EQ(remote_profile_key(name.space, name.object.id),
            "kv3.profile:e9da86d351cf9a76:{" + id + "}");
  const std::vector<std::pair<size_t, size_t>> tags = {
      {0, 0},   {1, 1},   {7, 7},   {8, 8},   {9, 8},   {15, 14},   {18, 16},
      {31, 28}, {32, 32}, {39, 32}, {40, 40}, {79, 64}, {127, 112}, {1000, 992}};
  for (const auto& [depth, of] : tags) EXPECT_EQ(remote_tag_depth(depth), of) << depth;
}

TEST(RemoteNames, EntriesOfListsAreReadBackAndNothingElseIs) {
  const std::vector<std::pair<std::string, RemoteEntry>> entries = {
      {"t 3082", {ObjectKind::tail, 3082, 0, 0, 0}},
      {"n 4294967295", {ObjectKind::snapshot, UINT32_MAX, 0, 0, 0}},
      {"s 0 3 40 256", {ObjectKind::supplement, 0, 3, 40, 256}},
      {"s 300 65535 256 300", {ObjectKind::supplement, 300, 65535, 256, 300}}};
  for (const auto& [text, entry] : entries) {
    EXPECT_EQ(to_text(entry), text);
    EXPECT_EQ(parse_remote_entry(text), entry) << text;
  }
  for (const char* bad :
       {"", "t", "t ", "t x", "t 1 ", "t  1", "t 01", "t -1", "t 4294967296", "x 1", "n 1 2", "s 1",
        "s 0 3 40", "s 0 65536 0 1", "s 0 3 40 256 1", "S 0 3 40 256", "t 1\n"}) {
    EXPECT_FALSE(parse_remote_entry(bad).has_value()) << bad;
  }
}

TEST(RemoteValue, EveryByteChangedAndEveryOtherLengthIsNotOpened) {
  std::mt19937_64 rng(2);
  const FileImage image = raw_image(sample_block(rng));
  for (const auto& key : {std::shared_ptr<const SealKey>(), key_of(1)}) {
    auto value = make_remote_value(image, key.get());
    ASSERT_TRUE(value.ok()) << value.status().to_string();
    std::vector<uint8_t> bytes;
    for (const Bytes& piece : value->part(0)) {
      bytes.insert(bytes.end(), piece.data(), piece.data() + piece.size());
    }
    ASSERT_EQ(bytes.size(), value->front.file_bytes);
    auto open = [&](const std::vector<uint8_t>& b, size_t size, const SealKey* with) {
      std::shared_ptr<uint8_t[]> copy(new uint8_t[size]);
      std::copy_n(b.begin(), size, copy.get());
      return open_remote_value(copy, size, image.header.name, with);
    };
    auto good = open(bytes, bytes.size(), key.get());
    ASSERT_TRUE(good.ok()) << good.status().to_string();
    expect_same(image, *good);
    for (size_t i = 0; i < bytes.size(); ++i) {
      std::vector<uint8_t> bad = bytes;
      bad[i] ^= static_cast<uint8_t>(1u << (i % 8));
      EXPECT_FALSE(open(bad, bad.size(), key.get()).ok()) << i;
      EXPECT_FALSE(open(bytes, i, key.get()).ok()) << i;
    }
    EXPECT_EQ(open(bytes, bytes.size(), key_of(2).get()).status().code(), StatusCode::unsupported);
  }
}

TEST(RemoteValue, OfAnotherNameIsDamageOrDoesNotOpen) {
  std::mt19937_64 rng(3);
  const FileImage a = raw_image(sample_block(rng)), b = raw_image(sample_block(rng));
  for (const auto& key : {std::shared_ptr<const SealKey>(), key_of(1)}) {
    auto value = make_remote_value(a, key.get());
    ASSERT_TRUE(value.ok());
    std::shared_ptr<uint8_t[]> copy(new uint8_t[value->front.file_bytes]);
    size_t at = 0;
    for (const Bytes& piece : value->pieces) {
      std::copy_n(piece.data(), piece.size(), copy.get() + at);
      at += piece.size();
    }
    auto opened = open_remote_value(copy, at, b.header.name, key.get());
    EXPECT_EQ(opened.status().code(), StatusCode::corruption);
  }
}

}  // namespace
}  // namespace kv
