// Transform coding of a model's rows as `cachectl quality` measures it: the file that `cachectl
// tune
// --coding tc` writes, and the coding as a function on rows, which counts the bytes that it takes.
//
// Measured only: no profile names such a set yet (codec/TRANSFORM.md). One thread.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "proto/transform.h"
#include "tools/cachectl_quality_settings.h"

namespace kv::cachectl {

inline constexpr uint32_t kTransformsMagic = 0x3153544B;  // "KTS1"
inline constexpr uint32_t kExactTransformTokens = 4;

/// Layout: "KTS1", fingerprint of the model (32 bytes), SHA-256 of the rest (32), the set
/// (codec/TRANSFORM.md): K and V of row_parts() in order. Returns: not_found, corruption,
/// invalid_argument (another model's).
Result<TransformSet> read_transforms(const std::string& path, const ModelSpec& spec);
/// False also where there is no such file.
bool is_transforms_file(const std::string& path);

/// Rows through the coding and back as fp16, block by block; `bytes` counts what all rows took.
/// Returns: what coders return.
Result<RowCoder> transform_coder(const ModelSpec& spec, const TransformSet& transforms,
                                 std::shared_ptr<CodedBytes> bytes);
/// `code` on the rows of each block of kTeacherBlock; rows before kExactTransformTokens stay.
Status each_transformed_block(uint32_t first, std::span<float> rows, size_t width,
                              const std::function<Status(uint32_t, std::span<float>)>& code);

}  // namespace kv::cachectl
