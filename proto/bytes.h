// Bytes: an immutable, refcounted run of bytes; ByteWriter and ByteReader: the little-endian
// encoding that every frame, file and id is written in.
//
// A Bytes is a small value: copying it counts a reference, slicing it shares the owner. Nothing can
// write through it, so a stored plane may be handed to any thread. ByteReader never reads past its
// end: after the first short read it stays failed, with a reason, and returns zeros.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/status.h"

namespace kv {

static_assert(std::endian::native == std::endian::little,
              "cachesvc runs on little-endian machines");

class Bytes {
 public:
  Bytes() = default;
  /// `owner` keeps [data, data + size) alive and unchanged for as long as any copy lives.
  Bytes(std::shared_ptr<const void> owner, const uint8_t* data, size_t size)
      : owner_(std::move(owner)), data_(data), size_(size) {}

  static Bytes owning(std::vector<uint8_t> bytes) {
    auto owner = std::make_shared<const std::vector<uint8_t>>(std::move(bytes));
    return {owner, owner->data(), owner->size()};
  }
  static Bytes copy_of(std::span<const uint8_t> bytes) {
    return owning(std::vector<uint8_t>(bytes.begin(), bytes.end()));
  }

  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::span<const uint8_t> span() const { return {data_, size_}; }
  /// [offset, offset + size) of these bytes, same owner. The caller has checked the range.
  Bytes slice(size_t offset, size_t size) const {
    KV_CHECK(offset <= size_ && size <= size_ - offset);
    return {owner_, data_ + offset, size};
  }
  bool operator==(const Bytes& other) const {
    if (size_ != other.size_) return false;
    if (size_ == 0 || data_ == other.data_) return true;
    return data_ && other.data_ && std::memcmp(data_, other.data_, size_) == 0;
  }

 private:
  std::shared_ptr<const void> owner_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

/// Appends little-endian fields to a growing buffer.
class ByteWriter {
 public:
  void u8(uint8_t v) { bytes_.push_back(v); }
  void u16(uint16_t v) { fixed(v); }
  void u32(uint32_t v) { fixed(v); }
  void u64(uint64_t v) { fixed(v); }
  void i32(int32_t v) { fixed(v); }
  void f32(float v) { fixed(v); }
  void raw(std::span<const uint8_t> v) {
    if (v.empty()) return;
    const size_t at = bytes_.size();
    bytes_.resize(at + v.size());  // g++ 12 warns of an overflow in `insert` at the end
    std::memcpy(bytes_.data() + at, v.data(), v.size());
  }
  /// u32 length, then the bytes.
  void blob(std::span<const uint8_t> v) {
    u32(static_cast<uint32_t>(v.size()));
    raw(v);
  }
  void string(std::string_view v) { blob({reinterpret_cast<const uint8_t*>(v.data()), v.size()}); }
  /// u32 count, then the values, `T` trivially copyable without padding.
  template <typename T>
  void array(std::span<const T> v) {
    static_assert(std::is_trivially_copyable_v<T>);
    u32(static_cast<uint32_t>(v.size()));
    raw({reinterpret_cast<const uint8_t*>(v.data()), v.size_bytes()});
  }

  /// Reserves room for `more` bytes, which then move nothing.
  void reserve(size_t more) { bytes_.reserve(bytes_.size() + more); }
  size_t size() const { return bytes_.size(); }
  std::span<const uint8_t> span() const { return bytes_; }
  std::vector<uint8_t>& bytes() { return bytes_; }
  std::vector<uint8_t> take() { return std::move(bytes_); }

 private:
  template <typename T>
  void fixed(T v) {
    uint8_t b[sizeof(T)];
    std::memcpy(b, &v, sizeof(T));
    bytes_.insert(bytes_.end(), b, b + sizeof(T));
  }
  std::vector<uint8_t> bytes_;
};

/// Reads what ByteWriter wrote. Every length is checked against a cap and against what is left
/// before anything is allocated.
class ByteReader {
 public:
  explicit ByteReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  uint8_t u8() { return fixed<uint8_t>(); }
  uint16_t u16() { return fixed<uint16_t>(); }
  uint32_t u32() { return fixed<uint32_t>(); }
  uint64_t u64() { return fixed<uint64_t>(); }
  int32_t i32() { return fixed<int32_t>(); }
  float f32() { return fixed<float>(); }

  std::span<const uint8_t> raw(size_t size) {
    if (failed_ || size > bytes_.size() - at_) {
      if (!failed_) fail(short_text(size));
      return {};
    }
    auto out = bytes_.subspan(at_, size);
    at_ += size;
    return out;
  }
  std::span<const uint8_t> blob(size_t max_bytes) {
    size_t size = u32();
    if (!failed_ && size > max_bytes) fail(over_text(size, max_bytes, "bytes"));
    return raw(size);
  }
  std::string string(size_t max_bytes) {
    auto b = blob(max_bytes);
    return {reinterpret_cast<const char*>(b.data()), b.size()};
  }
  template <typename T>
  std::vector<T> array(size_t max_count) {
    static_assert(std::is_trivially_copyable_v<T>);
    size_t count = u32();
    if (!failed_ && count > max_count) fail(over_text(count, max_count, "values"));
    auto b = failed_ ? std::span<const uint8_t>{} : raw(count * sizeof(T));
    std::vector<T> out(b.size() / sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), b.data(), b.size());
    return out;
  }

  /// Marks the input as bad: used by decoders for a field out of its range. The reason is in place
  /// of an earlier one, which it may contain.
  void fail(std::string why = "out of range") {
    failed_ = true;
    why_ = std::move(why);
  }
  bool failed() const { return failed_; }
  /// Message with given and expected values; empty unless failed.
  const std::string& why() const { return why_; }
  size_t left() const { return bytes_.size() - at_; }
  size_t at() const { return at_; }
  /// True if nothing failed and nothing is left over.
  bool done() const { return !failed_ && at_ == bytes_.size(); }

 private:
  [[gnu::cold]] std::string short_text(size_t wanted) const {
    return "truncated: " + std::to_string(wanted) + " bytes expected, " +
           std::to_string(bytes_.size() - at_) + " left";
  }
  [[gnu::cold]] static std::string over_text(size_t given, size_t most, const char* unit) {
    return std::to_string(given) + " " + unit + ", at most " + std::to_string(most);
  }
  template <typename T>
  T fixed() {
    T v{};
    auto b = raw(sizeof(T));
    if (!failed_) std::memcpy(&v, b.data(), sizeof(T));
    return v;
  }
  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
  bool failed_ = false;
  std::string why_;
};

}  // namespace kv
