// Models, rows and checks shared by the tests of the cache. Every row is a function of the tokens
// through its position, so a row served for the wrong prefix never compares equal.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>
#include <string>

#include "cachesvc/tiered_cache.h"
#include "codec/codec.h"
#include "codec/float16.h"
#include "codec/transform.h"
#include "index/restorable.h"
#include "tests/support/transform_profile.h"

namespace kv {

inline Deadline soon() { return deadline_in(std::chrono::seconds(60)); }

using Sequence = std::vector<Token>;

/// A query that all of `tokens` can be served for: one more is left to compute.
inline Sequence plus_one(Sequence tokens) {
  tokens.push_back(-1);
  return tokens;
}

/// A directory of its own, gone with the test.
class TempDir {
 public:
  TempDir() {
    std::string pattern = std::filesystem::temp_directory_path() / "kv-cachesvc-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;  // owns the directory
  TempDir& operator=(const TempDir&) = delete;
  std::string store() const { return path_ + "/store"; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline PartSpec latent_part() {
  PartSpec p;
  p.kind = PartKind::latent;
  p.heads = 1;
  p.k_dim = 24;
  return p;
}

inline PartSpec full_part(uint32_t heads = 2, uint32_t dim = 32) {
  PartSpec p;
  p.heads = heads;
  p.k_dim = p.v_dim = dim;
  return p;
}
inline PartSpec window_part(uint32_t window, uint32_t keep) {
  PartSpec p = full_part(1);
  p.kind = PartKind::window;
  p.window = window;
  p.keep = keep;
  return p;
}
inline PartSpec chunk_part(uint32_t chunk) {
  PartSpec p = full_part(1);
  p.kind = PartKind::chunk;
  p.chunk = chunk;
  return p;
}
inline PartSpec pooled_part(uint32_t rate, bool overlap) {
  PartSpec p;
  p.kind = PartKind::pooled;
  p.heads = 1;
  p.k_dim = 16;
  p.rate = rate;
  p.overlap = overlap;
  return p;
}
inline PartSpec state_part(SnapshotPlace place) {
  PartSpec p;
  p.kind = PartKind::state;
  p.snapshot = place;
  return p;
}
inline ModelSpec model_of(std::vector<LayerSpec> layers, uint8_t fingerprint = 7) {
  ModelSpec m;
  m.name = "test-" + std::to_string(fingerprint);
  m.fingerprint.bytes[0] = fingerprint;
  m.layers = std::move(layers);
  return m;
}
inline ModelSpec plain_model(uint32_t layers = 2, uint8_t fingerprint = 7) {
  return model_of(std::vector<LayerSpec>(layers, LayerSpec{{full_part()}}), fingerprint);
}

/// `bits` may be kTransformWord.
inline std::shared_ptr<const Profile> make_profile(const ModelSpec& model, uint8_t bits,
                                                   uint32_t block_tokens = 16) {
  CodingSettings settings;
  settings.k_bits = settings.v_bits = bits == kTransformWord ? 0 : bits;
  settings.block_tokens = block_tokens;
  auto profile = plain_profile(model, settings);
  EXPECT_TRUE(profile.ok()) << profile.status().to_string();
  if (bits == kTransformWord) *profile = with_transforms(*profile, model);
  return std::make_shared<const Profile>(*profile);
}

inline std::vector<Token> random_tokens(std::mt19937& rng, size_t n, int alphabet = 50'000) {
  std::vector<Token> out(n);
  for (Token& t : out) t = static_cast<Token>(rng() % static_cast<uint32_t>(alphabet));
  return out;
}

inline Sequence slice(const Sequence& tokens, size_t first, size_t end) {
  return {tokens.begin() + static_cast<long>(first), tokens.begin() + static_cast<long>(end)};
}

/// hash[i] stands for tokens [0, i].
inline std::vector<uint64_t> prefix_hashes(const std::vector<Token>& tokens) {
  std::vector<uint64_t> out;
  uint64_t h = 0x9E3779B97F4A7C15ull;
  for (Token t : tokens) {
    h = (h ^ static_cast<uint32_t>(t)) * 0xD6E8FEB86659FD93ull;
    h ^= h >> 32;
    out.push_back(h);
  }
  return out;
}

inline uint64_t mix(uint64_t h, uint64_t layer, uint64_t part, uint64_t side, uint64_t i) {
  uint64_t x = h + layer * 0x9E37 + part * 0x85EB + side * 0xC2B2 + i * 0x27D4EB2F165667C5ull;
  x ^= x >> 31;
  x *= 0x94D049BB133111EBull;
  return x ^ (x >> 29);
}

/// A value in (-2, 2) that f16 holds exactly.
inline uint16_t half_value(uint64_t x) {
  uint32_t mantissa = static_cast<uint32_t>(x) & 0x3FF, exponent = 12 + ((x >> 12) % 4);
  return static_cast<uint16_t>(((x >> 20) & 1) << 15 | exponent << 10 | mantissa);
}

/// Rows [first, end) of one side as the engine would give them, f16.
inline Plane exact_rows(const ModelSpec& model, const std::vector<uint64_t>& hashes, uint16_t layer,
                        uint16_t part, const SideSpec& side, uint32_t first, uint32_t end) {
  const PartSpec& spec = model.layers[layer].parts[part];
  uint32_t rate = spec.kind == PartKind::pooled ? spec.rate : 1;
  Plane p;
  p.layer = layer;
  p.part = part;
  p.side = side.side;
  p.heads = side.heads;
  p.dim = side.dim;
  p.first_row = first;
  if (end > first) p.runs = {{RunForm::exact, end - first}};
  std::vector<uint16_t> values;
  for (uint32_t row = first; row < end; ++row) {
    uint64_t h = hashes[(row + 1) * rate - 1];
    for (uint32_t i = 0; i < side.heads * side.dim; ++i) {
      values.push_back(half_value(mix(h, layer, part, static_cast<uint64_t>(side.side), i)));
    }
  }
  std::vector<uint8_t> bytes(values.size() * 2);
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  p.bytes = Bytes::owning(std::move(bytes));
  return p;
}

inline StateBlob state_at(const std::vector<uint64_t>& hashes, uint16_t layer, uint16_t part,
                          uint32_t n) {
  std::vector<uint8_t> bytes(48);
  for (size_t i = 0; i < bytes.size(); i += 2) {
    uint16_t value = half_value(mix(hashes[n - 1], layer, part, 9, i));
    std::memcpy(&bytes[i], &value, 2);
  }
  return {layer, part, Bytes::owning(std::move(bytes))};
}

/// What `need` asks for; hashes[i] stands for tokens [0, i].
inline PutRequest make_put(const ModelSpec& model, uint32_t block_tokens,
                           const std::vector<Token>& tokens, const std::vector<uint64_t>& hashes,
                           const Need& need, uint64_t reservation) {
  auto groups = part_groups(model);
  PutRequest put;
  put.reservation = reservation;
  Object& o = put.object;
  o.name.kind = need.kind;
  o.first_token = need.block_index * block_tokens;
  auto add_rows = [&](PartGroup::Member m, uint32_t first, uint32_t end) {
    for (const SideSpec& side : sides_of(model.layers[m.layer].parts[m.part])) {
      o.planes.push_back(exact_rows(model, hashes, m.layer, m.part, side, first, end));
    }
  };
  if (need.kind == ObjectKind::supplement) {
    o.name.group = need.group;
    o.name.first_row = need.first_row;
    o.name.end_row = need.end_row;
    for (auto m : groups[need.group].members) {
      if (need.first_row < need.end_row)
        add_rows(m, need.first_row, need.end_row);
      else
        o.states.push_back(state_at(hashes, m.layer, m.part, need.end_row));
    }
    return put;
  }
  uint32_t end = need.end_row;
  if (need.kind == ObjectKind::snapshot) {
    o.name.end_row = end;
    if (end % block_tokens) o.tokens.assign(tokens.begin() + o.first_token, tokens.begin() + end);
  }
  for (const auto& g : groups) {
    for (auto m : g.members) {
      if (need.kind == ObjectKind::snapshot) {
        bool checkpoint = !g.spec.has_rows() && g.spec.snapshot == SnapshotPlace::checkpoint;
        if (checkpoint) o.states.push_back(state_at(hashes, m.layer, m.part, end));
      } else if (g.spec.has_rows() && g.spec.rows_in_block()) {
        uint32_t rate = g.spec.kind == PartKind::pooled ? g.spec.rate : 1;
        if (need.first_row / rate < end / rate) add_rows(m, need.first_row / rate, end / rate);
      }
    }
  }
  return put;
}

inline PutRequest make_put(const ModelSpec& model, uint32_t block_tokens,
                           const std::vector<Token>& tokens, const Need& need,
                           uint64_t reservation) {
  return make_put(model, block_tokens, tokens, prefix_hashes(tokens), need, reservation);
}

/// The same f16 values as f32, which any part takes.
inline Plane as_f32(Plane plane) {
  std::vector<float> values(plane.bytes.size() / 2);
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half;
    std::memcpy(&half, plane.bytes.data() + 2 * i, 2);
    values[i] = half_to_float(half);
  }
  auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  plane.bytes = Bytes::copy_of({bytes, values.size() * sizeof(float)});
  plane.dtype = DType::f32;
  return plane;
}

inline uint64_t stat_of(Client& client, const std::string& name) {
  auto reply = client.stats(soon());
  EXPECT_TRUE(reply.ok());
  for (auto& [key, value] : reply->values) {
    if (key == name) return value;
  }
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

/// One exact row as a stream of its own: a row's integers depend on it alone, so that all streams
/// that have it give the same values.
inline Plane stream_of(const Codec& codec, const Plane& exact) {
  const auto& coder = codec.side(exact.layer, exact.part, exact.side)->coder;
  const Plane floats = *codec.decoded(exact, DType::f32);
  std::vector<float> values(coder->values());
  std::memcpy(values.data(), floats.bytes.data(), floats.bytes.size());
  auto stream = coder->encode(values, exact.first_row);
  EXPECT_TRUE(stream.has_value());
  Plane out = exact;
  out.runs = {{RunForm::stream, 1, static_cast<uint32_t>(stream->size()), 0, 1}};
  out.bytes = Bytes::owning(std::move(*stream));
  return out;
}

/// A client with one model open, and the checks.
struct Bench {
  Client& client;
  ModelSpec model;
  OpenReply opened;
  std::shared_ptr<const Codec> codec;

  static Bench open(Client& client, const ModelSpec& model,
                    std::shared_ptr<const Profile> profile = nullptr) {
    OpenRequest request;
    request.model = model;
    request.profile = std::move(profile);
    auto reply = client.open(request, soon());
    EXPECT_TRUE(reply.ok()) << reply.status().to_string();
    auto codec = Codec::create(model, reply->profile);
    EXPECT_TRUE(codec.ok()) << codec.status().to_string();
    return {client, model, *reply, *codec};
  }

  Result<CommitReply> store(const std::vector<Token>& tokens,
                            Durability wait_for = Durability::accepted, bool welcome = true) {
    KV_ASSIGN_OR_RETURN(ReserveReply reserved, reserve(tokens));
    for (const Need& need : reserved.needs) {
      if (!need.required && !welcome) continue;
      Status s = client.put(
          make_put(model, opened.profile->block_tokens, tokens, need, reserved.reservation),
          soon());
      if (!s.ok()) {
        (void)client.abort(reserved.reservation, soon());
        return s;
      }
    }
    return client.commit(reserved.reservation, wait_for, soon());
  }
  Result<ReserveReply> reserve(const std::vector<Token>& tokens) {
    ReserveRequest request;
    request.model = opened.model;
    request.profile = opened.realm.profile;
    request.query.tokens = tokens;
    return client.reserve(request, soon());
  }
  Result<FetchReply> fetch(const std::vector<Token>& tokens, FetchForm form = FetchForm::stored) {
    FetchRequest request;
    request.model = opened.model;
    request.query.tokens = tokens;
    request.form = form;
    return client.fetch(request, soon());
  }
  uint64_t stat(const std::string& name) { return stat_of(client, name); }

  /// Every row, carry and state that a cache of reply.tokens needs is there and has the right
  /// bytes.
  void expect_serves(const std::vector<Token>& tokens, const FetchReply& reply) {
    auto hashes = prefix_hashes(tokens);
    uint32_t n = reply.tokens;
    for (const FetchedObject& o : reply.lease.prefix().objects) expect_clipped(o, n, hashes);
    auto groups = part_groups(model);
    for (size_t g = 0; g < groups.size(); ++g) {
      for (auto m : groups[g].members) {
        for (const RowRange& r : demanded_rows(groups[g].spec, n)) {
          for (uint32_t row = r.first; row < r.end; ++row) expect_row(m, row, hashes, reply);
        }
        bool carry = demands_carry(groups[g].spec, n) || demands_snapshot(groups[g].spec, n);
        if (carry) expect_state(m, n, hashes, reply);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }

 private:
  // Whatever a client may use of an object is this query's.
  void expect_clipped(const FetchedObject& o, uint32_t n, const std::vector<uint64_t>& hashes) {
    ASSERT_LE(o.end_token, n);
    for (const Plane& p : o.object->planes) {
      const PartSpec& spec = model.layers[p.layer].parts[p.part];
      uint32_t rate = spec.kind == PartKind::pooled ? spec.rate : 1;
      for (const SideSpec& side : sides_of(spec)) {
        if (side.side != p.side) continue;
        for (uint32_t row = p.first_row; row < p.end_row(); ++row) {
          if ((row + 1) * rate > o.end_token) break;
          expect_plane_row(p, row, exact_rows(model, hashes, p.layer, p.part, side, row, row + 1));
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
  void expect_row(PartGroup::Member m, uint32_t row, const std::vector<uint64_t>& hashes,
                  const FetchReply& reply) {
    const PartSpec& spec = model.layers[m.layer].parts[m.part];
    uint32_t rate = spec.kind == PartKind::pooled ? spec.rate : 1;
    for (const SideSpec& side : sides_of(spec)) {
      int found = 0;
      for (const FetchedObject& o : reply.lease.prefix().objects) {
        for (const Plane& p : o.object->planes) {
          if (p.layer != m.layer || p.part != m.part || p.side != side.side) continue;
          if (row < p.first_row || row >= p.end_row() || (row + 1) * rate > o.end_token) continue;
          ++found;
          expect_plane_row(p, row, exact_rows(model, hashes, m.layer, m.part, side, row, row + 1));
        }
      }
      ASSERT_GT(found, 0) << "layer " << m.layer << " part " << m.part << " row " << row << " of "
                          << reply.tokens;
    }
  }
  void expect_plane_row(const Plane& plane, uint32_t row, const Plane& exact) {
    RunForm form = RunForm::exact;
    uint32_t at = plane.first_row;
    for (const RowRun& run : plane.runs) {
      if (row >= at && row < at + run.rows) form = run.form;
      at += run.rows;
    }
    const bool streamed = codec->side(plane.layer, plane.part, plane.side)->coder != nullptr;
    if (form == RunForm::stream) return expect_stream_row(plane, row, exact);
    Plane expected = exact;
    if (form == RunForm::codes) {
      auto coded = codec->encode(exact);
      ASSERT_TRUE(coded.ok()) << coded.status().to_string();
      expected = *coded;
    }
    if (plane.dtype == expected.dtype) {
      auto own = slice_rows(plane, row, row + 1);
      ASSERT_TRUE(own.ok());
      ASSERT_EQ(own->runs, expected.runs) << "row " << row;
      if (own->bytes == expected.bytes) return;
      // What was fetched decoded may come from a block's stream.
      ASSERT_TRUE(streamed && row >= opened.profile->exact_tokens &&
                  own->bytes == codec->decoded(stream_of(*codec, exact), plane.dtype)->bytes)
          << "row " << row << " has another prefix's bytes";
    }
  }
  void expect_stream_row(const Plane& plane, uint32_t row, const Plane& exact) {
    auto own = slice_rows(plane, row, row + 1);
    ASSERT_TRUE(own.ok());
    auto given = codec->decoded(*own, DType::f32);
    ASSERT_TRUE(given.ok()) << given.status().to_string();
    ASSERT_EQ(given->bytes, codec->decoded(stream_of(*codec, exact), DType::f32)->bytes)
        << "row " << row << " is another prefix's";
  }
  void expect_state(PartGroup::Member m, uint32_t n, const std::vector<uint64_t>& hashes,
                    const FetchReply& reply) {
    StateBlob expected = state_at(hashes, m.layer, m.part, n);
    for (const FetchedObject& o : reply.lease.prefix().objects) {
      for (const StateBlob& s : o.object->states) {
        if (s == expected) return;
      }
    }
    ADD_FAILURE() << "no state of layer " << m.layer << " part " << m.part << " at " << n;
  }
};

inline FetchRequest fetch_of(const Bench& b, const Sequence& tokens) {
  FetchRequest r;
  r.model = b.opened.model;
  r.query.tokens = tokens;
  return r;
}

inline std::unique_ptr<TieredCache> open_cache(const CacheOptions& options,
                                               const std::string& ns = "test") {
  auto cache = TieredCache::create(options, ns);
  EXPECT_TRUE(cache.ok()) << cache.status().to_string();
  return cache.ok() ? std::move(*cache) : nullptr;
}

inline CacheOptions small_options(const std::string& ssd_dir = "") {
  CacheOptions o;
  o.ram_budget_bytes = 64ull << 20;
  o.ssd_dir = ssd_dir;
  o.ssd_limit_bytes = 64ull << 20;
  o.ssd_min_free_bytes = 0;
  o.scrub_bytes_per_second = 0;
  o.coding.block_tokens = 16;
  o.coding.k_bits = o.coding.v_bits = 0;
  o.block_end_interval = 0;  // ends by price have tests of their own
  return o;
}

}  // namespace kv
