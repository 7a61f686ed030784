// Checks of a client's descriptor, and reads of its pieces.
#include "cachesvc/daemon/peer_memory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace kv {

Result<std::shared_ptr<const PeerMemory>> PeerMemory::take(int fd) {
  std::shared_ptr<const PeerMemory> taken(new PeerMemory(fd));
  if (::fcntl(fd, F_GET_SEALS) < 0) {
    return invalid_argument("memory: its descriptor is no memfd (F_GET_SEALS: " +
                            std::string(std::strerror(errno)) + ")");
  }
  if ((::fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY) {
    return invalid_argument("memory: its descriptor can't be read");
  }
  return taken;
}

PeerMemory::~PeerMemory() { ::close(fd_); }

uint64_t PeerMemory::bytes() const {
  struct stat st {};
  return ::fstat(fd_, &st) == 0 ? static_cast<uint64_t>(st.st_size) : 0;
}

Status PeerMemory::read(const std::vector<MemoryRun>& runs, std::span<uint8_t> to) const {
  auto piece = [&](uint64_t offset, std::span<uint8_t> into) -> Status {
    while (!into.empty()) {
      const ssize_t n = ::pread(fd_, into.data(), into.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return {StatusCode::io_error, std::string("memory: ") + std::strerror(errno)};
      if (n == 0) {
        return invalid_argument("memory: rows at " + std::to_string(offset) + ", it has " +
                                std::to_string(bytes()) + " bytes");
      }
      offset += static_cast<uint64_t>(n);
      into = into.subspan(static_cast<size_t>(n));
    }
    return {};
  };
  for (const MemoryRun& run : runs) {
    for (uint32_t i = 0; i < run.count; ++i) {
      KV_RETURN_IF_ERROR(piece(run.offset + i * run.stride, to.first(run.bytes)));
      to = to.subspan(run.bytes);
    }
  }
  return {};
}

Result<MemoryReply> PeerMemories::add(uint32_t number,
                                      Result<std::shared_ptr<const PeerMemory>> taken) {
  KV_ASSIGN_OR_RETURN(auto memory, std::move(taken));
  if (memories_.contains(number)) {
    return invalid_argument("memory " + std::to_string(number) + " is there already");
  }
  if (memories_.size() >= kMaxMemories) {
    return Status(StatusCode::resource_exhausted,
                  "memories of a connection: at most " + std::to_string(kMaxMemories));
  }
  memories_[number] = memory;
  return MemoryReply{memory->bytes()};
}

std::shared_ptr<const PeerMemory> PeerMemories::find(uint32_t number) const {
  auto it = memories_.find(number);
  return it == memories_.end() ? nullptr : it->second;
}

}  // namespace kv
