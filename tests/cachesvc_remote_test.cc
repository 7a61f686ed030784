// The shared tier over one real Redis server.
#include <gtest/gtest.h>

#include "tests/support/cachesvc_redis.h"

namespace kv {
namespace {

using testing::expect_same;
using testing::free_port;
using testing::key_of;
using testing::output_of;
using testing::RedisServer;
using testing::RemoteChain;
using testing::RemoteTierRig;
using testing::sample_block;
using testing::sample_snapshot;
using testing::sample_supplement;
using testing::TempDir;
using Found = RemoteFound::State;

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
  chain.names.push_back({remote_space("tenant"), supplement.name, chain.names[20].tag});
  chain.images.push_back(raw_image(snapshot));
  chain.names.push_back({remote_space("tenant"), snapshot.name, chain.names[20].tag});
  for (const RemoteFound& f : rig.find(chain.names)) EXPECT_EQ(f.state, Found::absent);
  for (size_t i = 0; i < chain.names.size(); ++i) {
    auto put = rig.put(chain.images[i], chain.names[i]);
    ASSERT_TRUE(put.ok()) << put.status().to_string();
    EXPECT_EQ(*put, RemotePut::stored);
  }
  EXPECT_EQ(*rig.put(chain.images[0], chain.names[0]), RemotePut::existed);
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
  EXPECT_GT(std::stoll(server.cli({"TTL", remote_key(chain.names[0])})), 7 * 24 * 3600 - 100);
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

std::shared_ptr<const Profile> profile_of(uint64_t seed) {
  Profile profile;
  profile.rotation_seed = seed;
  return std::make_shared<const Profile>(profile);
}

TEST(RemoteTier, TheFirstProfileIsTheFleets) {
  KV_NEEDS_REDIS();
  RedisServer server;
  for (uint8_t sealed = 0; sealed < 2; ++sealed) {
    server.cli({"FLUSHALL"});
    RemoteTierOptions options, foreign;
    if (sealed) options.key = key_of(5);
    foreign.key = key_of(6);
    RemoteTierRig a({server.address()}, options), b({server.address()}, options),
        c({server.address()}, foreign);
    EXPECT_EQ(b.agree(nullptr).status().code(), StatusCode::not_found);
    auto first = a.agree(profile_of(1));
    ASSERT_TRUE(first.ok()) << first.status().to_string();
    EXPECT_EQ(first->id, profile_of(1)->id());
    for (const auto& own : {profile_of(2), std::shared_ptr<const Profile>()}) {
      auto second = b.agree(own);
      ASSERT_TRUE(second.ok()) << second.status().to_string();
      EXPECT_EQ(second->id, first->id);
      EXPECT_EQ(*second->profile, *profile_of(1));
    }
    EXPECT_EQ(b.agree(profile_of(2), Id{{1}})->id, profile_of(2)->id());  // another model
    EXPECT_EQ(c.agree(profile_of(3)).status().code(), StatusCode::unsupported);
    b.erase_all();  // objects alone
    const std::string key = remote_profile_key(remote_space("tenant"), {});
    EXPECT_EQ(server.cli({"EXISTS", key}), "1");
    EXPECT_GT(std::stoll(server.cli({"TTL", key})), 0);
    server.cli({"SETRANGE", key, "90", "xxxx"});
    EXPECT_EQ(b.agree(profile_of(2)).status().code(), StatusCode::corruption);
    EXPECT_EQ(b.agree(profile_of(2))->id, profile_of(2)->id());  // it made room
    for (const char* value : {"", "short"}) {
      server.cli({"SET", key, value});
      (void)b.agree(profile_of(2));
      EXPECT_TRUE(b.agree(profile_of(2)).ok());
    }
  }
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
  const RemoteName name{remote_space("tenant"), image.header.name, image.header.name.id};
  EXPECT_EQ(*rig.put(image, name), RemotePut::stored);
  auto found = rig.find({name});
  ASSERT_EQ(found[0].state, Found::there);
  ASSERT_EQ(found[0].front.parts(), 4u);
  EXPECT_EQ(server.cli({"DBSIZE"}), "4");
  auto got = rig.get(found[0]);
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  expect_same(image, *got);
  const std::string first = remote_key(name);
  server.cli({"DEL", remote_part_key(first, found[0].front.sum, 2)});
  EXPECT_EQ(rig.get(found[0]).status().code(), StatusCode::corruption);
  EXPECT_EQ(rig.find({name})[0].state, Found::absent);  // a question after it: it is unlinked
  EXPECT_EQ(server.cli({"DBSIZE"}), "0");
  EXPECT_EQ(*rig.put(image, name), RemotePut::stored);
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
  const RemoteName name{remote_space("tenant"), image.header.name, image.header.name.id};
  int stored = 0, ended = 0;
  for (int i = 0; i < 3; ++i) {
    rig.tier.put(image, name, rig.soon(), [&](Result<RemotePut> put) {
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
  const std::string key = remote_key(name);
  auto store = [&] { return *rig.put(chain.images[0], name); };
  ASSERT_EQ(*rig.put(chain.images[1], chain.names[1]), RemotePut::stored);
  const uint64_t size = make_remote_value(chain.images[0], nullptr)->front.file_bytes;
  // What a peer does to the value before it is asked for, and between question and fetch.
  const std::vector<std::vector<std::string>> deeds = {
      {"SETRANGE", key, "0", "X"},
      {"SETRANGE", key, "60", "X"},
      {"SETRANGE", key, std::to_string(size - 1), "\xff\xfe"},
      {"APPEND", key, "x"},
      {"SET", key, "short"},
      {"SET", key, std::string(200, 'y')},
      {"COPY", remote_key(chain.names[1]), key, "REPLACE"},
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
  EXPECT_EQ(*first.put(chain.images[0], chain.names[0]), RemotePut::stored);
  EXPECT_EQ(plain.find(chain.names)[0].state, Found::foreign);
  EXPECT_EQ(second.find(chain.names)[0].state, Found::foreign);
  EXPECT_EQ(first.find(chain.names)[0].state, Found::there);
  EXPECT_EQ(first.erase(chain.names).erased, 1u);
  EXPECT_EQ(*plain.put(chain.images[0], chain.names[0]), RemotePut::stored);
  EXPECT_EQ(first.find(chain.names)[0].state, Found::foreign);  // a forger needs the key
  EXPECT_EQ(plain.find(chain.names)[0].state, Found::there);
}

TEST(RemoteTier, AValueReplacedBetweenQuestionAndFetchIsAMissAndStays) {
  KV_NEEDS_REDIS();
  RedisServer server;
  std::mt19937_64 rng(17);
  RemoteTierOptions sealed;
  sealed.key = key_of(3);  // a salt for each writer: other bytes
  RemoteTierRig one({server.address()}, sealed), other({server.address()}, sealed);
  const FileImage image = large_image(rng);
  const RemoteName name{remote_space("tenant"), image.header.name, image.header.name.id};
  ASSERT_TRUE(one.put(image, name).ok());
  const RemoteFound found = one.find({name})[0];
  EXPECT_EQ(other.erase({name}).erased, 1u);
  ASSERT_TRUE(other.put(image, name).ok());
  EXPECT_EQ(one.get(found).status().code(), StatusCode::not_found);
  EXPECT_EQ(one.tier.counts().unlinked, 0u);
  EXPECT_TRUE(one.get(one.find({name})[0]).ok());
}

TEST(RemoteTier, WhatMayNotBeUnlinkedIsToldAndTheNodeIsAskedOn) {
  KV_NEEDS_REDIS();
  RedisServer server({"--user", "alice", "on", ">zebra", "~*", "+@all", "-unlink"});
  RemoteLinkOptions link;
  link.user = "alice";
  link.password = "zebra";
  RemoteTierRig rig({server.address()}, {}, link);
  std::mt19937_64 rng(18);
  RemoteChain chain(rng, 2);
  ASSERT_TRUE(rig.put(chain.images[0], chain.names[0]).ok());
  const RemoteErased erased = rig.erase(chain.names);
  EXPECT_EQ(erased.erased, 0u);
  EXPECT_EQ(erased.unreached, 1u);
  EXPECT_EQ(rig.find(chain.names)[0].state, Found::there);
}

TEST(RemoteTier, BytesUnderWayAreBounded) {
  KV_NEEDS_REDIS();
  RedisServer server;
  std::mt19937_64 rng(9);
  RemoteTierOptions small;
  small.max_bytes_in_flight = 5 << 20;
  RemoteTierRig rig({server.address()}, small);
  const FileImage image = large_image(rng);
  const RemoteName name{remote_space("tenant"), image.header.name, image.header.name.id};
  ASSERT_TRUE(rig.put(image, name).ok());
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
    auto put = rig.put(chain.images[0], chain.names[0]);
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
  // Nothing but the greeting was sent where the password was wrong.
  const std::string stats = server.cli({"--no-auth-warning", "-a", "secret", "INFO", "all"});
  const size_t exists = stats.find("cmdstat_exists:calls=2,");
  ASSERT_NE(exists, std::string::npos);
  EXPECT_NE(stats.substr(exists, stats.find('\n', exists) - exists).find("rejected_calls=0"),
            std::string::npos);
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
  const RemoteName name{remote_space("tenant"), image.header.name, image.header.name.id};
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
    if (!rig.put(image, name).ok()) return false;
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
      auto put = rig.put(chain.images[i], chain.names[i]);
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
    EXPECT_TRUE(rig.put(chain.images[i], chain.names[i]).ok());
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
  for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(rig.put(chain.images[i], chain.names[i]).ok());
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
  const RemoteName name{remote_space("tenant"), image.header.name, image.header.name.id};
  RemoteChain chain(rng, 2);
  ASSERT_TRUE(rig.put(image, name).ok());
  ASSERT_TRUE(rig.put(chain.images[0], chain.names[0]).ok());
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
  ASSERT_TRUE(rig.put(chain.images[0], chain.names[0]).ok());
  const RemoteFound found = rig.find(chain.names)[0];
  server.kill();
  EXPECT_FALSE(rig.get(found).ok());
  EXPECT_EQ(rig.put(chain.images[0], chain.names[0]).status().code(), StatusCode::unavailable);
  const RemoteErased erased = rig.erase(chain.names);
  EXPECT_EQ(erased.unreached, 3u);
  server.start();
  rig.run_until([&] { return rig.find(chain.names)[0].state == Found::absent; });
  EXPECT_EQ(*rig.put(chain.images[0], chain.names[0]), RemotePut::stored);
  EXPECT_TRUE(rig.get(rig.find(chain.names)[0]).ok());
}

/// As many names as a call takes, by the first two bytes of their ids.
std::vector<RemoteName> most_names(const RemoteSpace& space) {
  std::vector<RemoteName> names(kMaxRemoteNames);
  for (size_t i = 0; i < names.size(); ++i) {
    names[i].object.id.bytes[0] = static_cast<uint8_t>(i);
    names[i].object.id.bytes[1] = static_cast<uint8_t>(i >> 8);
  }
  for (RemoteName& name : names) name.space = space;
  return names;
}

TEST(RemoteTier, OneNodeAnswersAsManyNamesAsAQuestionMayHave) {
  KV_NEEDS_REDIS();
  RedisServer server;
  RemoteTierRig rig({server.address()});
  const std::vector<RemoteName> names = most_names({});
  for (const RemoteFound& found : rig.find(names)) ASSERT_EQ(found.state, Found::absent);
}

// Values of four parts each: more commands than a link takes.
TEST(RemoteTier, AnEraseOfAllNamesReachesEveryPart) {
  KV_NEEDS_REDIS();
  RedisServer server;
  RemoteTierRig rig({server.address()});
  std::mt19937_64 rng(19);
  const FileImage image = large_image(rng);
  ASSERT_TRUE(rig.put(image, {remote_space("tenant"), image.header.name, {}}).ok());
  const std::vector<RemoteName> names = most_names(remote_space("tenant"));
  const std::string key = remote_key(names[0]);
  const std::string sum =
      to_hex(rig.find({{remote_space("tenant"), image.header.name, {}}})[0].front.sum);
  const std::string zeros(60, '0');
  server.cli({"EVAL",
              "local front = redis.call('GETRANGE', KEYS[1], 0, 99) "
              "for i = 0, 2047 do "
              "local key = ARGV[1] .. string.format('%02x%02x', i % 256, math.floor(i / 256)) .. "
              "ARGV[2] redis.call('SET', key, front) "
              "for part = 1, 3 do redis.call('SET', key .. ARGV[3] .. part, 'x') end end",
              "1", remote_key({remote_space("tenant"), image.header.name, {}}),
              key.substr(0, key.size() - 64 - std::string(".block").size()), zeros + ".block",
              ":" + sum + "."});
  ASSERT_EQ(server.cli({"DBSIZE"}), std::to_string(4 + 4 * kMaxRemoteNames));
  const RemoteErased erased = rig.erase(names);
  EXPECT_EQ(erased.erased, kMaxRemoteNames);
  EXPECT_EQ(erased.unreached, 0u);
  EXPECT_EQ(server.cli({"DBSIZE"}), "4");
}

TEST(RemoteTier, WithoutAnyServerEveryVerbEnds) {
  RemoteTierRig rig({{"127.0.0.1", free_port()}, {"no-such-host.invalid", 1}});
  std::mt19937_64 rng(16);
  RemoteChain chain(rng, 2);
  EXPECT_EQ(rig.find(chain.names)[1].state, Found::unreached);
  EXPECT_EQ(rig.put(chain.images[0], chain.names[0]).status().code(), StatusCode::unavailable);
  EXPECT_EQ(rig.erase(chain.names).unreached, 2u);
  EXPECT_EQ(rig.erase_all().unreached, 1u);
  bool ended = false;
  rig.tier.find(chain.names, rig.soon(), [&](const std::vector<RemoteFound>&) { ended = true; });
  rig.cluster.close();
  EXPECT_TRUE(ended);
  EXPECT_EQ(rig.find(chain.names)[0].state, Found::unreached);
}

}  // namespace
}  // namespace kv
