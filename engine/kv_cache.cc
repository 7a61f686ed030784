// Taking over, growing and sealing of a sequence. See kv_cache.h.
#include "engine/kv_cache.h"

#include <algorithm>
#include <cstring>

namespace kv {
namespace {

constexpr Side kSides[] = {Side::k, Side::v};

const Plane* find_plane(const Object& object, uint32_t layer, Side side) {
  for (const Plane& p : object.planes) {
    if (p.layer == layer && p.part == 0 && p.side == side) return &p;
  }
  return nullptr;
}

// One past the last coded row; the plane's first row if there is none.
uint32_t codes_end(const Plane& p) {
  uint32_t row = p.first_row, end = p.first_row;
  for (const RowRun& run : p.runs) {
    row += run.rows;
    if (run.form == RunForm::codes) end = row;
  }
  return end;
}

}  // namespace

KvCache::KvCache(std::shared_ptr<const Codec> codec, Realm realm)
    : codec_(std::move(codec)),
      realm_(std::move(realm)),
      block_tokens_(codec_->profile().block_tokens) {
  const PartSpec& part = codec_->model().layers.at(0).parts.at(0);
  row_bytes_ = uint64_t{part.heads} * part.k_dim * dtype_bytes(codec_->profile().raw_dtype);
  clear();
}

void KvCache::clear() {
  size_t layers = codec_->model().layers.size();
  tokens_.clear();
  blocks_.clear();
  growing_.clear();
  fetched_.clear();
  open_.assign(layers, std::vector<Open>(2));
  sealed_.assign(layers, 0);
  rows_.clear();
  for (uint32_t l = 0; l < layers; ++l) rows_.emplace_back(codec_, l, 0);
  lease_ = Lease();
}

Status KvCache::adopt(Lease lease, std::span<const Token> tokens) {
  clear();
  lease_ = std::move(lease);
  const Prefix& prefix = lease_.prefix();
  if (prefix.tokens > tokens.size()) return corruption("fetch: more rows than the query has");
  Status status = adopt_objects(prefix);
  for (uint32_t l = 0; status.ok() && l < rows_.size(); ++l) status = seal(l);
  if (!status.ok()) {
    clear();
    return status;
  }
  advance(tokens.first(prefix.tokens));
  for (const FetchedObject& f : prefix.objects) fetched_.push_back(f.object);
  return {};
}

Status KvCache::adopt_objects(const Prefix& prefix) {
  uint32_t covered = 0;
  std::vector<const Object*> open;
  for (const FetchedObject& f : prefix.objects) {
    const Object& o = *f.object;
    uint32_t end = std::min({f.end_token, o.end_token(), prefix.tokens});
    if (end <= covered) continue;
    if (o.first_token > covered)
      return corruption("fetch: a gap before row " + std::to_string(o.first_token));
    KV_RETURN_IF_ERROR(validate(o, codec_->model(), codec_->profile()));
    if (o.name.kind == ObjectKind::block && open.empty() && o.first_token == covered &&
        end == o.end_token()) {
      for (uint32_t l = 0; l < rows_.size(); ++l) {
        const Plane *k = find_plane(o, l, Side::k), *v = find_plane(o, l, Side::v);
        if (k == nullptr || v == nullptr) return corruption("fetch: a plane is missing");
        KV_RETURN_IF_ERROR(rows_[l].add(*k, *v, covered, end));
        ++sealed_[l];
      }
      blocks_.push_back(f.object);
    } else {
      open.push_back(&o);
    }
    covered = end;
  }
  if (covered < prefix.tokens) return corruption("fetch: rows are missing at the end");
  for (uint32_t l = 0; l < rows_.size() && !open.empty(); ++l) {
    KV_RETURN_IF_ERROR(open_with(l, open, covered));
  }
  return {};
}

// The layer's open rows become [begin, end) of `objects`, each up to where the next one begins.
Status KvCache::open_with(uint32_t layer, const std::vector<const Object*>& objects, uint32_t end) {
  Plane whole[2];
  uint32_t split = begin(layer);
  for (Side side : kSides) {
    std::vector<Plane> pieces;
    uint32_t at = begin(layer);
    for (const Object* o : objects) {
      const Plane* p = find_plane(*o, layer, side);
      uint32_t stop = std::min(o->end_token(), end);
      if (p == nullptr) return corruption("fetch: a plane is missing");
      KV_ASSIGN_OR_RETURN(Plane piece, slice_rows(*p, at, stop));
      pieces.push_back(std::move(piece));
      at = stop;
    }
    KV_ASSIGN_OR_RETURN(whole[static_cast<size_t>(side)], join_rows(pieces));
    split = std::max(split, codes_end(whole[static_cast<size_t>(side)]));
  }
  for (Side side : kSides) {
    const Plane& p = whole[static_cast<size_t>(side)];
    Open& open = open_[layer][static_cast<size_t>(side)];
    if (split > p.first_row) {
      KV_ASSIGN_OR_RETURN(open.head, slice_rows(p, p.first_row, split));
    }
    size_t exact = (end - split) * row_bytes_;  // rows after the last code run: the bytes' end
    open.exact.assign(p.bytes.data() + p.bytes.size() - exact, p.bytes.data() + p.bytes.size());
  }
  return show_open(layer);
}

uint32_t KvCache::open_rows(uint32_t layer) const {
  const Open& open = open_[layer][0];
  return open.head.rows() + static_cast<uint32_t>(open.exact.size() / row_bytes_);
}

// The first `rows` of the exact open rows, in place of a copy: no one keeps it beyond the call.
Plane KvCache::exact_plane(uint32_t layer, Side side, uint32_t rows) const {
  const PartSpec& part = codec_->model().layers[layer].parts[0];
  const Open& open = open_[layer][static_cast<size_t>(side)];
  Plane p;
  p.layer = static_cast<uint16_t>(layer);
  p.side = side;
  p.dtype = codec_->profile().raw_dtype;
  p.heads = part.heads;
  p.dim = part.k_dim;
  p.first_row = begin(layer) + open.head.rows();
  p.runs = {{RunForm::exact, rows}};
  p.bytes = Bytes(nullptr, open.exact.data(), rows * row_bytes_);
  return p;
}

// The first `rows` open rows as a plane of its own.
Result<Plane> KvCache::open_plane(uint32_t layer, Side side, uint32_t rows) const {
  const Plane& head = open_[layer][static_cast<size_t>(side)].head;
  std::vector<Plane> pieces;
  if (head.rows() > 0) {
    KV_CHECK(rows >= head.rows());
    pieces.push_back(head);
  }
  if (rows > head.rows()) pieces.push_back(exact_plane(layer, side, rows - head.rows()));
  return join_rows(pieces);
}

Status KvCache::show_open(uint32_t layer) {
  const Open &k = open_[layer][0], &v = open_[layer][1];
  AttentionRows& rows = rows_[layer];
  rows.drop_from(begin(layer));
  uint32_t first = begin(layer) + k.head.rows();
  if (k.head.rows() > 0) KV_RETURN_IF_ERROR(rows.add(k.head, v.head, begin(layer), first));
  return rows.add_exact(codec_->profile().raw_dtype, k.exact.data(), v.exact.data(), first,
                        static_cast<uint32_t>(k.exact.size() / row_bytes_));
}

Status KvCache::append(uint32_t layer, uint32_t count, const float* k, const float* v) {
  fetched_.clear();
  for (Side side : kSides) {
    Plane given = exact_plane(layer, side, 0);
    given.dtype = DType::f32;
    given.first_row = begin(layer) + open_rows(layer);
    if (side == Side::v) given.first_row -= count;  // K's rows are in already
    given.runs = {{RunForm::exact, count}};
    const float* values = side == Side::k ? k : v;
    given.bytes = Bytes(nullptr, reinterpret_cast<const uint8_t*>(values),
                        size_t{count} * given.heads * given.dim * sizeof(float));
    KV_ASSIGN_OR_RETURN(Plane rounded, codec_->raw(given));
    auto& exact = open_[layer][static_cast<size_t>(side)].exact;
    auto bytes = rounded.bytes.span();
    exact.insert(exact.end(), bytes.begin(), bytes.end());
  }
  return show_open(layer);
}

Status KvCache::seal(uint32_t layer) {
  while (open_rows(layer) >= block_tokens_) {
    size_t index = sealed_[layer] - blocks_.size();
    if (index == growing_.size()) growing_.emplace_back();
    Plane coded[2];
    for (Side side : kSides) {
      KV_ASSIGN_OR_RETURN(Plane rows, open_plane(layer, side, block_tokens_));
      KV_ASSIGN_OR_RETURN(coded[static_cast<size_t>(side)], codec_->encode(rows));
      Open& open = open_[layer][static_cast<size_t>(side)];
      size_t used = (block_tokens_ - open.head.rows()) * row_bytes_;
      open.exact.erase(open.exact.begin(), open.exact.begin() + static_cast<ptrdiff_t>(used));
      open.head = Plane();
    }
    rows_[layer].drop_from(begin(layer));
    KV_RETURN_IF_ERROR(
        rows_[layer].add(coded[0], coded[1], begin(layer), begin(layer) + block_tokens_));
    ++sealed_[layer];
    for (Plane& p : coded) growing_[index].push_back(std::move(p));
  }
  return show_open(layer);
}

Object KvCache::new_object(ObjectKind kind, uint32_t first, uint32_t end) const {
  Object o;
  o.name.kind = kind;
  if (!blocks_.empty()) o.parent = blocks_.back()->name.id;
  o.first_token = first;
  o.tokens.assign(tokens_.begin() + first, tokens_.begin() + end);
  stamp(o, realm_);
  return o;
}

void KvCache::advance(std::span<const Token> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  for (auto& planes : growing_) {
    KV_CHECK(planes.size() == 2 * rows_.size());
    auto first = static_cast<uint32_t>(blocks_.size()) * block_tokens_;
    auto object =
        std::make_shared<Object>(new_object(ObjectKind::block, first, first + block_tokens_));
    object->planes = std::move(planes);
    blocks_.push_back(std::move(object));
  }
  growing_.clear();
  KV_CHECK(begin(0) + open_rows(0) == tokens_.size());
}

Status KvCache::decode(uint32_t layer, Side side, float* out) const {
  const PartSpec& part = codec_->model().layers[layer].parts[0];
  size_t row_values = size_t{part.heads} * part.k_dim;
  auto decode_one = [&](const Plane& p) {
    auto* dst = reinterpret_cast<uint8_t*>(out + p.first_row * row_values);
    return codec_->decode_rows(p, p.first_row, p.end_row(), DType::f32,
                               {dst, p.rows() * row_values * sizeof(float)});
  };
  for (const ObjectPtr& block : blocks_) {
    KV_RETURN_IF_ERROR(decode_one(*find_plane(*block, layer, side)));
  }
  const Open& open = open_[layer][static_cast<size_t>(side)];
  if (open.head.rows() > 0) KV_RETURN_IF_ERROR(decode_one(open.head));
  auto exact = static_cast<uint32_t>(open.exact.size() / row_bytes_);
  return exact > 0 ? decode_one(exact_plane(layer, side, exact)) : Status();
}

Result<ObjectPtr> KvCache::tail() const {
  auto first = static_cast<uint32_t>(blocks_.size()) * block_tokens_;
  if (first == tokens()) return ObjectPtr();
  auto object = std::make_shared<Object>(new_object(ObjectKind::tail, first, tokens()));
  for (uint32_t l = 0; l < rows_.size(); ++l) {
    for (Side side : kSides) {
      KV_ASSIGN_OR_RETURN(Plane p, open_plane(l, side, open_rows(l)));
      object->planes.push_back(std::move(p));
    }
  }
  return ObjectPtr(std::move(object));
}

}  // namespace kv
