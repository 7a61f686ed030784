// Oracle: the original cache by brute force, for the property test of every part kind.
//
// It knows each object that was stored (its sequence, and which rows, carries and snapshots it
// holds, each under the hash of all tokens and extras that it was computed from) and nothing of
// trees, tiers or ids. restorable() tries every length from the top, with the words of the plan:
// a row at q is present if some object whose sequence equals the query's through q holds it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/cachesvc_testing.h"

namespace kv {

/// hash[i] stands for tokens [0, i] and the extras there; as prefix_hashes if there are no extras.
inline std::vector<uint64_t> query_hashes(const Query& query) {
  std::vector<uint64_t> out;
  uint64_t h = 0x9E3779B97F4A7C15ull;
  auto extra = query.extras.begin();
  for (size_t i = 0; i < query.tokens.size(); ++i) {
    h = (h ^ static_cast<uint32_t>(query.tokens[i])) * 0xD6E8FEB86659FD93ull;
    h ^= h >> 32;
    for (; extra != query.extras.end() && extra->position == i; ++extra) {
      for (uint8_t byte : extra->bytes) h = (h ^ (byte + 257u)) * 0xD6E8FEB86659FD93ull;
    }
    out.push_back(h);
  }
  return out;
}

class Oracle {
 public:
  /// One realm (namespace, model) of the test, by any number.
  struct Model {
    uint32_t realm = 0;
    uint32_t block_tokens = 16;
    std::vector<PartGroup> groups;
  };

  /// What was put for `need` of a store of this sequence is visible from now on.
  void add(const Model& m, const std::vector<uint64_t>& hashes, const Need& need) {
    Object o;
    uint32_t n = static_cast<uint32_t>(hashes.size());
    o.end = need.kind == ObjectKind::snapshot
                ? need.end_row
                : std::min(n, (need.block_index + 1) * m.block_tokens);
    o.hashes.assign(hashes.begin(), hashes.begin() + o.end);
    for (uint16_t g = 0; g < m.groups.size(); ++g) add_items(m, need, g, o);
    uint32_t group = need.kind == ObjectKind::supplement ? need.group : 0;
    Key key{m.realm, need.kind, o.hashes.back(), group, need.first_row, need.end_row};
    if (!objects_.emplace(key, o).second) return;  // the same object again
    for (const Item& item : o.items) ++held_[item];
  }

  /// A store of this sequence holds the window and chunk rows that it needs by itself: those that
  /// others had are in objects of its own now, and all those of the tails that it supersedes.
  /// `interval`: the rows before every so many block ends are needed too; 0: none. `branch`: as
  /// branch() before the store. `named`: ends that the store named.
  void copy_rows(const Model& m, const std::vector<uint64_t>& hashes, uint32_t interval,
                 uint32_t branch, const std::vector<uint32_t>& named) {
    auto n = static_cast<uint32_t>(hashes.size());
    std::set<uint32_t> ends{n, n - 1, n / m.block_tokens * m.block_tokens, branch};
    ends.insert(named.begin(), named.end());
    for (uint32_t at = 0; interval > 0 && at <= n; at += interval * m.block_tokens) ends.insert(at);
    std::set<std::pair<uint16_t, uint32_t>> rows;  // group, row
    for (uint16_t g = 0; g < m.groups.size(); ++g) {
      const PartSpec& s = m.groups[g].spec;
      if (!s.has_rows() || s.rows_in_block()) continue;
      for (uint32_t at : ends) {
        for (const RowRange& r : demanded_rows(s, at)) {
          for (uint32_t row = r.first; row < r.end; ++row) rows.insert({g, row});
        }
      }
    }
    for (const auto& [key, o] : objects_) {
      bool tail = std::get<0>(key) == m.realm && std::get<1>(key) == ObjectKind::supplement &&
                  o.end % m.block_tokens != 0 && o.end < n && o.hashes.back() == hashes[o.end - 1];
      if (!tail) continue;
      for (const auto& [realm, g, kind, row, hash] : o.items) {
        if (kind == 'r') rows.insert({g, row});
      }
    }
    for (auto [g, row] : rows) {
      if (!held_.count({m.realm, g, 'r', row, hashes[row]})) continue;
      add(m, hashes, {ObjectKind::supplement, row / m.block_tokens, g, row, row + 1, false});
    }
  }

  /// The last block end before the place where this sequence leaves another entry's; 0 if it only
  /// continues one.
  uint32_t branch(const Model& m, const std::vector<uint64_t>& query) const {
    uint32_t common = 0, last = 0;  // `last`: end of the deepest block that it has whole
    for (const auto& [key, o] : objects_) {
      uint32_t same = on_path(m, key) ? common_with(o, query) : 0;
      common = std::max(common, same);
      if (same == o.end && o.end % m.block_tokens == 0) last = std::max(last, o.end);
    }
    bool ended = false, children = false;
    for (const auto& [key, o] : objects_) {
      if (!on_path(m, key)) continue;
      uint32_t same = common_with(o, query);
      ended |= o.end == common && same == common;
      children |= o.end > last && same >= last;
    }
    bool continues = common == last ? !children : ended;
    return continues || common >= query.size() ? 0 : last;
  }

  /// Every object of the realm whose sequence begins with `query` (all, if it is empty).
  size_t erase(const Model& m, const std::vector<uint64_t>& query) {
    size_t erased = 0;
    for (auto it = objects_.begin(); it != objects_.end();) {
      const auto& own = it->second.hashes;
      bool begins =
          query.empty() || (own.size() >= query.size() && own[query.size() - 1] == query.back());
      if (std::get<0>(it->first) != m.realm || !begins) {
        ++it;
        continue;
      }
      for (const Item& item : it->second.items) {
        if (--held_[item] == 0) held_.erase(item);
      }
      it = objects_.erase(it);
      ++erased;
    }
    return erased;
  }

  /// The largest length of the query that is restorable and at most `most`; with `step` > 1 only
  /// its multiples count.
  uint32_t restorable(const Model& m, const std::vector<uint64_t>& query, uint32_t most,
                      uint32_t step = 1) const {
    uint32_t common = 0;
    for (const auto& [key, o] : objects_) {
      if (std::get<0>(key) != m.realm) continue;
      uint32_t same = 0;
      while (same < o.end && same < query.size() && o.hashes[same] == query[same]) ++same;
      common = std::max(common, same);
    }
    for (uint32_t n = std::min(most, common); n > 0; --n) {
      if (n % step == 0 && serves(m, query, n)) return n;
    }
    return 0;
  }

  /// True if a cache of exactly n tokens of the query is all there.
  bool serves(const Model& m, const std::vector<uint64_t>& query, uint32_t n) const {
    for (uint16_t g = 0; g < m.groups.size(); ++g) {
      const PartSpec& s = m.groups[g].spec;
      uint32_t rate = s.kind == PartKind::pooled ? s.rate : 1;
      auto rows = [&](uint32_t a, uint32_t b) {
        for (uint32_t r = a; r < b; ++r) {
          if (!held_.count({m.realm, g, 'r', r, query[(r + 1) * rate - 1]})) return false;
        }
        return true;
      };
      bool point = held_.count({m.realm, g, 'p', n, query[n - 1]}) > 0;
      bool ok = true;
      switch (s.kind) {
        case PartKind::full:
        case PartKind::latent:
          ok = rows(0, n);
          break;
        case PartKind::window:
          ok = rows(n >= s.window ? n - s.window + 1 : 0, n) && rows(0, std::min(s.keep, n));
          break;
        case PartKind::chunk:
          ok = rows(n / s.chunk * s.chunk, n);
          break;
        case PartKind::pooled:
          ok = rows(0, n / rate) && ((n % rate == 0 && !(s.overlap && n >= rate)) || point);
          break;
        case PartKind::state:
        case PartKind::opaque:
          ok = point;
          break;
      }
      if (!ok) return false;
    }
    return true;
  }

 private:
  using Item = std::tuple<uint32_t, uint16_t, char, uint32_t, uint64_t>;  // realm … at, hash
  using Key = std::tuple<uint32_t, ObjectKind, uint64_t, uint32_t, uint32_t, uint32_t>;
  struct Object {
    std::vector<uint64_t> hashes;  // of its sequence from the root
    uint32_t end = 0;
    std::vector<Item> items;
  };

  static uint32_t common_with(const Object& o, const std::vector<uint64_t>& query) {
    uint32_t same = 0;
    while (same < o.end && same < query.size() && o.hashes[same] == query[same]) ++same;
    return same;
  }
  static bool on_path(const Model& m, const Key& key) {
    ObjectKind kind = std::get<1>(key);
    return std::get<0>(key) == m.realm && (kind == ObjectKind::block || kind == ObjectKind::tail);
  }
  static void add_items(const Model& m, const Need& need, uint16_t g, Object& o) {
    const PartSpec& s = m.groups[g].spec;
    bool supplement = need.kind == ObjectKind::supplement;
    if (supplement && need.group != g) return;
    uint32_t rate = s.kind == PartKind::pooled ? s.rate : 1;
    auto add_point = [&] {
      o.items.push_back({m.realm, g, 'p', need.end_row, o.hashes[need.end_row - 1]});
    };
    if (need.kind == ObjectKind::snapshot) {
      if (!s.has_rows() && s.snapshot == SnapshotPlace::checkpoint) add_point();
      return;
    }
    if (supplement && need.first_row == need.end_row) return add_point();
    if (!supplement && (!s.has_rows() || !s.rows_in_block())) return;
    for (uint32_t r = need.first_row / rate; r < need.end_row / rate; ++r) {
      o.items.push_back({m.realm, g, 'r', r, o.hashes[(r + 1) * rate - 1]});
    }
  }

  std::map<Key, Object> objects_;
  std::map<Item, uint32_t> held_;
};

/// Checks a reply row by row. Rows are recognised by their bytes: whatever a client may use of an
/// object must be what the engine gave for this query, exact or as its codes.
class ReplyCheck {
 public:
  ReplyCheck(const ModelSpec& model, const Codec& codec, const std::vector<uint64_t>& hashes)
      : model_(model), codec_(codec), hashes_(hashes) {}

  void expect(const FetchReply& reply, FetchForm form) {
    uint32_t n = reply.tokens;
    ASSERT_EQ(reply.lease.prefix().tokens, n);
    for (const FetchedObject& o : reply.lease.prefix().objects) {
      ASSERT_LE(o.end_token, n);
      for (const Plane& p : o.object->planes) check_plane(p, o.end_token, form);
      for (const StateBlob& s : o.object->states) {
        uint32_t at = o.object->name.kind == ObjectKind::snapshot ? o.object->end_token()
                                                                  : o.object->name.end_row;
        ASSERT_EQ(at, n) << "a state of another position";
        ASSERT_EQ(s, state_at(hashes_, s.layer, s.part, n));
        states_.insert({s.layer, s.part});
      }
      if (::testing::Test::HasFailure()) return;
    }
    for (const auto& g : part_groups(model_)) {
      for (auto m : g.members) {
        if (demands_carry(g.spec, n) || demands_snapshot(g.spec, n)) {
          ASSERT_TRUE(states_.count({m.layer, m.part})) << "layer " << m.layer << " at " << n;
        }
        for (const RowRange& r : demanded_rows(g.spec, n)) {
          for (const SideSpec& side : sides_of(g.spec)) {
            for (uint32_t row = r.first; row < r.end; ++row) {
              ASSERT_TRUE(rows_.count({m.layer, m.part, side.side, row}))
                  << to_string(g.spec.kind) << " layer " << m.layer << " row " << row << " of "
                  << n;
            }
          }
        }
      }
    }
  }

 private:
  void check_plane(const Plane& p, uint32_t end_token, FetchForm form) {
    const PartSpec& spec = model_.layers[p.layer].parts[p.part];
    uint32_t rate = spec.kind == PartKind::pooled ? spec.rate : 1;
    uint32_t end = std::min(p.end_row(), end_token / rate);
    if (p.first_row >= end) return;
    SideSpec side{p.side, p.heads, p.dim};
    Plane exact = exact_rows(model_, hashes_, p.layer, p.part, side, p.first_row, end);
    auto own = slice_rows(p, p.first_row, end);
    ASSERT_TRUE(own.ok()) << own.status().to_string();
    for (uint32_t row = p.first_row; row < end; ++row) {
      Plane given = *slice_rows(*own, row, row + 1), truth = *slice_rows(exact, row, row + 1);
      ASSERT_TRUE(equal(given, truth, form)) << to_string(spec.kind) << " layer " << p.layer
                                             << " row " << row << " is another prefix's";
      rows_.insert({p.layer, p.part, p.side, row});
    }
  }
  bool equal(const Plane& given, const Plane& truth, FetchForm form) const {
    const bool streams = codec_.side(truth.layer, truth.part, truth.side)->coder != nullptr;
    auto coded = streams ? Result<Plane>(stream_of(codec_, truth)) : codec_.encode(truth);
    if (!coded.ok()) return false;
    if (form == FetchForm::stored) {
      if (given.runs[0].form == RunForm::stream) {
        return codec_.decoded(given, DType::f32)->bytes ==
               codec_.decoded(*coded, DType::f32)->bytes;
      }
      const Plane& expected = given.runs[0].form == RunForm::codes ? *coded : truth;
      return given.runs == expected.runs && given.bytes == expected.bytes;
    }
    auto from_exact = codec_.decoded(truth, given.dtype),
         from_codes = codec_.decoded(*coded, given.dtype);
    return from_exact.ok() && from_codes.ok() &&
           (given.bytes == from_exact->bytes || given.bytes == from_codes->bytes);
  }

  const ModelSpec& model_;
  const Codec& codec_;
  const std::vector<uint64_t>& hashes_;
  std::set<std::tuple<uint16_t, uint16_t, Side, uint32_t>> rows_;
  std::set<std::pair<uint16_t, uint16_t>> states_;
};

}  // namespace kv
