// The pair property of open and everything behind it: what open accepts, the socket and a restart
// serve, with the bytes that the codec makes of what was given. One daemon, a table of models.
#include "codec/float16.h"
#include "tests/support/cachesvc_server.h"

namespace kv {
namespace {

// One model under one profile, stored once.
struct ServedCase {
  std::string name;
  ModelSpec model;
  CodingSettings settings;
  uint32_t tokens = 0;
};

PartSpec with_dtype(PartSpec part, DType dtype) {
  part.dtype = dtype;
  return part;
}
PartSpec shared_part(DType dtype) {
  PartSpec part = with_dtype(full_part(1, 40), dtype);
  part.v_dim = 0;
  return part;
}
PartSpec opaque_part(SnapshotPlace place) {
  PartSpec part = state_part(place);
  part.kind = PartKind::opaque;
  return part;
}

// A layer for each codable length under each number of bits; K and V differ in length.
ServedCase every_dim() {
  ServedCase c{"every codable dim", {}, {}, 20};
  std::vector<uint32_t> dims;
  for (uint32_t dim = 32; dim <= 512; ++dim) {
    if (codable_dim(dim)) dims.push_back(dim);
  }
  EXPECT_EQ(dims.size(), 46u);
  for (uint8_t bits : {2, 3, 4, 8}) {
    for (size_t i = 0; i < dims.size(); ++i) {
      PartSpec part = full_part(1, dims[i]);
      part.v_dim = dims[dims.size() - 1 - i];
      c.settings.layers.push_back({static_cast<uint32_t>(c.model.layers.size()), bits, bits});
      c.model.layers.push_back({{part}});
    }
  }
  c.settings.block_tokens = 8;
  return c;
}

// Lengths and head counts at their limits, and odd ones, kept raw.
ServedCase raw_shapes() {
  ServedCase c{"raw shapes", {}, {}, 5};
  const std::pair<uint32_t, uint32_t> heads_and_dims[] = {
      {1, 1}, {3, 7}, {1, kMaxDim}, {kMaxHeads, 1}, {2, 33}};
  for (auto [heads, dim] : heads_and_dims) c.model.layers.push_back({{full_part(heads, dim)}});
  c.settings.block_tokens = 2;
  c.settings.k_bits = c.settings.v_bits = 0;
  return c;
}

// Every kind of part, in each of the engine's dtypes.
ServedCase every_kind(uint32_t block_tokens, DType raw, uint8_t k_bits, uint8_t v_bits) {
  ServedCase c{"kinds, blocks of " + std::to_string(block_tokens) + ", " + to_string(raw),
               {},
               {},
               2 * block_tokens + std::min(block_tokens - 1, 5u)};
  if (block_tokens > 1000) c.tokens -= block_tokens;
  const uint32_t rate = block_tokens % 2 == 0 ? 2 : 1;
  for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    c.model.layers.push_back(
        {{with_dtype(full_part(1, 36), dtype), with_dtype(window_part(5, 2), dtype),
          with_dtype(chunk_part(3), dtype), with_dtype(latent_part(), dtype),
          with_dtype(pooled_part(rate, true), dtype), shared_part(dtype),
          with_dtype(state_part(SnapshotPlace::checkpoint), dtype),
          with_dtype(state_part(SnapshotPlace::block_end), dtype)}});
  }
  c.model.layers.push_back({});  // one that shares another's
  c.model.layers.push_back(
      {{opaque_part(SnapshotPlace::checkpoint), opaque_part(SnapshotPlace::block_end),
        pooled_part(block_tokens, false)}});
  c.settings.block_tokens = block_tokens;
  c.settings.raw_dtype = raw;
  c.settings.k_bits = k_bits;
  c.settings.v_bits = v_bits;
  return c;
}

std::vector<ServedCase> every_case() {
  std::vector<ServedCase> cases = {every_dim(), raw_shapes()};
  for (DType raw : {DType::f32, DType::f16, DType::bf16}) {
    for (uint32_t block : {1u, 3u, 16u, 255u}) cases.push_back(every_kind(block, raw, 4, 3));
  }
  cases.push_back(every_kind(kMaxBlockTokens, DType::f16, 8, 2));
  cases.push_back(every_kind(16, DType::f16, 0, 0));
  for (uint32_t exact : {0u, 17u, 5000u}) {
    cases.push_back(every_kind(16, DType::bf16, 3, 8));
    cases.back().settings.exact_tokens = exact;
  }
  cases.push_back(every_kind(16, DType::f32, 2, 8));
  cases.back().settings.prefill = PrefillMode::coded;
  for (size_t i = 0; i < cases.size(); ++i) {
    cases[i].model.name = "served " + std::to_string(i);
    cases[i].model.fingerprint.bytes[0] = static_cast<uint8_t>(i + 1);
  }
  return cases;
}

using PlaneKey = std::tuple<uint16_t, uint16_t, Side, uint32_t>;
PlaneKey key_of(const Plane& p) { return {p.layer, p.part, p.side, p.first_row}; }

// A stored case: what must come back.
struct Served {
  ServedCase test;
  Sequence tokens;
  std::map<PlaneKey, Plane> planes;  ///< in the form that is stored
  std::vector<StateBlob> states;
};

class ServedTest : public ServerTest {
 protected:
  Bench open(Client& client, const ServedCase& c) {
    OpenRequest request;
    request.model = c.model;
    request.prefill = c.settings.prefill;
    auto profile = plain_profile(c.model, c.settings);
    EXPECT_TRUE(profile.ok()) << c.name << ": " << profile.status().to_string();
    request.profile = std::make_shared<const Profile>(*profile);
    auto reply = client.open(request, soon());
    EXPECT_TRUE(reply.ok()) << c.name << ": " << reply.status().to_string();
    auto codec = Codec::create(c.model, reply->profile);
    EXPECT_TRUE(codec.ok()) << codec.status().to_string();
    return {client, c.model, *reply, *codec};
  }

  void put_all(Bench& b, Served& s, const ReserveReply& reserved) {
    const uint32_t block = s.test.settings.block_tokens;
    auto hashes = prefix_hashes(s.tokens);
    for (const Need& need : reserved.needs) {
      auto put = make_put(b.model, block, s.tokens, hashes, need, reserved.reservation);
      bool whole = (need.block_index + 1) * block <= s.tokens.size();
      for (Plane& plane : put.object.planes) {
        plane = as_f32(std::move(plane));
        auto stored = whole ? b.codec->encode(plane) : b.codec->raw(plane);
        ASSERT_TRUE(stored.ok()) << stored.status().to_string();
        s.planes[key_of(plane)] = std::move(*stored);
      }
      s.states.insert(s.states.end(), put.object.states.begin(), put.object.states.end());
      Status status = b.client.put(std::move(put), soon());
      ASSERT_TRUE(status.ok()) << s.test.name << ": " << status.to_string();
    }
  }

  void store(Client& client, Served& s) {
    Bench b = open(client, s.test);
    auto reserved = b.reserve(s.tokens);
    ASSERT_TRUE(reserved.ok()) << s.test.name << ": " << reserved.status().to_string();
    ASSERT_NO_FATAL_FAILURE(put_all(b, s, *reserved));
    auto commit = b.client.commit(reserved->reservation, Durability::durable, soon());
    ASSERT_TRUE(commit.ok()) << s.test.name << ": " << commit.status().to_string();
    EXPECT_EQ(commit->level, Durability::durable) << s.test.name;
    EXPECT_TRUE(commit->lost.empty()) << s.test.name;
  }

  void expect_served(Client& client, const Served& s, const std::string& when) {
    Bench b = open(client, s.test);
    auto hit = b.fetch(plus_one(s.tokens));
    ASSERT_TRUE(hit.ok()) << s.test.name << when << hit.status().to_string();
    EXPECT_EQ(hit->tokens, s.test.tokens) << s.test.name << when << hit->reason;
    size_t planes = 0;
    for (const FetchedObject& o : hit->lease.prefix().objects) {
      for (const Plane& plane : o.object->planes) {
        auto expected = s.planes.find(key_of(plane));
        ASSERT_NE(expected, s.planes.end()) << s.test.name << when;
        EXPECT_TRUE(plane == expected->second)
            << s.test.name << when << "layer " << plane.layer << " part " << plane.part << " row "
            << plane.first_row << " has other bytes";
        ++planes;
      }
      for (const StateBlob& state : o.object->states) {
        EXPECT_NE(std::find(s.states.begin(), s.states.end(), state), s.states.end())
            << s.test.name << when;
      }
    }
    EXPECT_GT(planes, 0u) << s.test.name << when;
    auto decoded = b.fetch(plus_one(s.tokens), FetchForm::f32);
    ASSERT_TRUE(decoded.ok()) << s.test.name << when << decoded.status().to_string();
    EXPECT_EQ(decoded->tokens, s.test.tokens) << s.test.name << when;
  }
};

TEST_F(ServedTest, WhatOpenAcceptsTheSocketAndARestartServe) {
  start({"--set", "tier.ram.budget=256MiB", "--set", "tier.ssd.limit=256MiB"});
  std::vector<Served> all;
  {
    auto client = connect();
    for (ServedCase& test : every_case()) {
      Served& s = all.emplace_back(Served{std::move(test), {}, {}, {}});
      s.tokens = random_tokens(rng_, s.test.tokens);
      ASSERT_NO_FATAL_FAILURE(store(*client, s));
      expect_served(*client, s, ", stored: ");
    }
  }
  daemon_->kill();
  start({"--set", "tier.ram.budget=256MiB", "--set", "tier.ssd.limit=256MiB"});
  auto client = connect();
  for (const Served& s : all) expect_served(*client, s, ", after a restart: ");
  EXPECT_EQ(stat("quarantined"), 0u);
  EXPECT_EQ(stat("recovery_quarantined"), 0u);
}

}  // namespace
}  // namespace kv
