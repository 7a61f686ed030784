// PeerMemory: memory that a connection's client owns and has handed over by its descriptor. Rows of
// puts are read from it, payloads of fetches written into it; the client may write there, shrink it
// or take its pages away at any time.
//
// Read and written with pread and pwritev alone: a mapping that is touched would end the service
// (SIGBUS) where its owner shrinks it. Only what answers F_GET_SEALS is taken, which no file on a
// disk and no pipe does: neither can block. Pages that are not there would be the service's in
// every account, so only those that the client has touched are written. Bounded: kMaxMemories of a
// connection, kMaxMemoryPeers connections. PROTOCOL.md, "A client's own memory".
#pragma once

#include <atomic>
#include <map>
#include <memory>

#include "proto/memory_message.h"

namespace kv {

/// Connections that may hand over memory, at a time.
inline constexpr size_t kMaxMemoryPeers = 64;
/// Descriptors that may wait for their frame on one connection.
inline constexpr size_t kMaxWaitingDescriptors = 2;

/// One memory. Immutable, any thread.
class PeerMemory {
 public:
  /// Takes the descriptor in any case. Returns: invalid_argument (no memory, or not readable).
  static Result<std::shared_ptr<const PeerMemory>> take(int fd);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;  // owns the descriptor
  PeerMemory& operator=(const PeerMemory&) = delete;

  uint64_t bytes() const;
  /// Fills `to` with what lies at `offset`. Returns: invalid_argument (beyond its end), io_error.
  Status read(uint64_t offset, std::span<uint8_t> to) const;
  /// Writes `from`, one after another, into the pieces of the runs, which are long enough; some
  /// bytes at a time, until `stop`. Returns: invalid_argument (a piece beyond its end, a page that
  /// is not there, sealed, opened for reading alone), io_error, cancelled (stopped).
  Status write(const std::vector<MemoryRun>& runs, std::span<const Bytes> from,
               const std::atomic<bool>& stop) const;

 private:
  explicit PeerMemory(int fd) : fd_(fd) {}
  const int fd_;
};

/// All pieces of all runs, one after another, as one sequence of bytes. Immutable, any thread.
class MemoryRows {
 public:
  MemoryRows(std::shared_ptr<const PeerMemory> memory, std::vector<MemoryRun> runs);
  /// Fills `to` with bytes from `at` on. Precondition: the runs have so many. Returns: as
  /// PeerMemory::read.
  Status read(uint64_t at, std::span<uint8_t> to) const;

 private:
  std::shared_ptr<const PeerMemory> memory_;
  std::vector<MemoryRun> runs_;
  std::vector<uint64_t> begins_;  // of each run's first byte in the sequence
};

/// One connection's. Loop thread only.
class PeerMemories {
 public:
  /// Returns: the size; invalid_argument (the number is taken), resource_exhausted (kMaxMemories),
  /// what taking it returned.
  Result<MemoryReply> add(uint32_t number, Result<std::shared_ptr<const PeerMemory>> taken);
  void end(uint32_t number) { memories_.erase(number); }
  /// Returns: not_found.
  Result<std::shared_ptr<const PeerMemory>> find(uint32_t number) const;

 private:
  std::map<uint32_t, std::shared_ptr<const PeerMemory>> memories_;
};

}  // namespace kv
