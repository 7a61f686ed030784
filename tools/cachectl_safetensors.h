// Safetensors: named tensors and named texts in one file
// (https://github.com/huggingface/safetensors), read with every length checked. Plain values, any
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/bytes.h"
#include "proto/status.h"

namespace kv::cachectl {

struct Tensor {
  std::string name;
  std::string dtype;  ///< U8, F16, BF16, F32
  std::vector<uint64_t> shape;
  Bytes bytes;
};

struct Safetensors {
  std::map<std::string, std::string> texts;  ///< __metadata__
  std::vector<Tensor> tensors;               ///< in the order of their bytes

  /// Null if there is none of the name.
  const Tensor* find(const std::string& name) const;
};

/// Writes a new file, readable by this user only. Returns: io_error (it is there already, too).
Status write_safetensors(const std::string& path, const Safetensors& content);
/// Returns: not_found, io_error; corruption with what is wrong.
Result<Safetensors> read_safetensors(const std::string& path);

}  // namespace kv::cachectl
