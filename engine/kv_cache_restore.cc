// Taking over a fetched prefix: which object each row comes from, and the states at its end.
#include <algorithm>
#include <map>

#include "engine/kv_cache.h"

namespace kv {
namespace {

std::string where(uint32_t layer, uint32_t part) {
  return "fetch: layer " + std::to_string(layer) + " part " + std::to_string(part) + ": ";
}

// True: `o` is an object of `realm`: only then do its codes mean what the realm's profile says.
Status check_realm(const Object& o, const Realm& realm) {
  if (o.ns != realm.ns || o.fingerprint != realm.fingerprint) {
    return corruption("fetch: an object of namespace " + o.ns + ", model " + o.fingerprint.hex() +
                      "; expected namespace " + realm.ns + ", model " + realm.fingerprint.hex());
  }
  if (o.profile == realm.profile) return {};
  return {StatusCode::profile_changed, "fetch: an object under profile " + o.profile.hex() +
                                           ", the model was opened under " + realm.profile.hex()};
}

// True: every value and scale is a number: attention on others would give silent nonsense.
Status check_planes(const Object& o, const Codec& codec) {
  for (const Plane& p : o.planes) {
    if (Status s = codec.check(p); !s.ok()) return corruption("fetch: " + s.message());
  }
  return {};
}

}  // namespace

// The planes of one object of one part, and which of their rows are the query's.
struct KvCache::Piece {
  std::vector<const Plane*> sides;
  RowRange rows;
  /// Order of preference: a block that the query holds wholly, then tails that reach its end (the
  /// shortest first), then other blocks, then other tails: so codes of an open block stand before
  /// its exact rows, as in a tail they must.
  std::pair<uint32_t, uint32_t> rank;
  bool coded = true;  ///< of a block, not of a tail
};

Status KvCache::restore(Lease lease, std::span<const Token> tokens, const EachTask& each) {
  clear();
  lease_ = std::move(lease);
  Status status = restore_all(lease_.prefix(), tokens, each);
  if (!status.ok()) {
    clear();
    return status;
  }
  for (const FetchedObject& f : lease_.prefix().objects) {
    if (is_main(f.object->name.kind)) fetched_.push_back(f.object);
  }
  return {};
}

Status KvCache::restore_all(const Prefix& prefix, std::span<const Token> tokens,
                            const EachTask& each) {
  if (prefix.tokens > tokens.size()) return corruption("fetch: more rows than the query has");
  for (const FetchedObject& f : prefix.objects) {
    const Object& o = *f.object;
    KV_RETURN_IF_ERROR(check_realm(o, realm_));
    KV_RETURN_IF_ERROR(validate(o, codec_->model(), codec_->profile()));
    KV_RETURN_IF_ERROR(check_planes(o, *codec_));
    uint32_t end = std::min({f.end_token, o.end_token(), prefix.tokens});
    bool same = end <= o.first_token ||
                std::equal(tokens.begin() + o.first_token, tokens.begin() + end, o.tokens.begin());
    if (!same) return corruption("fetch: an object of other tokens");
  }
  tokens_.assign(tokens.begin(), tokens.begin() + prefix.tokens);
  KV_RETURN_IF_ERROR(restore_rows(prefix, each));
  KV_RETURN_IF_ERROR(restore_blocks(prefix));
  return restore_states(prefix);
}

// The complete blocks: as fetched, or made of the rows (none) where a model keeps nothing in them.
Status KvCache::restore_blocks(const Prefix& prefix) {
  std::map<uint32_t, ObjectPtr> fetched;
  for (const FetchedObject& f : prefix.objects) {
    bool whole = f.object->name.kind == ObjectKind::block && f.end_token >= f.object->end_token();
    if (whole) fetched[f.object->first_token] = f.object;
  }
  bool in_blocks = std::any_of(groups_.begin(), groups_.end(), [](const PartGroup& g) {
    return g.spec.has_rows() && g.spec.rows_in_block();
  });
  for (uint32_t at = 0; at + block_tokens_ <= tokens(); at += block_tokens_) {
    auto it = fetched.find(at);
    if (it == fetched.end() && in_blocks) {
      return corruption("fetch: the block at " + std::to_string(at) + " is missing");
    }
    if (it == fetched.end()) {
      blocks_.push_back(new_block(blocks_.size()));
      continue;
    }
    Id parent = blocks_.empty() ? Id{} : blocks_.back()->name.id;
    if (it->second->parent != parent) return corruption("fetch: a block of another path");
    blocks_.push_back(it->second);
  }
  return {};
}

Status KvCache::restore_rows(const Prefix& prefix, const EachTask& each) {
  std::map<std::pair<uint32_t, uint32_t>, std::vector<Piece>> found;
  for (const FetchedObject& f : prefix.objects) {
    const Object& o = *f.object;
    bool tail = o.tokens.size() < block_tokens_;
    bool path = !tail && f.end_token >= o.end_token();
    auto length = static_cast<uint32_t>(o.tokens.size());
    for (const Plane& p : o.planes) {
      const PartSpec& spec = codec_->model().layers[p.layer].parts[p.part];
      uint32_t rate = spec.kind == PartKind::pooled ? spec.rate : 1;
      auto& pieces = found[{p.layer, p.part}];
      bool other_side = p.side == Side::v;
      if (other_side) {
        bool follows = !pieces.empty() && pieces.back().sides.size() == 1 &&
                       pieces.back().sides[0]->first_row == p.first_row &&
                       pieces.back().sides[0]->end_row() == p.end_row();
        if (!follows) return corruption(where(p.layer, p.part) + "a V plane without its K plane");
        pieces.back().sides.push_back(&p);
        continue;
      }
      Piece piece;
      piece.sides = {&p};
      piece.rows = {p.first_row, std::min({p.end_row(), f.end_token / rate, tokens() / rate})};
      uint32_t shorter = kMaxTokens - f.end_token;
      piece.rank = path                              ? std::pair(0u, 0u)
                   : tail && f.end_token >= tokens() ? std::pair(1u, length)
                   : !tail                           ? std::pair(2u, shorter)
                                                     : std::pair(3u, shorter);
      piece.coded = !tail;
      pieces.push_back(std::move(piece));
    }
  }
  struct Task {
    uint32_t layer, part;
    std::vector<Piece>* pieces;
    Status status;
  };
  std::vector<Task> tasks;
  for (uint32_t l = 0; l < parts_.size(); ++l) {
    for (uint32_t p = 0; p < parts_[l].size(); ++p) {
      if (parts_[l][p].rows) tasks.push_back({l, p, &found[{l, p}], {}});
    }
  }
  auto one = [&](uint32_t i) {
    Task& task = tasks[i];
    task.status = restore_part(task.layer, task.part, *task.pieces, tokens());
  };
  const auto count = static_cast<uint32_t>(tasks.size());
  if (each) each(count, one);
  for (uint32_t i = 0; i < count; ++i) {
    if (!each) one(i);
    KV_RETURN_IF_ERROR(tasks[i].status);
  }
  return {};
}

// Every demanded row from the best piece that has it.
Status KvCache::restore_part(uint32_t layer, uint32_t part, std::vector<Piece>& pieces,
                             uint32_t n) {
  PartRows& rows = *parts_[layer][part].rows;
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.rank < b.rank; });
  std::vector<RowRange> open = demanded_rows(rows.spec(), n);
  std::vector<PartRows::Source> sources;
  for (const Piece& piece : pieces) {
    std::vector<RowRange> left;
    for (RowRange r : open) {
      RowRange take{std::max(r.first, piece.rows.first), std::min(r.end, piece.rows.end)};
      if (take.empty()) {
        left.push_back(r);
        continue;
      }
      size_t sides = sides_of(rows.spec()).size();
      if (piece.sides.size() != sides) return corruption(where(layer, part) + "a plane is missing");
      sources.push_back({piece.sides, take, piece.coded});
      if (r.first < take.first) left.push_back({r.first, take.first});
      if (take.end < r.end) left.push_back({take.end, r.end});
    }
    open = std::move(left);
  }
  if (!open.empty()) {
    return corruption(where(layer, part) + "row " + std::to_string(open[0].first) + " is missing");
  }
  std::sort(sources.begin(), sources.end(),
            [](const auto& a, const auto& b) { return a.rows.first < b.rows.first; });
  return rows.take(sources, n);
}

Status KvCache::restore_states(const Prefix& prefix) {
  uint32_t n = tokens();
  for (uint32_t l = 0; l < parts_.size(); ++l) {
    for (uint32_t p = 0; p < parts_[l].size(); ++p) {
      const PartSpec& spec = codec_->model().layers[l].parts[p];
      if (!demands_carry(spec, n) && !demands_snapshot(spec, n)) continue;
      bool in_snapshot = !spec.has_rows() && spec.snapshot == SnapshotPlace::checkpoint;
      const StateBlob* found = nullptr;
      for (const FetchedObject& f : prefix.objects) {
        const ObjectName& name = f.object->name;
        bool here = in_snapshot ? name.kind == ObjectKind::snapshot && f.object->end_token() == n
                                : name.kind == ObjectKind::supplement && name.first_row == n &&
                                      name.end_row == n;
        if (!here || f.end_token < n) continue;
        for (const StateBlob& s : f.object->states) {
          if (s.layer == l && s.part == p) found = &s;
        }
      }
      if (found == nullptr) {
        return {StatusCode::not_found, where(l, p) + "no " +
                                           (spec.has_rows() ? "carry" : "snapshot") + " at " +
                                           std::to_string(n)};
      }
      Part& part = parts_[l][p];
      part.state.assign(found->bytes.data(), found->bytes.data() + found->bytes.size());
    }
  }
  if (has_states_) keep_states();
  return {};
}

}  // namespace kv
