// The shared tier's parts, and the tier over one real Redis server.
#include <gtest/gtest.h>

#include "tests/support/cachesvc_redis.h"

namespace kv {
namespace {

using testing::expect_same;
using testing::free_port;
using testing::output_of;
using testing::RedisServer;
using testing::RemoteChain;
using testing::RemoteTierRig;
using testing::sample_block;
using testing::sample_snapshot;
using testing::sample_supplement;
using testing::TempDir;
using Found = RemoteFound::State;

std::shared_ptr<const SealKey> key_of(uint8_t byte) {
  std::array<uint8_t, kSealKeyBytes> secret;
  secret.fill(byte);
  return *SealKey::create(secret);
}

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

TEST(RemoteNames, SixteenBlocksOfAPathShareASlotAndSupplementsTheirBlocks) {
  std::mt19937_64 rng(1);
  RemoteChain chain(rng, 40);
  const std::string prefix = remote_prefix("tenant");
  for (size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(chain.names[i].tag, chain.images[i / 16 * 16].header.name.id);
    const std::string key = remote_key(prefix, chain.names[i]);
    EXPECT_EQ(key_slot(key), key_slot(chain.names[i].tag.hex()));
    EXPECT_EQ(key_slot(remote_part_key(key, {}, 1)), key_slot(key));
  }
  EXPECT_NE(remote_prefix("tenant"), remote_prefix("other"));
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

void round_trip(const std::shared_ptr<const SealKey>& key) {
  RedisServer server;
  RemoteTierOptions options;
  options.key = key;
  RemoteTierRig rig({server.address()}, options);
  std::mt19937_64 rng(4);
  RemoteChain chain(rng, 40);
  const Object block = chain.images[20].header;
  Object supplement = sample_supplement(rng, block, 1, block.first_token, block.first_token + 5);
  Object snapshot = sample_snapshot(rng, block, 3);
  chain.images.push_back(raw_image(supplement));
  chain.names.push_back({supplement.name, chain.names[20].tag});
  chain.images.push_back(raw_image(snapshot));
  chain.names.push_back({snapshot.name, chain.names[20].tag});
  for (const RemoteFound& f : rig.find(chain.names)) EXPECT_EQ(f.state, Found::absent);
  for (size_t i = 0; i < chain.names.size(); ++i) {
    auto put = rig.put(chain.images[i], chain.names[i].tag);
    ASSERT_TRUE(put.ok()) << put.status().to_string();
    EXPECT_EQ(*put, RemotePut::stored);
  }
  EXPECT_EQ(*rig.put(chain.images[0], chain.names[0].tag), RemotePut::existed);
  RemoteTierRig other({server.address()}, options);  // another node
  auto found = other.find(chain.names);
  ASSERT_EQ(found.size(), chain.names.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].state, Found::there);
    EXPECT_EQ(found[i].name.object, chain.names[i].object);
    auto got = other.get(found[i]);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    expect_same(chain.images[i], *got);
  }
  EXPECT_TRUE(other.cluster.single());
  EXPECT_EQ(other.tier.counts().hits, chain.names.size());
  EXPECT_EQ(other.tier.bytes_in_flight(), 0u);
  EXPECT_GT(std::stoll(server.cli({"TTL", remote_key(remote_prefix("tenant"), chain.names[0])})),
            7 * 24 * 3600 - 100);
  RemoteErased erased = other.erase(chain.names);
  EXPECT_EQ(erased.erased, chain.names.size());
  EXPECT_EQ(erased.unreached, 0u);
  EXPECT_EQ(server.cli({"DBSIZE"}), "0");
  EXPECT_EQ(other.get(found[0]).status().code(), StatusCode::not_found);
}

TEST(RemoteTier, WhatOneNodePutAnotherOneFindsInOneQuestion) {
  KV_NEEDS_REDIS();
  round_trip(nullptr);
}

TEST(RemoteTier, SealedToo) {
  KV_NEEDS_REDIS();
  round_trip(key_of(7));
}

// A block of over three parts.
FileImage large_image(std::mt19937_64& rng) {
  return raw_image(sample_block(rng, {}, 0, 256, 1800));
}

TEST(RemoteTier, ALargeValueLiesInPartsAndIsAMissWithoutOne) {
  KV_NEEDS_REDIS();
  RedisServer server;
  RemoteTierRig rig({server.address()});
  std::mt19937_64 rng(5);
  const FileImage image = large_image(rng);
  const RemoteName name{image.header.name, image.header.name.id};
  EXPECT_EQ(*rig.put(image, name.tag), RemotePut::stored);
  auto found = rig.find({name});
  ASSERT_EQ(found[0].state, Found::there);
  ASSERT_EQ(found[0].front.parts(), 4u);
  EXPECT_EQ(server.cli({"DBSIZE"}), "4");
  auto got = rig.get(found[0]);
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  expect_same(image, *got);
  // Another writer of the same id: its parts are its own, and its first one comes too late.
  const std::string first = remote_key(remote_prefix("tenant"), name);
  server.cli({"DEL", remote_part_key(first, found[0].front.sum, 2)});
  EXPECT_EQ(rig.get(found[0]).status().code(), StatusCode::corruption);
  EXPECT_EQ(rig.find({name})[0].state, Found::absent);  // a question after it: it is unlinked
  EXPECT_EQ(server.cli({"DBSIZE"}), "0");
  EXPECT_EQ(*rig.put(image, name.tag), RemotePut::stored);
  EXPECT_EQ(rig.erase({name}).erased, 1u);
  EXPECT_EQ(server.cli({"DBSIZE"}), "0");
}

TEST(RemoteTier, TwoWritersOfOneIdNeverMixTheirParts) {
  KV_NEEDS_REDIS();
  RedisServer server;
  RemoteTierOptions sealed;
  sealed.key = key_of(9);  // a salt for each writer: other bytes
  RemoteTierRig rig({server.address()}, sealed);
  std::mt19937_64 rng(6);
  const FileImage image = large_image(rng);
  const RemoteName name{image.header.name, image.header.name.id};
  int stored = 0, ended = 0;
  for (int i = 0; i < 3; ++i) {
    rig.tier.put(image, name.tag, rig.soon(), [&](Result<RemotePut> put) {
      stored += put.ok() && *put == RemotePut::stored;
      ++ended;
    });
  }
  rig.run_until([&] { return ended == 3; });
  EXPECT_EQ(stored, 1);
  auto got = rig.get(rig.find({name})[0]);
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  expect_same(image, *got);
}

TEST(RemoteTier, DamagedAndTruncatedAndSwappedValuesAreMissesAndMakeRoom) {
  KV_NEEDS_REDIS();
  RedisServer server;
  RemoteTierRig rig({server.address()});
  std::mt19937_64 rng(7);
  RemoteChain chain(rng, 2);
  const RemoteName& name = chain.names[0];
  const std::string key = remote_key(remote_prefix("tenant"), name);
  auto store = [&] { return *rig.put(chain.images[0], name.tag); };
  ASSERT_EQ(*rig.put(chain.images[1], chain.names[1].tag), RemotePut::stored);
  const uint64_t size = make_remote_value(chain.images[0], nullptr)->front.file_bytes;
  // What a peer does to the value before it is asked for, and between question and fetch.
  const std::vector<std::vector<std::string>> deeds = {
      {"SETRANGE", key, "0", "X"},
      {"SETRANGE", key, "60", "X"},
      {"SETRANGE", key, std::to_string(size - 1), "\xff\xfe"},
      {"APPEND", key, "x"},
      {"SET", key, "short"},
      {"SET", key, std::string(200, 'y')},
      {"COPY", remote_key(remote_prefix("tenant"), chain.names[1]), key, "REPLACE"},
  };
  uint64_t misses = 0;
  for (const auto& deed : deeds) {
    for (bool between : {false, true}) {
      ASSERT_EQ(store(), RemotePut::stored) << deed[0];
      RemoteFound found = rig.find({name})[0];
      ASSERT_EQ(found.state, Found::there);
      server.cli(deed);
      if (!between) found = rig.find({name})[0];
      Status why = found.state == Found::there ? rig.get(found).status() : corruption("front");
      EXPECT_FALSE(why.ok()) << deed[0];
      misses += why.code() == StatusCode::corruption;
      // Either it is gone, or it is another whole value of its own front, which the next one finds.
      if (why.code() == StatusCode::not_found) {
        EXPECT_EQ(rig.get(rig.find({name})[0]).status().code(), StatusCode::corruption);
      }
      EXPECT_EQ(rig.find({name})[0].state, Found::absent) << deed[0];
    }
  }
  EXPECT_GT(misses, 8u);
  // A key of another type is no value either.
  server.cli({"RPUSH", key, "a"});
  EXPECT_EQ(rig.find({name})[0].state, Found::unreached);
}

TEST(RemoteTier, ValuesOfAnotherKeyAreMissesAndStay) {
  KV_NEEDS_REDIS();
  RedisServer server;
  std::mt19937_64 rng(8);
  RemoteChain chain(rng, 1);
  RemoteTierOptions one, other;
  one.key = key_of(1);
  other.key = key_of(2);
  RemoteTierRig plain({server.address()}), first({server.address()}, one),
      second({server.address()}, other);
  EXPECT_EQ(*first.put(chain.images[0], chain.names[0].tag), RemotePut::stored);
  EXPECT_EQ(plain.find(chain.names)[0].state, Found::foreign);
  EXPECT_EQ(second.find(chain.names)[0].state, Found::foreign);
  EXPECT_EQ(first.find(chain.names)[0].state, Found::there);
  EXPECT_EQ(first.erase(chain.names).erased, 1u);
  EXPECT_EQ(*plain.put(chain.images[0], chain.names[0].tag), RemotePut::stored);
  EXPECT_EQ(first.find(chain.names)[0].state, Found::foreign);  // a forger needs the key
  EXPECT_EQ(plain.find(chain.names)[0].state, Found::there);
}

TEST(RemoteTier, BytesUnderWayAreBounded) {
  KV_NEEDS_REDIS();
  RedisServer server;
  std::mt19937_64 rng(9);
  RemoteTierOptions small;
  small.max_bytes_in_flight = 5 << 20;
  RemoteTierRig rig({server.address()}, small);
  const FileImage image = large_image(rng);
  const RemoteName name{image.header.name, image.header.name.id};
  ASSERT_TRUE(rig.put(image, name.tag).ok());
  const RemoteFound found = rig.find({name})[0];
  int good = 0, busy = 0;
  for (int i = 0; i < 3; ++i) {
    rig.tier.get(found, rig.soon(), [&](Result<FileImage> got) {
      good += got.ok();
      busy += got.status().code() == StatusCode::busy;
    });
  }
  EXPECT_EQ(busy, 2);
  rig.run_until([&] { return good == 1; });
  EXPECT_TRUE(rig.get(found).ok());
  EXPECT_EQ(rig.tier.bytes_in_flight(), 0u);
}

TEST(RemoteTier, PasswordsRightAndWrong) {
  KV_NEEDS_REDIS();
  RedisServer server({"--requirepass", "secret", "--user", "alice", "on", ">zebra", "~*", "+@all"});
  std::mt19937_64 rng(10);
  RemoteChain chain(rng, 1);
  auto state = [&](const std::string& user, const std::string& password) {
    RemoteLinkOptions link;
    link.user = user;
    link.password = password;
    RemoteTierRig rig({server.address()}, {}, link);
    auto put = rig.put(chain.images[0], chain.names[0].tag);
    const Found found = rig.find(chain.names)[0].state;
    EXPECT_EQ(put.ok(), found == Found::there) << put.status().to_string();
    if (!put.ok()) {
      EXPECT_NE(rig.cluster.nodes()[0].last_error, "");
      EXPECT_EQ(put.status().message().find("zebra"), std::string::npos);
    }
    return found;
  };
  EXPECT_EQ(state("", "secret"), Found::there);
  EXPECT_EQ(state("alice", "zebra"), Found::there);
  EXPECT_EQ(state("alice", "secret"), Found::unreached);
  EXPECT_EQ(state("", "not zebra"), Found::unreached);
  EXPECT_EQ(state("", ""), Found::unreached);
}

// A certificate authority, and certificates of it, made by openssl.
struct Certificates {
  TempDir dir;
  std::string at(const char* name) const { return dir.path() + "/" + name; }
  void authority(const char* name) {
    output_of({"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
               "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=authority",
               "-keyout", at(name) + ".key", "-out", at(name) + ".crt"});
  }
  void node(const char* name, const char* by) {
    output_of({"openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
               "-nodes", "-subj", "/CN=redis.example", "-keyout", at(name) + ".key", "-out",
               at(name) + ".csr"});
    output_of({"openssl", "x509", "-req", "-in", at(name) + ".csr", "-CA", at(by) + ".crt",
               "-CAkey", at(by) + ".key", "-CAcreateserial", "-days", "2", "-out",
               at(name) + ".crt"});
  }
};

TEST(RemoteTier, TlsRightAndWrong) {
  KV_NEEDS_REDIS();
  Certificates c;
  c.authority("ca");
  c.authority("other");
  c.node("node", "ca");
  c.node("mine", "ca");
  c.node("stranger", "other");
  RedisServer server({"--tls-cert-file", c.at("node.crt"), "--tls-key-file", c.at("node.key"),
                      "--tls-ca-cert-file", c.at("ca.crt"), "--requirepass", "secret"},
                     true);
  std::mt19937_64 rng(11);
  const FileImage image = large_image(rng);
  const RemoteName name{image.header.name, image.header.name.id};
  auto works = [&](const char* ca, const char* cert, const std::string& tls_name) {
    RemoteLinkOptions link;
    link.password = "secret";
    link.tls_name = tls_name;
    if (ca != nullptr) {
      auto tls = remote_tls(c.at(ca), cert == nullptr ? "" : c.at(cert) + ".crt",
                            cert == nullptr ? "" : c.at(cert) + ".key");
      EXPECT_TRUE(tls.ok()) << tls.status().to_string();
      link.tls = *tls;
    }
    RemoteTierRig rig({server.address()}, {}, link);
    if (!rig.put(image, name.tag).ok()) return false;
    auto got = rig.get(rig.find({name})[0]);
    if (got.ok()) expect_same(image, *got);
    return got.ok();
  };
  EXPECT_TRUE(works("ca.crt", "mine", ""));
  EXPECT_TRUE(works("ca.crt", "mine", "redis.example"));
  EXPECT_FALSE(works("ca.crt", "mine", "elsewhere.example"));
  EXPECT_FALSE(works("other.crt", "mine", ""));   // the node's is of another authority
  EXPECT_FALSE(works("ca.crt", "stranger", ""));  // ours is
  EXPECT_FALSE(works("ca.crt", nullptr, ""));     // the node asks for ours
  EXPECT_FALSE(works(nullptr, nullptr, ""));      // plain, where TLS is spoken
  EXPECT_EQ(remote_tls(c.at("none.crt"), "", "").status().code(), StatusCode::invalid_argument);
}

TEST(RemoteTier, AFullEngineRefusesOrEvictsAndReadsGoOn) {
  KV_NEEDS_REDIS();
  std::mt19937_64 rng(12);
  RemoteChain chain(rng, 60, 400);  // 100 KiB each
  {
    RedisServer server({"--maxmemory", "3mb", "--maxmemory-policy", "noeviction"});
    RemoteTierRig rig({server.address()});
    size_t stored = 0;
    for (size_t i = 0; i < chain.names.size(); ++i) {
      auto put = rig.put(chain.images[i], chain.names[i].tag);
      stored += put.ok();
    }
    EXPECT_GT(stored, 5u);
    EXPECT_EQ(rig.tier.counts().refused_full, chain.names.size() - stored);
    EXPECT_TRUE(rig.get(rig.find(chain.names)[0]).ok());
    EXPECT_EQ(rig.cluster.nodes()[0].breaker, BreakerState::closed);
  }
  RedisServer server({"--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru"});
  RemoteTierRig rig({server.address()});
  for (size_t i = 0; i < chain.names.size(); ++i) {
    EXPECT_TRUE(rig.put(chain.images[i], chain.names[i].tag).ok());
  }
  size_t there = 0;
  for (const RemoteFound& found : rig.find(chain.names)) {
    if (found.state == Found::there && rig.get(found).ok()) ++there;
  }
  EXPECT_GT(there, 5u);
  EXPECT_LT(there, chain.names.size());
}

TEST(RemoteTier, AStoppedServerIsAMissAtOnceOnceItIsKnownAndServesAfterIt) {
  KV_NEEDS_REDIS();
  RedisServer server;
  RemoteLinkOptions link;
  link.answer_timeout = std::chrono::milliseconds(100);
  RemoteTierRig rig({server.address()}, {}, link);
  std::mt19937_64 rng(13);
  RemoteChain chain(rng, 3);
  for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(rig.put(chain.images[i], chain.names[i].tag).ok());
  server.signal(SIGSTOP);
  EXPECT_EQ(rig.find(chain.names)[2].state, Found::unreached);
  ASSERT_EQ(rig.cluster.nodes()[0].breaker, BreakerState::open);
  bool answered = false;  // before the loop runs: no timer is waited for
  rig.tier.find(chain.names, rig.soon(), [&](const std::vector<RemoteFound>& found) {
    answered = found[0].state == Found::unreached;
  });
  EXPECT_TRUE(answered);
  server.signal(SIGCONT);
  rig.run_until([&] { return rig.find(chain.names)[0].state == Found::there; });
  EXPECT_EQ(rig.cluster.nodes()[0].breaker, BreakerState::closed);
}

TEST(RemoteTier, AnAnswerAfterItsDeadlineIsNobodyElses) {
  KV_NEEDS_REDIS();
  RedisServer server;
  RemoteLinkOptions link;
  link.answer_timeout = std::chrono::minutes(1);
  RemoteTierRig rig({server.address()}, {}, link);
  std::mt19937_64 rng(14);
  const FileImage image = large_image(rng);
  const RemoteName name{image.header.name, image.header.name.id};
  RemoteChain chain(rng, 2);
  ASSERT_TRUE(rig.put(image, name.tag).ok());
  ASSERT_TRUE(rig.put(chain.images[0], chain.names[0].tag).ok());
  const RemoteFound found = rig.find({name})[0];
  const RemoteFound small = rig.find(chain.names)[0];
  server.signal(SIGSTOP);
  rig.patience = std::chrono::milliseconds(20);
  EXPECT_EQ(rig.get(found).status().code(), StatusCode::deadline_exceeded);
  EXPECT_GT(rig.tier.bytes_in_flight(), 0u);  // the network may still write there
  EXPECT_EQ(rig.find(chain.names)[0].state, Found::unreached);
  server.signal(SIGCONT);
  rig.patience = std::chrono::seconds(20);
  auto got = rig.get(small);
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  expect_same(chain.images[0], *got);
  EXPECT_EQ(rig.find(chain.names)[1].state, Found::absent);
  EXPECT_EQ(rig.tier.bytes_in_flight(), 0u);
}

TEST(RemoteTier, AServerThatIsKilledAndReturnsEmptyIsFilledAgain) {
  KV_NEEDS_REDIS();
  RedisServer server;
  RemoteTierRig rig({server.address()});
  std::mt19937_64 rng(15);
  RemoteChain chain(rng, 3);
  ASSERT_TRUE(rig.put(chain.images[0], chain.names[0].tag).ok());
  const RemoteFound found = rig.find(chain.names)[0];
  server.kill();
  EXPECT_FALSE(rig.get(found).ok());
  EXPECT_EQ(rig.put(chain.images[0], chain.names[0].tag).status().code(), StatusCode::unavailable);
  const RemoteErased erased = rig.erase(chain.names);
  EXPECT_EQ(erased.unreached, 3u);
  server.start();
  rig.run_until([&] { return rig.find(chain.names)[0].state == Found::absent; });
  EXPECT_EQ(*rig.put(chain.images[0], chain.names[0].tag), RemotePut::stored);
  EXPECT_TRUE(rig.get(rig.find(chain.names)[0]).ok());
}

TEST(RemoteTier, WithoutAnyServerEveryVerbEnds) {
  RemoteTierRig rig({{"127.0.0.1", free_port()}, {"no-such-host.invalid", 1}});
  std::mt19937_64 rng(16);
  RemoteChain chain(rng, 2);
  EXPECT_EQ(rig.find(chain.names)[1].state, Found::unreached);
  EXPECT_EQ(rig.put(chain.images[0], chain.names[0].tag).status().code(), StatusCode::unavailable);
  EXPECT_EQ(rig.erase(chain.names).unreached, 2u);
  bool ended = false;
  rig.tier.find(chain.names, rig.soon(), [&](const std::vector<RemoteFound>&) { ended = true; });
  rig.cluster.close();
  EXPECT_TRUE(ended);
  EXPECT_EQ(rig.find(chain.names)[0].state, Found::unreached);
}

}  // namespace
}  // namespace kv
