// ModelSpec: the shape of a model's cache, described by values and never by class names.
//
// A model is its identity (name, fingerprint) and its geometry: one LayerSpec per layer, each with
// zero or more parts (a plain layer has one; one that shares another's KV has none).
// Specs are plain immutable values: any thread. Encoded form: FORMAT.md, "Model".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/bytes.h"
#include "proto/checksum.h"
#include "proto/limits.h"
#include "proto/status.h"

namespace kv {

enum class DType : uint8_t { f32 = 1, f16 = 2, bf16 = 3 };
uint32_t dtype_bytes(DType dtype);
const char* to_string(DType dtype);

/// Kind of a part: it decides the rows that a hit at length n needs (proto/demand.h).
enum class PartKind : uint8_t {
  full = 1,    ///< rows [0, n)
  window = 2,  ///< the newest `window` positions and the first `keep`
  chunk = 3,   ///< rows since the last multiple of `chunk`
  latent = 4,  ///< MLA: rows [0, n), never coded
  pooled = 5,  ///< a row per `rate` tokens, and a carry
  state = 6,   ///< recurrent state: a snapshot at exactly n, whose bytes are values of its dtype
  opaque = 7,  ///< bytes that only the engine understands: a snapshot at exactly n
};
const char* to_string(PartKind kind);

enum class Side : uint8_t { k = 0, v = 1, other = 2 };
const char* to_string(Side side);

/// Place where a `state`/`opaque` part is exported.
enum class SnapshotPlace : uint8_t { checkpoint = 0, block_end = 1 };

/// A part of a layer. Fields that its kind doesn't use are 0.
struct PartSpec {
  PartKind kind = PartKind::full;
  DType dtype = DType::f16;  ///< the engine's dtype
  uint32_t heads = 0;        ///< kv heads; 1 for latent and pooled
  uint32_t k_dim = 0;        ///< values per row and head of K (or of the one storage)
  uint32_t v_dim = 0;        ///< values per row and head of V; 0: K and V are one storage (`other`)
  uint32_t window = 0;       ///< window: newest positions that a query sees, itself included
  uint32_t keep = 0;         ///< window: sinks, not counted in `window`
  uint32_t chunk = 0;        ///< chunk: its size
  uint32_t rate = 0;         ///< pooled: tokens per row
  bool overlap = false;      ///< pooled: a group also takes from the previous one
  SnapshotPlace snapshot = SnapshotPlace::checkpoint;  ///< state, opaque
  std::string label;  ///< the engine's own class name, kept for round trips only
  bool operator==(const PartSpec&) const = default;

  bool has_rows() const { return kind != PartKind::state && kind != PartKind::opaque; }
  /// Rows live in the block itself (full, latent, pooled) or in supplements (window, chunk).
  bool rows_in_block() const {
    return kind == PartKind::full || kind == PartKind::latent || kind == PartKind::pooled;
  }
};

struct LayerSpec {
  std::vector<PartSpec> parts;
  bool operator==(const LayerSpec&) const = default;
};

/// A side of a part: heads x dim values per row.
struct SideSpec {
  Side side;
  uint32_t heads;
  uint32_t dim;
};
/// The sides that a part's planes have, in order: {k, v}, or {other}; none for state and opaque.
std::vector<SideSpec> sides_of(const PartSpec& part);

struct ModelSpec {
  std::string name;  ///< label; not part of the identity
  Id fingerprint;    ///< SHA-256 over weights, dtype, rope, adapter: the identity
  std::vector<LayerSpec> layers;
  bool operator==(const ModelSpec&) const = default;
};

/// Returns: invalid_argument naming layer, part, field and limit; unsupported for a cache that is
/// no function of the prefix, or a pooled rate that does not divide `block_tokens`.
Status validate(const ModelSpec& model, uint32_t block_tokens);

void encode(const ModelSpec& model, ByteWriter& out);
/// Decodes a model; any bytes are safe input. Returns: corruption.
Result<ModelSpec> decode_model(ByteReader& in);

/// A group of parts that are equal in every field, numbered by first appearance.
struct PartGroup {
  PartSpec spec;  ///< the first part's
  struct Member {
    uint16_t layer;
    uint16_t part;
  };
  std::vector<Member> members;
};
/// Takes O(parts log groups): a stranger's model may have thousands of either.
std::vector<PartGroup> part_groups(const ModelSpec& model);

/// Bytes per token of the model's rows in fp16 (windows counted whole): for ratios shown to people.
uint64_t fp16_bytes_per_token(const ModelSpec& model);

}  // namespace kv
