// Growing, sealing, states, and the objects to store. See kv_cache.h; restoring:
// kv_cache_restore.cc.
#include "engine/kv_cache.h"

#include <algorithm>

namespace kv {

KvCache::KvCache(std::shared_ptr<const Codec> codec, Realm realm, uint32_t checkpoint_interval)
    : codec_(std::move(codec)),
      realm_(std::move(realm)),
      block_tokens_(codec_->profile().block_tokens),
      checkpoint_interval_(checkpoint_interval),
      checkpoints_every_(checkpoint_interval == kCheckpointsByPrice ? block_tokens_
                                                                    : checkpoint_interval),
      groups_(part_groups(codec_->model())) {
  clear();
}

void KvCache::clear() {
  const auto& layers = codec_->model().layers;
  tokens_.clear();
  blocks_.clear();
  fetched_.clear();
  marked_ = 0;
  parts_.clear();
  parts_.resize(layers.size());
  for (uint32_t l = 0; l < layers.size(); ++l) {
    for (uint32_t p = 0; p < layers[l].parts.size(); ++p) {
      const PartSpec& spec = layers[l].parts[p];
      Part part;
      if (spec.has_rows()) part.rows.emplace(codec_, l, p);
      part.has_state = !spec.has_rows() || spec.kind == PartKind::pooled;
      has_states_ = has_states_ || part.has_state;
      parts_[l].push_back(std::move(part));
    }
  }
  lease_ = Lease();
}

template <typename Visit>
void KvCache::each_part(Visit&& call) const {
  for (uint32_t l = 0; l < parts_.size(); ++l) {
    for (uint32_t p = 0; p < parts_[l].size(); ++p) {
      call(l, p, codec_->model().layers[l].parts[p], parts_[l][p]);
    }
  }
}

const KvCache::Part& KvCache::part(uint32_t layer, uint32_t part) const {
  KV_CHECK(layer < parts_.size() && part < parts_[layer].size());
  return parts_[layer][part];
}

PartRows& KvCache::rows_of(uint32_t layer, uint32_t part) {
  KV_CHECK(layer < parts_.size() && part < parts_[layer].size() && parts_[layer][part].rows);
  return *parts_[layer][part].rows;
}

const AttentionRows& KvCache::rows(uint32_t layer, uint32_t p) const {
  KV_CHECK(part(layer, p).rows && part(layer, p).rows->spec().v_dim > 0);
  return part(layer, p).rows->attention();
}

ValueRows KvCache::values(uint32_t layer, uint32_t p) const {
  KV_CHECK(part(layer, p).rows && part(layer, p).rows->spec().v_dim == 0);
  return part(layer, p).rows->values();
}

Status KvCache::decode(uint32_t layer, uint32_t p, Side side, RowRange rows, float* out) const {
  KV_CHECK(part(layer, p).rows);
  return part(layer, p).rows->decode(side, rows, out);
}

Status KvCache::append(uint32_t layer, uint32_t part, uint32_t count, const float* k,
                       const float* v) {
  fetched_.clear();
  const float* sides[] = {k, v};
  return rows_of(layer, part).append(count, sides);
}

Status KvCache::append_rows(uint32_t layer, uint32_t part, uint32_t count, const float* rows) {
  fetched_.clear();
  const float* sides[] = {rows};
  return rows_of(layer, part).append(count, sides);
}

std::vector<uint8_t>& KvCache::state(uint32_t layer, uint32_t p) {
  KV_CHECK(part(layer, p).has_state);
  fetched_.clear();
  return parts_[layer][p].state;
}

Status KvCache::seal(uint32_t layer, const EachTask& each) {
  for (Part& part : parts_[layer]) {
    if (part.rows) KV_RETURN_IF_ERROR(part.rows->seal(each));
  }
  return {};
}

uint32_t KvCache::advance_limit() const {
  if (!has_states_) return kMaxTokens;
  uint32_t limit = (tokens() / block_tokens_ + 1) * block_tokens_;
  if (auto end = ends_.upper_bound(tokens()); end != ends_.end()) limit = std::min(limit, *end);
  if (checkpoints_every_ == 0) return limit;
  return std::min(limit, (tokens() / checkpoints_every_ + 1) * checkpoints_every_);
}

void KvCache::advance(std::span<const Token> tokens) {
  KV_CHECK(tokens_.size() + tokens.size() <= advance_limit());
  fetched_.clear();
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  each_part([&](uint32_t, uint32_t, const PartSpec& spec, const Part& part) {
    uint32_t rate = spec.kind == PartKind::pooled ? spec.rate : 1;
    KV_CHECK(!part.rows || part.rows->end_row() == tokens_.size() / rate);
  });
  while ((blocks_.size() + 1) * block_tokens_ <= tokens_.size()) {
    auto block = new_block(blocks_.size());
    blocks_.push_back(std::move(block));
  }
  if (has_states_) keep_states();
}

bool KvCache::checkpoint_wanted(uint32_t position) const {
  return (checkpoints_every_ != 0 && position % checkpoints_every_ == 0) ||
         ends_.contains(position);
}

// Checkpoints by price: twice as far apart until they take no more than blocks and one of them.
void KvCache::thin_checkpoints() {
  uint64_t one = 0, blocks = 0;
  each_part([&](uint32_t, uint32_t, const PartSpec& spec, const Part& part) {
    if (demands_snapshot(spec, tokens()) && spec.snapshot == SnapshotPlace::checkpoint) {
      one += part.state.size();
    }
  });
  if (one == 0) return;
  for (const ObjectPtr& block : blocks_) blocks += block->payload_bytes();
  while (tokens() / checkpoints_every_ * one > blocks + one) checkpoints_every_ *= 2;
}

// Carries and block-end states stay for the store; checkpoints too where they were asked for, else
// the two newest block ends' only, for rewind().
void KvCache::keep_states() {
  uint32_t at = tokens();
  bool block_end = at % block_tokens_ == 0;
  if (!block_end && !checkpoint_wanted(at)) return;
  if (checkpoint_interval_ == kCheckpointsByPrice) thin_checkpoints();
  for (size_t l = 0; l < parts_.size(); ++l) {
    for (size_t p = 0; p < parts_[l].size(); ++p) {
      Part& part = parts_[l][p];
      if (!part.has_state) continue;
      const PartSpec& spec = codec_->model().layers[l].parts[p];
      bool rare = !spec.has_rows() && spec.snapshot == SnapshotPlace::checkpoint;
      if (!rare && !block_end && !ends_.contains(at)) continue;
      std::erase_if(part.kept, [&](const auto& k) {
        return rare && k.first + block_tokens_ < at && k.first != marked_ &&
               !checkpoint_wanted(k.first);
      });
      part.kept[at] = Bytes::copy_of(part.state);
    }
  }
}

std::optional<Bytes> KvCache::state_at(const Part& part, uint32_t position) const {
  if (position == tokens()) return Bytes::copy_of(part.state);
  auto it = part.kept.find(position);
  return it == part.kept.end() ? std::nullopt : std::optional(it->second);
}

Status KvCache::rewind(uint32_t position) {
  KV_CHECK(position % block_tokens_ == 0 && position <= blocks_.size() * block_tokens_);
  fetched_.clear();
  for (auto& layer : parts_) {
    for (Part& part : layer) {
      if (part.has_state) {
        auto state = position == 0 ? Bytes() : state_at(part, position);
        if (!state) return invalid_argument("no state kept at " + std::to_string(position));
        part.state.assign(state->data(), state->data() + state->size());
        std::erase_if(part.kept, [&](const auto& k) { return k.first > position; });
      }
      if (part.rows) KV_RETURN_IF_ERROR(part.rows->rewind(position));
    }
  }
  tokens_.resize(position);
  blocks_.resize(position / block_tokens_);
  if (position < marked_) marked_ = 0;
  return {};
}

void KvCache::mark() {
  marked_ = tokens();
  for (auto& layer : parts_) {
    for (Part& part : layer) {
      if (part.rows) part.rows->mark();
      if (part.has_state) part.kept[marked_] = Bytes::copy_of(part.state);
    }
  }
}

Result<Plane> KvCache::cut(const Part& part, Side side, RowRange rows, uint32_t tokens) const {
  return tokens == marked_ ? part.rows->cut_marked(side, rows) : part.rows->cut(side, rows);
}

Object KvCache::new_object(ObjectKind kind, uint32_t first, uint32_t end) const {
  Object o;
  o.name.kind = kind;
  uint32_t index = first / block_tokens_;
  if (index > 0) o.parent = blocks_[index - 1]->name.id;
  o.first_token = first;
  o.tokens.assign(tokens_.begin() + first, tokens_.begin() + end);
  stamp(o, realm_);
  return o;
}

// Block `index`, the next after blocks_, from the sealed rows.
std::shared_ptr<Object> KvCache::new_block(size_t index) const {
  auto first = static_cast<uint32_t>(index) * block_tokens_;
  auto object =
      std::make_shared<Object>(new_object(ObjectKind::block, first, first + block_tokens_));
  each_part([&](uint32_t, uint32_t, const PartSpec& spec, const Part& part) {
    if (!part.rows || !spec.rows_in_block()) return;
    auto planes = part.rows->block(index);
    object->planes.insert(object->planes.end(), planes.begin(), planes.end());
  });
  return object;
}

std::vector<ObjectName> KvCache::names() const {
  std::vector<ObjectName> out;
  for (const ObjectPtr& object : fetched_.empty() ? blocks_ : fetched_) out.push_back(object->name);
  uint32_t first = static_cast<uint32_t>(blocks_.size()) * block_tokens_;
  if (fetched_.empty() && first < tokens()) {
    out.push_back(new_object(ObjectKind::tail, first, tokens()).name);
  }
  return out;
}

Result<ObjectPtr> KvCache::tail(uint32_t tokens) const {
  KV_CHECK(tokens == this->tokens() || tokens == marked_ || tokens % block_tokens_ == 0);
  uint32_t first = tokens / block_tokens_ * block_tokens_;
  if (first == tokens) return ObjectPtr();
  auto object = std::make_shared<Object>(new_object(ObjectKind::tail, first, tokens));
  for (const auto& layer : parts_) {
    for (const Part& part : layer) {
      if (!part.rows || !part.rows->spec().rows_in_block()) continue;
      const PartSpec& spec = part.rows->spec();
      uint32_t rate = spec.kind == PartKind::pooled ? spec.rate : 1;
      RowRange rows{first / rate, tokens / rate};
      if (rows.empty()) continue;
      for (const SideSpec& side : sides_of(spec)) {
        KV_ASSIGN_OR_RETURN(Plane p, cut(part, side.side, rows, tokens));
        object->planes.push_back(std::move(p));
      }
    }
  }
  return ObjectPtr(std::move(object));
}

Result<ObjectPtr> KvCache::object(const Need& need, uint32_t tokens) const {
  switch (need.kind) {
    case ObjectKind::block:
      return need.block_index < blocks_.size() ? blocks_[need.block_index] : ObjectPtr();
    case ObjectKind::tail:
      return tail(tokens);
    case ObjectKind::snapshot:
      return need.end_row <= tokens ? snapshot(need.end_row) : nullptr;
    case ObjectKind::supplement:
      return supplement(need, tokens);
  }
  return ObjectPtr();
}

Result<ObjectPtr> KvCache::supplement(const Need& need, uint32_t tokens) const {
  uint32_t first = need.block_index * block_tokens_;
  uint32_t end = std::min(first + block_tokens_, tokens);
  if (need.group >= groups_.size() || need.end_row > end) return ObjectPtr();
  bool block = end == first + block_tokens_;
  auto object = std::make_shared<Object>(
      new_object(block ? ObjectKind::block : ObjectKind::tail, first, end));
  object->name = {ObjectKind::supplement, object->name.id, need.group, need.first_row,
                  need.end_row};
  RowRange rows{need.first_row, need.end_row};
  for (auto m : groups_[need.group].members) {
    const Part& part = parts_[m.layer][m.part];
    if (rows.empty()) {
      auto state = part.has_state ? state_at(part, need.end_row) : std::nullopt;
      if (!state) return ObjectPtr();
      object->states.push_back({m.layer, m.part, *state});
      continue;
    }
    if (!part.rows || !part.rows->holds(rows)) return ObjectPtr();
    for (const SideSpec& side : sides_of(part.rows->spec())) {
      KV_ASSIGN_OR_RETURN(Plane p, cut(part, side.side, rows, tokens));
      object->planes.push_back(std::move(p));
    }
  }
  return ObjectPtr(std::move(object));
}

// All checkpoint parts' bytes at `position`.
ObjectPtr KvCache::snapshot(uint32_t position) const {
  if (position > tokens()) return nullptr;
  uint32_t first = position / block_tokens_ * block_tokens_;
  auto object = std::make_shared<Object>(new_object(ObjectKind::snapshot, first, position));
  bool all = true;
  each_part([&](uint32_t l, uint32_t p, const PartSpec& spec, const Part& part) {
    if (spec.has_rows() || spec.snapshot != SnapshotPlace::checkpoint) return;
    auto state = state_at(part, position);
    all = all && state.has_value();
    if (state)
      object->states.push_back({static_cast<uint16_t>(l), static_cast<uint16_t>(p), *state});
  });
  return all ? object : nullptr;
}

std::vector<uint32_t> KvCache::checkpoints() const {
  std::vector<uint32_t> out;
  each_part([&](uint32_t, uint32_t, const PartSpec& spec, const Part& part) {
    if (spec.has_rows() || spec.snapshot != SnapshotPlace::checkpoint || !out.empty()) return;
    for (const auto& [position, bytes] : part.kept) {
      if (checkpoint_wanted(position)) out.push_back(position);
    }
  });
  return out;
}

uint64_t KvCache::payload_bytes() const {
  uint64_t total = 0;
  each_part([&](uint32_t, uint32_t, const PartSpec& spec, const Part& part) {
    for (RowRange rows : demanded_rows(spec, tokens())) total += part.rows->bytes(rows);
    if (demands_carry(spec, tokens()) || demands_snapshot(spec, tokens())) {
      total += part.state.size();
    }
  });
  return total;
}

}  // namespace kv
