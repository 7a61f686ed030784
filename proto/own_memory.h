// OwnMemory: memory of this process that a service may read rows of puts from and write what was
// fetched into, instead of having it sent. An engine that has its rows here stores and fetches them
// without a copy of its own.
//
// A memfd of fixed size, mapped writable. Its pages are this process's, in every account. The
// service copies what a put names while the put is open; what is written here later changes nothing
// stored. Any thread. PROTOCOL.md, "A client's own memory".
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "proto/status.h"

namespace kv {

class OwnMemory {
 public:
  /// `bytes` > 0, in zeros. Returns: busy (the system has no memory, descriptor or address space).
  static Result<std::shared_ptr<OwnMemory>> create(uint64_t bytes);
  ~OwnMemory();
  OwnMemory(const OwnMemory&) = delete;  // owns the mapping
  OwnMemory& operator=(const OwnMemory&) = delete;

  /// Alive as long as this.
  uint8_t* data() { return begin_; }
  uint64_t bytes() const { return bytes_; }
  int fd() const { return fd_; }
  /// Place of bytes that lie in it whole.
  std::optional<uint64_t> offset_of(std::span<const uint8_t> bytes) const;
  /// Has pages of its own for bytes that lie in it, which keep their values: a service writes into
  /// no others.
  void touch(std::span<uint8_t> bytes);

 private:
  OwnMemory(int fd, uint8_t* begin, uint64_t bytes) : fd_(fd), begin_(begin), bytes_(bytes) {}

  const int fd_;
  uint8_t* const begin_;
  const uint64_t bytes_;
};

}  // namespace kv
