// GgufFile: a read-only view of a GGUF version 3 model file: its metadata and its packed tensors.
//
// Any bytes are safe input: every count and length is capped and checked against what is left
// before anything is allocated, and every tensor's byte range lies inside the file. Strings and
// tensors are views into the file's bytes, which live as long as the GgufFile or a copy of it.
// Immutable after open: any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "proto/bytes.h"
#include "proto/status.h"

namespace kv {

/// ggml's numbers of the tensor types that the engine can multiply with.
enum class TensorType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_1 = 3,
  q5_0 = 6,
  q8_0 = 8,
  q4_k = 12,
  q6_k = 14
};
const char* to_string(TensorType type);
/// Bytes of one row of `columns` values. `columns` is a multiple of the type's group (1, 32 or
/// 256).
uint64_t row_bytes(TensorType type, uint64_t columns);

/// One tensor: dims[0] is the fastest-running axis, as GGUF has it.
struct GgufTensor {
  std::string_view name;
  TensorType type = TensorType::f32;
  std::vector<uint64_t> dims;
  std::span<const uint8_t> data;
  std::span<const uint8_t> info;  ///< name, dims and type as they lie in the file
};

/// A metadata value. Integers and bools widen; arrays of numbers are kept only as int32 or float.
using GgufValue =
    std::variant<uint64_t, int64_t, double, bool, std::string_view, std::vector<std::string_view>,
                 std::vector<int32_t>, std::vector<float>>;

class GgufFile {
 public:
  /// Reads the file into memory with 2 MiB pages, if the system has some: weights are read from end
  /// to end for every token, sooner than through a file's 4 KiB pages, and whoever truncates the
  /// file later does no harm. Returns: io_error (names the path), resource_exhausted, corruption,
  /// unsupported (tensor type or version, by name).
  static Result<GgufFile> open(const std::string& path);
  /// The same over bytes in memory. Returns: corruption, unsupported.
  static Result<GgufFile> parse(Bytes bytes);

  /// Typed metadata. Returns: corruption naming the key if it is absent or of another type.
  Result<uint64_t> integer(std::string_view key) const;
  Result<double> number(std::string_view key) const;
  Result<std::string_view> text(std::string_view key) const;
  Result<std::span<const std::string_view>> texts(std::string_view key) const;
  Result<std::span<const int32_t>> integers(std::string_view key) const;
  Result<std::span<const float>> floats(std::string_view key) const;
  bool has(std::string_view key) const { return values_.find(key) != values_.end(); }

  std::vector<std::string_view> keys() const;  ///< of all metadata, ascending
  /// Key, type and value as they lie in the file; empty if there is no such key.
  std::span<const uint8_t> entry(std::string_view key) const;

  /// The tensor of this name, or nullptr.
  const GgufTensor* tensor(std::string_view name) const;
  const std::vector<GgufTensor>& tensors() const { return tensors_; }  ///< in file order
  const Bytes& bytes() const { return bytes_; }
  /// Empties all tensors; of a file that open() read their memory goes back to the system, whoever
  /// holds bytes() for what stands before them.
  void drop_data();

 private:
  friend class GgufParser;
  Bytes bytes_;
  bool own_memory_ = false;
  std::map<std::string_view, GgufValue, std::less<>> values_;
  std::map<std::string_view, std::span<const uint8_t>, std::less<>> entries_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string_view, size_t, std::less<>> by_name_;
};

}  // namespace kv
