// PartRows: the rows of one part of one layer, in the very form in which they are stored.
//
// Rows of complete blocks are sealed: coded under the profile where the part is coded; attention
// takes streams decoded, once. The rest,
// the open rows, are exact in the raw dtype, perhaps after code runs from a clipped block.
// All rows taken over or appended are kept, also those that a window no longer sees: a store may
// ask for them. Rows count from the sequence's start; pooled parts have one per `rate` tokens.
// One thread at a time; the views may be read by many meanwhile, until the next change.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "codec/attention.h"
#include "codec/codec.h"
#include "proto/demand.h"

namespace kv {

/// Calls the task for 0 … count - 1, in any order and perhaps at once; returns when all are done.
using EachTask = std::function<void(uint32_t count, const std::function<void(uint32_t)>& task)>;

/// The rows of a part whose K and V are one storage, widened to f32.
struct ValueRows {
  uint32_t width = 0;             ///< values per row: heads * k_dim
  uint32_t first = 0, end = 0;    ///< rows [first, end) lie one after the other
  uint32_t sinks = 0;             ///< rows [0, sinks) too; 0 where first is 0
  const float* values = nullptr;  ///< row `first`
  const float* sink_values = nullptr;

  /// (width) of a row in [first, end) or below `sinks`.
  const float* row(uint32_t r) const {
    return r < sinks ? sink_values + size_t{r} * width : values + size_t{r - first} * width;
  }
};

class PartRows {
 public:
  /// A part with rows.
  PartRows(std::shared_ptr<const Codec> codec, uint32_t layer, uint32_t part);

  const PartSpec& spec() const { return *spec_; }
  uint32_t end_row() const;
  bool holds(RowRange rows) const;
  /// For a part with separate K and V: what a token at end_row() may see, perhaps more. Limit it
  /// per query (RowLimit): the result does not depend on how many older rows are in it.
  const AttentionRows& attention() const { return attention_; }
  /// For a part with one storage: likewise.
  ValueRows values() const;

  /// Rows as (rows, heads, dim) f32 into `out`. Returns: invalid_argument if one isn't held.
  Status decode(Side side, RowRange rows, float* out) const;
  /// Rows as a plane of their own. Returns: as decode.
  Result<Plane> cut(Side side, RowRange rows) const;
  /// The open rows can be cut as they are now, with cut_marked, after their block is sealed too:
  /// until the next mark, take, or rewind before end_row(). In place of an earlier mark.
  void mark();
  /// As cut; rows that were open at mark() in the form that they had then.
  Result<Plane> cut_marked(Side side, RowRange rows) const;
  /// Payload bytes of these rows as they are held, all sides; they are held.
  uint64_t bytes(RowRange rows) const;
  /// The planes of a complete block of a part whose rows are in the block: one per side.
  std::span<const Plane> block(size_t index) const { return sealed_[index].sides; }

  /// Appends rows: one (count, heads, dim) f32 per side, rounded to the raw dtype. Returns:
  /// invalid_argument (a value not finite or beyond the raw dtype); the rows are then unusable.
  Status append(uint32_t count, std::span<const float* const> sides);
  /// Seals the blocks that the open rows fill; `each` as for KvCache::seal. Returns: as append.
  Status seal(const EachTask& each = nullptr);

  /// Rows of a stored object that are taken over.
  struct Source {
    std::vector<const Plane*> sides;
    RowRange rows;
    bool coded = true;  ///< in the form of a complete block; else exact, of a tail
  };
  /// In place of everything here. `sources` ascend and have all that a cache of `tokens` tokens
  /// holds. Returns: invalid_argument (a row is missing).
  Status take(std::span<const Source> sources, uint32_t tokens);
  /// Forgets the rows of `tokens` on, a block end.
  Status rewind(uint32_t tokens);

 private:
  struct Piece {  // a stretch of rows, one plane per side
    std::vector<Plane> sides;
    /// Where a side has streams: both sides as attention takes them, decoded to the raw dtype.
    std::vector<Plane> decoded{};
    RowRange rows() const { return {sides[0].first_row, sides[0].end_row()}; }
  };
  Result<Piece> cut_piece(RowRange rows) const;
  std::vector<RowRange> open_stretches(uint32_t end) const;
  static Result<Plane> side_of(Piece piece, Side side);
  Status keep_marked();
  Plane exact_plane(size_t side, RowRange rows) const;
  template <typename Visit>
  Status visit(size_t side, RowRange rows, Visit&& call) const;
  Status take_open(std::vector<Piece> open);
  Status show();
  Status show_values(RowRange rows, std::vector<float>& out) const;
  Status show_open();
  Status show_piece(Piece& piece);
  Status code(std::span<Piece> pieces, const EachTask& each);
  bool sees(RowRange rows) const;
  RowRange seen() const;

  std::shared_ptr<const Codec> codec_;
  const PartSpec* spec_;
  uint16_t layer_, part_;
  std::vector<SideSpec> sides_;
  std::vector<uint64_t> row_bytes_;  // of one exact row, per side
  DType raw_;
  uint32_t rate_, block_rows_;
  std::vector<Piece> sealed_;  // ascending, each within one block
  uint32_t begin_ = 0;         // first row of the open block
  std::vector<Piece> heads_;   // open rows taken over that are not in exact_
  uint32_t exact_first_ = 0;
  std::vector<std::vector<uint8_t>> exact_;  // per side: rows [exact_first_, end_row())
  RowRange marked_;                          // open at the last mark()
  std::vector<Piece> marked_rows_;  // those of them that are held, since their block was sealed
  AttentionRows attention_;
  uint32_t values_first_ = 0;
  std::vector<float> values_, sink_values_;
};

}  // namespace kv
