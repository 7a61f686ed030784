// FieldWriter and FieldReader: the two directions of one list of fields.
//
// A message names its fields once, in the order in which they are encoded:
//   template <typename Io> void fields(Io& io, Of<Io, AbortRequest>& m) {
//     io.number("reservation", m.reservation);
//   }
// FieldWriter appends them to a ByteWriter. FieldReader fills them from a ByteReader: a field that
// is short, over its limit or out of its range fails the reader, whose why() then names the field
// (in a list by its place: "planes[3].dim"), the given value and the limit. Nothing is allocated
// before its limit is checked. One thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <type_traits>
#include <vector>

#include "proto/bytes.h"
#include "proto/checksum.h"

namespace kv {

class FieldWriter {
 public:
  static constexpr bool kReads = false;
  explicit FieldWriter(ByteWriter& out) : out_(out) {}

  template <typename T>
  void number(const char*, T v, uint64_t = 0, uint64_t = 0) {
    out_.raw({reinterpret_cast<const uint8_t*>(&v), sizeof(v)});
  }
  void boolean(const char*, bool v) { out_.u8(v ? 1 : 0); }
  template <typename E>
  void choice(const char*, E v, E, E) {
    out_.u8(static_cast<uint8_t>(v));
  }
  template <size_t N>
  void raw(const char*, const std::array<uint8_t, N>& v) {
    out_.raw(v);
  }
  void id(const char* name, const Id& id) { raw(name, id.bytes); }
  void text(const char*, const std::string& v, size_t) { out_.string(v); }
  void clipped(const char*, const std::string& v, size_t max) {
    out_.string(std::string_view(v).substr(0, max));
  }
  template <typename T>
  void array(const char*, const std::vector<T>& v, size_t) {
    out_.array(std::span<const T>(v));
  }
  template <typename T, typename Each>
  void list(const char*, const std::vector<T>& items, size_t, const Each& each) {
    out_.u32(static_cast<uint32_t>(items.size()));
    for (const T& item : items) each(*this, item);
  }
  void check(const char*, bool, uint64_t, const char*) {}
  bool failed() const { return false; }
  ByteWriter& out() { return out_; }

 private:
  ByteWriter& out_;
};

class FieldReader {
 public:
  static constexpr bool kReads = true;
  explicit FieldReader(ByteReader& in) : in_(in) {}

  /// A number of its type's size, at least `least` and at most `most`.
  template <typename T>
  void number(const char* name, T& v, uint64_t least = 0, uint64_t most = UINT64_MAX) {
    auto b = in_.raw(sizeof(T));
    if (!in_.failed()) std::memcpy(&v, b.data(), sizeof(T));
    if constexpr (std::is_integral_v<T>) {
      auto given = static_cast<uint64_t>(v);
      if (!in_.failed() && (given < least || given > most)) refuse(given, least, most);
    }
    named(name);
  }
  void boolean(const char* name, bool& v) {
    uint8_t given = 0;
    number(name, given, 0, 1);
    v = given == 1;
  }
  /// A u8 enumerator, first … last.
  template <typename E>
  void choice(const char* name, E& v, E first, E last) {
    uint8_t given = 0;
    number(name, given, static_cast<uint8_t>(first), static_cast<uint8_t>(last));
    if (!in_.failed()) v = static_cast<E>(given);
  }
  template <size_t N>
  void raw(const char* name, std::array<uint8_t, N>& v) {
    auto b = in_.raw(N);
    if (!in_.failed()) std::copy(b.begin(), b.end(), v.begin());
    named(name);
  }
  void id(const char* name, Id& id) { raw(name, id.bytes); }
  void text(const char* name, std::string& v, size_t max_bytes) {
    v = in_.string(max_bytes);
    named(name);
  }
  /// A text for people: the writer cuts it at its limit.
  void clipped(const char* name, std::string& v, size_t max_bytes) { text(name, v, max_bytes); }
  template <typename T>
  void array(const char* name, std::vector<T>& v, size_t max_count) {
    v = in_.array<T>(max_count);
    named(name);
  }
  /// A u32 count, then each(io, item) of every one.
  template <typename T, typename Each>
  void list(const char* name, std::vector<T>& items, size_t max_count, const Each& each) {
    uint32_t count = 0;
    number(name, count, 0, max_count);
    for (uint32_t i = 0; i < count && !in_.failed(); ++i) {
      items.emplace_back();
      each(*this, items.back());
      if (in_.failed()) in_.fail(std::string(name) + "[" + std::to_string(i) + "]." + in_.why());
    }
  }
  /// A condition that `given`, a field or a sum of them, must meet.
  void check(const char* name, bool holds, uint64_t given, const char* expected) {
    if (in_.failed() || holds) return;
    in_.fail(std::to_string(given) + ", " + expected);
    named(name);
  }
  bool failed() const { return in_.failed(); }
  ByteReader& in() { return in_; }
  /// Names the part in the error, after another reader has failed in the fields of that part.
  void named(const char* name) {
    if (!in_.failed() || named_) return;
    named_ = true;
    in_.fail(std::string(name) + ": " + in_.why());
  }

 private:
  void refuse(uint64_t given, uint64_t least, uint64_t most) {
    in_.fail(std::to_string(given) + ", expected " + std::to_string(least) + " to " +
             std::to_string(most));
  }

  ByteReader& in_;
  bool named_ = false;
};

/// A message as it is read (T) or written (const T).
template <typename Io, typename T>
using Of = std::conditional_t<Io::kReads, T, const T>;

}  // namespace kv

/// encode() and decode() of a message whose fields() stand before, in the same file.
#define KV_MESSAGE(Type)                       \
  void encode(const Type& m, ByteWriter& to) { \
    FieldWriter io(to);                        \
    fields(io, m);                             \
  }                                            \
  void decode(ByteReader& in, Type& m) {       \
    FieldReader io(in);                        \
    fields(io, m);                             \
  }
