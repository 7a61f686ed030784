// Profile: how a model's planes are coded, one immutable value; its id is the SHA-256 of its bytes.
//
// Two clients may share stored bytes only under one profile, so everything that changes a coded
// byte is in here. A profile is shared as shared_ptr<const Profile>: any thread. FORMAT.md,
// "Profile".
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "proto/bytes.h"
#include "proto/checksum.h"
#include "proto/model.h"
#include "proto/status.h"
#include "proto/transform.h"

namespace kv {

/// Bits per value of a coded side; 0: kept raw.
inline bool valid_bits(uint8_t bits) { return bits <= 4 || bits == 8; }
inline constexpr const char* kValidBits = "expected 0, 1, 2, 3, 4 or 8";
/// In place of bits: rows are coded by a transform of the profile's set, in streams.
inline constexpr uint8_t kTransformWord = 16;
inline constexpr uint16_t kTransformProfile = 2;  ///< codec_version of a profile with a set

/// Exact prefill, or prefill that runs block by block on the codes of the blocks before.
enum class PrefillMode : uint8_t { exact = 0, coded = 1 };

/// The coding of the sides: 0 raw, 1 to 4 TurboQuant, 8 rotated int8, kTransformWord.
struct PartCoding {
  uint8_t k_bits = 0;
  uint8_t v_bits = 0;
  std::vector<float> key_mean;  ///< (heads, k_dim), subtracted from K first; empty: zeros
  std::vector<float> key_gain;  ///< (heads, k_dim), multiplies K - mean; all > 0; empty: ones
  uint16_t k_transform = 0;     ///< kTransformWord: index into the profile's set; else 0
  uint16_t v_transform = 0;
  /// 0 for Side::other.
  uint8_t word(Side side) const {
    return side == Side::k ? k_bits : side == Side::v ? v_bits : uint8_t{0};
  }
  uint16_t transform(Side side) const { return side == Side::k ? k_transform : v_transform; }
  bool operator==(const PartCoding&) const = default;
};

struct Profile {
  uint16_t codec_version = 1;  ///< kTransformProfile with `transforms`, else 1
  uint32_t block_tokens = 256;
  PrefillMode prefill = PrefillMode::exact;
  DType raw_dtype = DType::f16;  ///< dtype of exact rows of full, window and chunk parts
  uint64_t rotation_seed = 42;   ///< codec/TURBOQUANT.md, "Signs"
  uint16_t codebook = 1;         ///< 1: Lloyd-Max for N(0,1), codec/TURBOQUANT.md
  uint32_t exact_tokens = 4;     ///< positions [0, exact_tokens) are never coded
  uint8_t requested_k_bits = 0;  ///< as requested, where a part's kind allows it
  uint8_t requested_v_bits = 0;
  /// parts[layer][part], the same shape as the model's layers: what is in force.
  std::vector<std::vector<PartCoding>> parts;
  std::shared_ptr<const SharedTransforms> transforms;  ///< null: nothing is coded by one
  bool operator==(const Profile& other) const;

  Id id() const;  ///< hashes the encoded bytes each time: keep it
  const PartCoding& coding(size_t layer, size_t part) const { return parts[layer][part]; }
};

void encode(const Profile& profile, ByteWriter& out);
/// Length of the encoded form; nothing is encoded for it.
uint64_t encoded_bytes(const Profile& profile);
/// Decodes a profile; any bytes are safe input. Returns: corruption.
Result<Profile> decode_profile(ByteReader& in);
/// Shapes against the model's geometry; bits only where the kind may be coded (engine/MODELS.md).
/// Returns: invalid_argument naming layer, part, expected and given.
Status validate(const Profile& profile, const ModelSpec& model);

}  // namespace kv
