// The memfd and its mapping.
#include "proto/own_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace kv {

Result<std::shared_ptr<OwnMemory>> OwnMemory::create(uint64_t bytes) {
  auto failed = [bytes](const char* call) {
    return Status(StatusCode::busy, std::string(call) + " of " + std::to_string(bytes) +
                                        " bytes: " + std::strerror(errno));
  };
  if (bytes == 0) return invalid_argument("own memory: 0 bytes");
  const int fd = ::memfd_create("cachesvc-client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return failed("memfd_create");
  void* map = MAP_FAILED;
  if (::ftruncate(fd, static_cast<off_t>(bytes)) == 0 &&
      ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
    map = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (map == MAP_FAILED) {
    const Status status = failed("memory");
    ::close(fd);
    return status;
  }
  return std::shared_ptr<OwnMemory>(new OwnMemory(fd, static_cast<uint8_t*>(map), bytes));
}

OwnMemory::~OwnMemory() {
  ::munmap(begin_, bytes_);
  ::close(fd_);
}

void OwnMemory::touch(std::span<uint8_t> bytes) {
  const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t at = static_cast<uint64_t>(bytes.data() - begin_), first = at / page * page;
  const uint64_t end = at + bytes.size();
#ifdef MADV_POPULATE_WRITE
  if (::madvise(begin_ + first, end - first, MADV_POPULATE_WRITE) == 0) return;
#endif
  for (uint64_t each = first; each < end; each += page) {
    __atomic_fetch_or(begin_ + std::max(each, at), uint8_t{0}, __ATOMIC_RELAXED);
  }
}

std::optional<uint64_t> OwnMemory::offset_of(std::span<const uint8_t> bytes) const {
  const auto at = reinterpret_cast<uintptr_t>(bytes.data());
  const auto begin = reinterpret_cast<uintptr_t>(begin_);
  if (at < begin || at - begin > bytes_ || bytes.size() > bytes_ - (at - begin)) return {};
  return at - begin;
}

}  // namespace kv
