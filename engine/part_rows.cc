// Taking over, growing, sealing and cutting of one part's rows. See part_rows.h.
#include "engine/part_rows.h"

#include <algorithm>
#include <cstring>

namespace kv {
namespace {

std::string text(RowRange r) {
  return "[" + std::to_string(r.first) + ", " + std::to_string(r.end) + ")";
}

// One past the last coded row; the plane's first row if there is none.
uint32_t codes_end(const Plane& p) {
  uint32_t row = p.first_row, end = p.first_row;
  for (const RowRun& run : p.runs) {
    row += run.rows;
    if (run.form != RunForm::exact) end = row;
  }
  return end;
}

// Bytes of rows [first, end) of a plane that has them.
uint64_t bytes_between(const Plane& p, RowRange rows) {
  uint64_t bytes = 0;
  uint32_t row = p.first_row;
  for (const RowRun& run : p.runs) {
    uint32_t a = std::max(row, rows.first), b = std::min(row + run.rows, rows.end);
    if (a < b) {
      bytes += run.form == RunForm::stream ? uint64_t{run.bytes} * (b - a) / run.rows
                                           : run_bytes(p, run.form, b - a);
    }
    row += run.rows;
  }
  return bytes;
}

}  // namespace

PartRows::PartRows(std::shared_ptr<const Codec> codec, uint32_t layer, uint32_t part)
    : codec_(std::move(codec)),
      spec_(&codec_->model().layers[layer].parts[part]),
      layer_(static_cast<uint16_t>(layer)),
      part_(static_cast<uint16_t>(part)),
      sides_(sides_of(*spec_)),
      raw_(codec_->side(layer, part, sides_[0].side)->raw_dtype),
      rate_(spec_->kind == PartKind::pooled ? spec_->rate : 1),
      block_rows_(codec_->profile().block_tokens / rate_),
      exact_(sides_.size()),
      attention_(codec_, layer, part) {
  for (const SideSpec& s : sides_) {
    row_bytes_.push_back(uint64_t{s.heads} * s.dim * dtype_bytes(raw_));
  }
}

uint32_t PartRows::end_row() const {
  return exact_first_ + static_cast<uint32_t>(exact_[0].size() / row_bytes_[0]);
}

// Exact open rows in place of a copy: no one keeps the plane beyond the next change.
Plane PartRows::exact_plane(size_t side, RowRange rows) const {
  Plane p;
  p.layer = layer_;
  p.part = part_;
  p.side = sides_[side].side;
  p.dtype = raw_;
  p.heads = sides_[side].heads;
  p.dim = sides_[side].dim;
  p.first_row = rows.first;
  if (!rows.empty()) p.runs = {{RunForm::exact, rows.end - rows.first}};
  p.bytes = Bytes(nullptr, exact_[side].data() + (rows.first - exact_first_) * row_bytes_[side],
                  (rows.end - rows.first) * row_bytes_[side]);
  return p;
}

// Calls call(plane, rows) for the stretches that make up `rows`, in order.
template <typename Visit>
Status PartRows::visit(size_t side, RowRange rows, Visit&& call) const {
  uint32_t at = rows.first;
  auto in = [&](const Plane& p) -> Status {
    if (p.first_row > at || p.end_row() <= at || at >= rows.end) return {};
    RowRange part{at, std::min(p.end_row(), rows.end)};
    at = part.end;
    return call(p, part);
  };
  for (const Piece& p : sealed_) KV_RETURN_IF_ERROR(in(p.sides[side]));
  for (const Piece& p : heads_) KV_RETURN_IF_ERROR(in(p.sides[side]));
  KV_RETURN_IF_ERROR(in(exact_plane(side, {exact_first_, end_row()})));
  if (at >= rows.end) return {};
  return invalid_argument("layer " + std::to_string(layer_) + " part " + std::to_string(part_) +
                          ": rows " + text(rows) + " are not all held");
}

bool PartRows::holds(RowRange rows) const {
  return visit(0, rows, [](const Plane&, RowRange) { return Status(); }).ok();
}

Status PartRows::decode(Side side, RowRange rows, float* out) const {
  for (size_t s = 0; s < sides_.size(); ++s) {
    if (sides_[s].side != side) continue;
    size_t width = size_t{sides_[s].heads} * sides_[s].dim;
    return visit(s, rows, [&](const Plane& p, RowRange r) {
      auto* dst = reinterpret_cast<uint8_t*>(out + (r.first - rows.first) * width);
      return codec_->decode_rows(p, r.first, r.end, DType::f32,
                                 {dst, (r.end - r.first) * width * sizeof(float)});
    });
  }
  return invalid_argument("layer " + std::to_string(layer_) + " part " + std::to_string(part_) +
                          " has no side " + to_string(side));
}

Result<PartRows::Piece> PartRows::cut_piece(RowRange rows) const {
  Piece out;
  for (size_t s = 0; s < sides_.size(); ++s) {
    std::vector<Plane> pieces;
    KV_RETURN_IF_ERROR(visit(s, rows, [&](const Plane& p, RowRange r) -> Status {
      KV_ASSIGN_OR_RETURN(Plane piece, slice_rows(p, r.first, r.end));
      pieces.push_back(std::move(piece));
      return {};
    }));
    if (pieces.size() == 1) {
      out.sides.push_back(std::move(pieces[0]));
      continue;
    }
    KV_ASSIGN_OR_RETURN(Plane joined, join_rows(pieces));
    out.sides.push_back(std::move(joined));
  }
  return out;
}

Result<Plane> PartRows::cut(Side side, RowRange rows) const {
  KV_ASSIGN_OR_RETURN(Piece piece, cut_piece(rows));
  return side_of(std::move(piece), side);
}

Result<Plane> PartRows::side_of(Piece piece, Side side) {
  for (Plane& p : piece.sides) {
    if (p.side == side) return std::move(p);
  }
  return invalid_argument(std::string("no side ") + to_string(side));
}

void PartRows::mark() {
  marked_ = {begin_, end_row()};
  marked_rows_.clear();
}

// Before the open rows are sealed.
Status PartRows::keep_marked() {
  if (marked_.empty() || !marked_rows_.empty() || marked_.first != begin_) return {};
  for (RowRange r : open_stretches(marked_.end)) {
    KV_ASSIGN_OR_RETURN(Piece piece, cut_piece(r));
    marked_rows_.push_back(std::move(piece));
  }
  return {};
}

Result<Plane> PartRows::cut_marked(Side side, RowRange rows) const {
  for (const Piece& kept : marked_rows_) {
    if (rows.first < kept.rows().first || rows.end > kept.rows().end) continue;
    KV_ASSIGN_OR_RETURN(Plane all, side_of(kept, side));
    return slice_rows(all, rows.first, rows.end);
  }
  return cut(side, rows);
}

uint64_t PartRows::bytes(RowRange rows) const {
  uint64_t total = 0;
  for (size_t s = 0; s < sides_.size(); ++s) {
    Status held = visit(s, rows, [&](const Plane& p, RowRange r) {
      total += bytes_between(p, r);
      return Status();
    });
    KV_CHECK(held.ok());
  }
  return total;
}

Status PartRows::append(uint32_t count, std::span<const float* const> sides) {
  KV_CHECK(sides.size() == sides_.size());
  uint32_t first = end_row();
  for (size_t s = 0; s < sides_.size(); ++s) {
    Plane given = exact_plane(s, {exact_first_, exact_first_});
    given.dtype = DType::f32;
    given.first_row = first;
    given.runs = {{RunForm::exact, count}};
    given.bytes = Bytes(nullptr, reinterpret_cast<const uint8_t*>(sides[s]),
                        size_t{count} * given.heads * given.dim * sizeof(float));
    KV_ASSIGN_OR_RETURN(Plane rounded, codec_->raw(given));
    auto bytes = rounded.bytes.span();
    exact_[s].insert(exact_[s].end(), bytes.begin(), bytes.end());
  }
  if (sides_.size() == 2) return show_open();
  return show_values({first, first + count}, values_);
}

// The open rows before `end` that are held: after a fetch not all need be.
std::vector<RowRange> PartRows::open_stretches(uint32_t end) const {
  std::vector<RowRange> stretches;
  for (const Piece& p : heads_) {
    bool follows = !stretches.empty() && stretches.back().end == p.rows().first;
    if (follows)
      stretches.back().end = p.rows().end;
    else
      stretches.push_back(p.rows());
  }
  uint32_t from = std::max(exact_first_, begin_);
  bool follows = !stretches.empty() && stretches.back().end == from;
  if (follows)
    stretches.back().end = end;
  else if (from < end)
    stretches.push_back({from, end});
  return stretches;
}

bool PartRows::sees(RowRange rows) const {
  return rows.end > seen().first || rows.first < spec_->keep;
}

// Codes all sides of the pieces, and decodes what attention is to see of streams.
Status PartRows::code(std::span<Piece> pieces, const EachTask& each) {
  const size_t sides = sides_.size();
  std::vector<Status> done(pieces.size() * sides);
  std::vector<Plane> decoded(done.size());
  std::vector<bool> seen;  // before any side changes: a piece's rows are those of its first one
  for (const Piece& piece : pieces) seen.push_back(sees(piece.rows()));
  auto one = [&](uint32_t i) {
    Plane& plane = pieces[i / sides].sides[i % sides];
    Result<Plane> coded = codec_->encode(plane);
    done[i] = coded.status();
    if (!coded.ok()) return;
    plane = decoded[i] = std::move(*coded);
    if (coding_word(plane) != kTransformWord || !seen[i / sides]) return;
    Result<Plane> shown = codec_->decoded(plane, raw_);
    done[i] = shown.status();
    if (shown.ok()) decoded[i] = std::move(*shown);
  };
  const auto count = static_cast<uint32_t>(done.size());
  if (each) each(count, one);
  for (uint32_t i = 0; i < count; ++i) {
    if (!each) one(i);
    KV_RETURN_IF_ERROR(done[i]);
  }
  for (size_t p = 0; p < pieces.size(); ++p) {
    const auto first = decoded.begin() + static_cast<ptrdiff_t>(p * sides);
    const bool stream = std::ranges::any_of(
        pieces[p].sides, [](const Plane& plane) { return coding_word(plane) == kTransformWord; });
    if (stream && seen[p]) {
      pieces[p].decoded.assign(first, first + static_cast<ptrdiff_t>(sides));
    }
  }
  return {};
}

Status PartRows::seal(const EachTask& each) {
  if (end_row() < begin_ + block_rows_) return {};
  KV_RETURN_IF_ERROR(keep_marked());
  const size_t before = sealed_.size();
  while (end_row() >= begin_ + block_rows_) {
    uint32_t limit = begin_ + block_rows_;
    for (RowRange r : open_stretches(limit)) {
      KV_ASSIGN_OR_RETURN(Piece piece, cut_piece(r));
      sealed_.push_back(std::move(piece));
    }
    heads_.clear();
    begin_ = limit;
  }
  KV_RETURN_IF_ERROR(code(std::span(sealed_).subspan(before), each));
  for (size_t s = 0; s < sides_.size(); ++s) {
    // Into memory of their size: that of a long prompt's rows would stay for as long as these.
    auto used = static_cast<ptrdiff_t>((begin_ - exact_first_) * row_bytes_[s]);
    exact_[s] = std::vector<uint8_t>(exact_[s].begin() + used, exact_[s].end());
  }
  exact_first_ = begin_;
  return show();
}

Status PartRows::take(std::span<const Source> sources, uint32_t tokens) {
  KV_RETURN_IF_ERROR(rewind(0));
  uint32_t end = tokens / rate_;
  begin_ = end / block_rows_ * block_rows_;
  exact_first_ = end;
  std::vector<Piece> open;
  for (const Source& source : sources) {
    Piece piece;
    for (const Plane* p : source.sides) {
      bool whole = p->first_row == source.rows.first && p->end_row() == source.rows.end;
      if (whole) {
        piece.sides.push_back(*p);
      } else {
        KV_ASSIGN_OR_RETURN(Plane slice, slice_rows(*p, source.rows.first, source.rows.end));
        piece.sides.push_back(std::move(slice));
      }
    }
    if (source.rows.first >= begin_) {
      open.push_back(std::move(piece));
      continue;
    }
    // A complete block's rows are coded, wherever they come from.
    for (size_t s = 0; s < sides_.size() && !source.coded; ++s) {
      KV_ASSIGN_OR_RETURN(piece.sides[s], codec_->encode(piece.sides[s]));
    }
    sealed_.push_back(std::move(piece));
  }
  KV_RETURN_IF_ERROR(take_open(std::move(open)));
  return show();
}

// The exact rows at the end go where new ones are appended, all else is kept as it came.
Status PartRows::take_open(std::vector<Piece> open) {
  while (!open.empty() && open.back().rows().end == exact_first_) {
    Piece& last = open.back();
    uint32_t split = last.rows().first;
    for (const Plane& p : last.sides) split = std::max(split, codes_end(p));
    for (size_t s = 0; s < sides_.size(); ++s) {
      const Bytes& bytes = last.sides[s].bytes;
      const uint8_t* end = bytes.data() + bytes.size();
      const uint8_t* from = end - (exact_first_ - split) * row_bytes_[s];
      exact_[s].insert(exact_[s].begin(), from, end);
    }
    exact_first_ = split;
    if (split > last.rows().first) {
      for (Plane& p : last.sides) {
        KV_ASSIGN_OR_RETURN(p, slice_rows(p, p.first_row, split));
      }
      break;
    }
    open.pop_back();
  }
  heads_ = std::move(open);
  return {};
}

Status PartRows::rewind(uint32_t tokens) {
  uint32_t row = tokens / rate_;
  while (!sealed_.empty() && sealed_.back().rows().first >= row) sealed_.pop_back();
  heads_.clear();
  for (auto& bytes : exact_) bytes.clear();
  begin_ = exact_first_ = row;
  if (row < marked_.end) {
    marked_ = {};
    marked_rows_.clear();
  }
  return show();
}

// The rows, sinks apart, that a token at end_row() or later may see.
RowRange PartRows::seen() const {
  uint32_t end = end_row();
  if (spec_->kind == PartKind::window) {
    return {end + 1 > spec_->window ? end + 1 - spec_->window : 0, end};
  }
  if (spec_->kind == PartKind::chunk) return {end / spec_->chunk * spec_->chunk, end};
  return {0, end};
}

// Both kinds of view, from scratch.
Status PartRows::show() {
  RowRange rows = seen();
  if (sides_.size() == 2) {
    attention_.clear();
    for (Piece& p : sealed_) {
      if (sees(p.rows())) KV_RETURN_IF_ERROR(show_piece(p));
    }
    return show_open();
  }
  sink_values_.clear();
  values_.clear();
  uint32_t sinks = std::min(spec_->keep, rows.first);
  KV_RETURN_IF_ERROR(show_values({0, sinks}, sink_values_));
  values_first_ = rows.first;
  return show_values(rows, values_);
}

// Appends decoded rows to `out`.
Status PartRows::show_values(RowRange rows, std::vector<float>& out) const {
  if (rows.empty()) return {};
  size_t at = out.size(), width = size_t{sides_[0].heads} * sides_[0].dim;
  out.resize(at + (rows.end - rows.first) * width);
  return decode(sides_[0].side, rows, out.data() + at);
}

Status PartRows::show_piece(Piece& piece) {
  const bool streams = std::ranges::any_of(
      piece.sides, [](const Plane& p) { return coding_word(p) == kTransformWord; });
  for (size_t s = piece.decoded.size(); streams && s < piece.sides.size(); ++s) {
    const Plane& stored = piece.sides[s];
    const bool stream = coding_word(stored) == kTransformWord;
    KV_ASSIGN_OR_RETURN(Plane shown,
                        stream ? codec_->decoded(stored, raw_) : Result<Plane>(stored));
    piece.decoded.push_back(std::move(shown));
  }
  const std::vector<Plane>& sides = streams ? piece.decoded : piece.sides;
  const RowRange rows = piece.rows();
  return attention_.add(sides[0], sides[1], rows.first, rows.end);
}

Status PartRows::show_open() {
  attention_.drop_from(begin_);
  for (Piece& p : heads_) KV_RETURN_IF_ERROR(show_piece(p));
  return attention_.add_exact(raw_, exact_[0].data(), exact_[1].data(), exact_first_,
                              end_row() - exact_first_);
}

ValueRows PartRows::values() const {
  ValueRows v;
  v.width = sides_[0].heads * sides_[0].dim;
  v.first = values_first_;
  v.end = end_row();
  v.sinks = static_cast<uint32_t>(sink_values_.size() / v.width);
  v.values = values_.data();
  v.sink_values = sink_values_.data();
  return v;
}

}  // namespace kv
