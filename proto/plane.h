// Plane, StateBlob and Object: the stored values, in memory, on the wire and on disk.
//
// A plane is the bytes of one side (K, V or other) of one part over a row range: a list of row
// runs, each `exact` (rows as given) or `codes`. An object is one unit of storage: a block, a tail,
// a supplement or a snapshot. Both are immutable once built and shared by reference: any thread.
//
// Run layouts (FORMAT.md, "Plane payload"), R rows, H heads, D dim:
//   exact  (R, H, D) of dtype, row-major by position: token-major
//   codes  codes (H, R, code_bytes(D, bits)), then scales (H, R) f16: head-major, so that attention
//          reads one head's rows as one stream
//   stream of transform coding (codec/TRANSFORM.md), of any length: all its rows, of which the run
//          has some. Nothing here decodes one: what is cut keeps all of it.
// Runs lie in `bytes` in order, without gaps, and together cover rows [first_row, end_row()).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proto/bytes.h"
#include "proto/checksum.h"
#include "proto/model.h"
#include "proto/profile.h"
#include "proto/status.h"

namespace kv {

using Token = int32_t;

enum class RunForm : uint8_t { exact = 0, codes = 1, stream = 2 };
const char* to_string(RunForm form);
static_assert(kMaxStreamRows >= kMaxBlockTokens, "a block's rows are one stream");

struct RowRun {
  RunForm form = RunForm::exact;
  uint32_t rows = 0;
  // Fields of a stream, 0 in other runs:
  uint32_t bytes = 0;  ///< its length
  uint32_t skip = 0;   ///< its rows before the run's
  uint32_t of = 0;     ///< all its rows: at least skip + rows
  bool operator==(const RowRun&) const = default;
};

struct Plane {
  uint16_t layer = 0;
  uint16_t part = 0;
  Side side = Side::k;
  DType dtype = DType::f16;  ///< dtype of exact runs
  uint8_t bits = 0;          ///< bits of code runs; 0 if there are none
  uint32_t heads = 0;
  uint32_t dim = 0;
  /// Absolute: the position of the first row's token (pooled: position / rate).
  uint32_t first_row = 0;
  std::vector<RowRun> runs;
  Bytes bytes;  ///< exactly plane_bytes(*this)

  uint32_t rows() const;
  uint32_t end_row() const { return first_row + rows(); }
  bool operator==(const Plane&) const = default;
};

/// True: some run is codes or a stream.
bool has_coded_runs(const Plane& plane);
/// kTransformWord if it has a stream, else its bits.
uint8_t coding_word(const Plane& plane);
/// Bytes of one coded vector without its scale: dim * bits / 8, rounded up. `bits` is 1 to 4 or 8.
uint64_t code_bytes(uint32_t dim, uint8_t bits);
/// Bytes of `rows` exact or coded rows, scales included.
uint64_t run_bytes(const Plane& plane, RunForm form, uint64_t rows);
/// Bytes of a run of the plane.
uint64_t run_bytes(const Plane& plane, const RowRun& run);
/// Length that `plane.bytes` must have, from the runs.
uint64_t plane_bytes(const Plane& plane);
/// Rows [first, end) of `plane` as a new plane with bytes of its own (slicing commutes with the
/// codec: nothing is decoded; a stream stays whole). Returns: invalid_argument if the plane lacks a
/// row.
Result<Plane> slice_rows(const Plane& plane, uint32_t first, uint32_t end);
/// Joins planes of one side whose row ranges follow each other into one; adjacent runs of one form
/// become one run, of streams only those that were cut from one. Returns: invalid_argument naming
/// the first plane that doesn't fit.
Result<Plane> join_rows(const std::vector<Plane>& planes);

/// The bytes of one state, opaque or carry at exactly one position.
struct StateBlob {
  uint16_t layer = 0;
  uint16_t part = 0;
  Bytes bytes;
  bool operator==(const StateBlob&) const = default;
};

/// A further input of a block beside its tokens: media or an adapter at a position (absolute).
struct Extra {
  uint32_t position = 0;
  std::vector<uint8_t> bytes;
  bool operator==(const Extra&) const = default;
};

enum class ObjectKind : uint8_t { block = 1, tail = 2, supplement = 3, snapshot = 4 };
const char* to_string(ObjectKind kind);
/// A block or tail, which has a place of its own on a prefix's path; others hang on one.
constexpr bool is_main(ObjectKind kind) {
  return kind == ObjectKind::block || kind == ObjectKind::tail;
}

/// Names one stored object within a directory or pool; also its file name (FORMAT.md, "Names").
struct ObjectName {
  ObjectKind kind = ObjectKind::block;
  Id id;                   ///< block, tail: its id; supplement: its block's id; snapshot: its own
  uint16_t group = 0;      ///< supplement: part group
  uint32_t first_row = 0;  ///< supplement: row range; carries have first_row == end_row
  uint32_t end_row = 0;
  auto operator<=>(const ObjectName&) const = default;
};
struct ObjectNameHash {
  size_t operator()(const ObjectName& n) const {
    return IdHash{}(n.id) ^ (size_t{n.first_row} << 17) ^ (size_t{n.group} << 48) ^
           static_cast<size_t>(n.kind);
  }
};

struct Object {
  ObjectName name;
  Id parent;  ///< the block before this one (snapshot: before its position); zero at the root
  Id profile;
  std::string ns;            ///< namespace
  Id fingerprint;            ///< the model's
  uint32_t first_token = 0;  ///< absolute position of tokens[0]
  /// block: block_tokens of them; tail: 1 … block_tokens − 1; snapshot: those from its parent's end
  /// up to its position (0 … block_tokens − 1); supplement: its block's.
  std::vector<Token> tokens;
  std::vector<Extra> extras;  ///< positions in [first_token, first_token + tokens.size())
  std::vector<Plane> planes;
  std::vector<StateBlob> states;

  uint32_t end_token() const { return first_token + static_cast<uint32_t>(tokens.size()); }
  uint64_t payload_bytes() const;  ///< planes and states, as they lie in memory
};
using ObjectPtr = std::shared_ptr<const Object>;

/// Plane shapes against part and profile; runs against bytes; rows of a block's parts complete;
/// exact dtypes as the profile demands; code runs only with the profile's bits and only in rows
/// >= exact_tokens; code runs that are not in blocks or supplements only at the start of a tail;
/// streams likewise, where the profile names a transform. Finiteness is the codec's job. Returns:
/// invalid_argument naming layer, part, side, expected and given.
Status validate(const Object& object, const ModelSpec& model, const Profile& profile);

/// The object without its payload: identity, tokens, plane table, state table. The payload follows
/// elsewhere: all planes' bytes in order, then all states' bytes in order.
void encode_header(const Object& object, ByteWriter& out);
/// The inverse; planes and states are empty slices until attach_payload. Returns: corruption.
Result<Object> decode_header(ByteReader& in);
/// Points planes and states into `payload` (shared, not copied). Returns: corruption if sizes
/// differ.
Status attach_payload(Object& object, const Bytes& payload);

}  // namespace kv
