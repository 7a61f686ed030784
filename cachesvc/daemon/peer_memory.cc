// Checks of a client's descriptor, and reads of its pieces.
#include "cachesvc/daemon/peer_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace kv {
namespace {

constexpr uint64_t kBytesAtOnce = 1u << 20;  // then it is asked whether to stop
constexpr int kPiecesAtOnce = 64;

Status write_error(int error) {
  const std::string why = std::string("memory: pwritev: ") + std::strerror(error);
  return {error == EIO ? StatusCode::io_error : StatusCode::invalid_argument, why};
}

// Bytes in several places, read from the front.
class Source {
 public:
  explicit Source(std::span<const Bytes> from) : from_(from) {}
  // Places of the next bytes, at most `most` of them and at least one.
  int gather(uint64_t most, iovec* pieces) const {
    int count = 0;
    uint64_t used = used_;
    for (size_t at = at_; at < from_.size() && count < kPiecesAtOnce && most > 0; ++at) {
      const uint64_t bytes = std::min(from_[at].size() - used, most);
      if (bytes > 0) pieces[count++] = {const_cast<uint8_t*>(from_[at].data()) + used, bytes};
      most -= bytes;
      used = 0;
    }
    return count;
  }
  void skip(uint64_t bytes) {
    used_ += bytes;
    while (at_ < from_.size() && used_ >= from_[at_].size()) used_ -= from_[at_++].size();
  }

 private:
  const std::span<const Bytes> from_;
  size_t at_ = 0;
  uint64_t used_ = 0;  // bytes of from_[at_]
};

// A mapping that nobody touches, to ask the kernel which pages of a memory are there.
class Residents {
 public:
  explicit Residents(int fd) : fd_(fd), page_(static_cast<uint64_t>(::sysconf(_SC_PAGESIZE))) {
    struct stat st {};
    if (::fstat(fd, &st) != 0 || st.st_size <= 0) return;
    bytes_ = static_cast<uint64_t>(st.st_size);
    map_ = ::mmap(nullptr, bytes_, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  }
  ~Residents() {
    if (map_ != MAP_FAILED) ::munmap(map_, bytes_);
  }
  Residents(const Residents&) = delete;  // owns the mapping
  Residents& operator=(const Residents&) = delete;

  // Returns: invalid_argument, naming the first byte that has no page.
  Status check(uint64_t at, uint64_t bytes) {
    if (map_ == MAP_FAILED || at > bytes_ || bytes > bytes_ - at) {
      return invalid_argument("memory: a piece at " + std::to_string(at) + ", it has " +
                              std::to_string(bytes_) + " bytes");
    }
    for (uint64_t first = at / page_ * page_, end = at + bytes; first < end;) {
      const uint64_t now = std::min<uint64_t>(end - first, sizeof there_ * page_);
      if (::mincore(static_cast<uint8_t*>(map_) + first, now, there_) != 0) {
        return write_error(errno);
      }
      for (uint64_t i = 0; i * page_ < now; ++i) {
        if ((there_[i] & 1) == 0 && !is_there(first + i * page_)) {
          return invalid_argument("memory: no page is there at " +
                                  std::to_string(first + i * page_) + ": touch it first");
        }
      }
      first += now;
    }
    return {};
  }

 private:
  // Again, once a page that was swapped out is back: a read brings none where none was.
  bool is_there(uint64_t at) const {
    uint8_t byte = 0;
    if (::pread(fd_, &byte, 1, static_cast<off_t>(at)) != 1) return false;
    unsigned char there = 0;
    return ::mincore(static_cast<uint8_t*>(map_) + at, page_, &there) == 0 && (there & 1) != 0;
  }

  const int fd_;
  const uint64_t page_;
  uint64_t bytes_ = 0;
  void* map_ = MAP_FAILED;
  unsigned char there_[4096];
};

// Pages of the first `bytes` of the runs.
Status check_pages(int fd, const std::vector<MemoryRun>& runs, uint64_t bytes,
                   const std::atomic<bool>& stop) {
  Residents pages(fd);
  for (const MemoryRun& run : runs) {
    for (uint32_t i = 0; i < run.count && bytes > 0; ++i) {
      if (stop) return cancelled();
      const uint64_t now = std::min(run.bytes, bytes);
      KV_RETURN_IF_ERROR(pages.check(run.offset + i * run.stride, now));
      bytes -= now;
    }
  }
  return {};
}

}  // namespace

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

Status PeerMemory::read(uint64_t offset, std::span<uint8_t> to) const {
  while (!to.empty()) {
    const ssize_t n = ::pread(fd_, to.data(), to.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return {StatusCode::io_error, std::string("memory: ") + std::strerror(errno)};
    if (n == 0) {
      return invalid_argument("memory: rows at " + std::to_string(offset) + ", it has " +
                              std::to_string(bytes()) + " bytes");
    }
    offset += static_cast<uint64_t>(n);
    to = to.subspan(static_cast<size_t>(n));
  }
  return {};
}

MemoryRows::MemoryRows(std::shared_ptr<const PeerMemory> memory, std::vector<MemoryRun> runs)
    : memory_(std::move(memory)), runs_(std::move(runs)) {
  uint64_t at = 0;
  for (const MemoryRun& run : runs_) {
    begins_.push_back(at);
    at += run.bytes * run.count;
  }
}

Status MemoryRows::read(uint64_t at, std::span<uint8_t> to) const {
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), at);
  for (auto i = static_cast<size_t>(after - begins_.begin()) - 1; !to.empty(); ++i) {
    KV_CHECK(i < runs_.size());
    const MemoryRun& run = runs_[i];
    uint64_t piece = (at - begins_[i]) / run.bytes, skip = (at - begins_[i]) % run.bytes;
    for (; piece < run.count && !to.empty(); ++piece, skip = 0) {
      const uint64_t bytes = std::min<uint64_t>(run.bytes - skip, to.size());
      KV_RETURN_IF_ERROR(memory_->read(run.offset + piece * run.stride + skip, to.first(bytes)));
      to = to.subspan(bytes);
      at += bytes;
    }
  }
  return {};
}

Status PeerMemory::write(const std::vector<MemoryRun>& runs, std::span<const Bytes> from,
                         const std::atomic<bool>& stop) const {
  uint64_t left = 0;
  for (const Bytes& bytes : from) left += bytes.size();
  KV_RETURN_IF_ERROR(check_pages(fd_, runs, left, stop));
  Source source(from);
  for (const MemoryRun& run : runs) {
    for (uint32_t i = 0; i < run.count && left > 0; ++i) {
      uint64_t at = run.offset + i * run.stride, end = at + std::min(run.bytes, left);
      left -= end - at;
      while (at < end) {
        if (stop) return cancelled();
        iovec pieces[kPiecesAtOnce];
        const int count = source.gather(std::min(end - at, kBytesAtOnce), pieces);
        const ssize_t n = ::pwritev(fd_, pieces, count, static_cast<off_t>(at));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return write_error(errno);
        source.skip(static_cast<uint64_t>(n));
        at += static_cast<uint64_t>(n);
      }
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

Result<std::shared_ptr<const PeerMemory>> PeerMemories::find(uint32_t number) const {
  auto it = memories_.find(number);
  if (it != memories_.end()) return it->second;
  return Status(StatusCode::not_found,
                "memory " + std::to_string(number) + " is none of this connection's");
}

}  // namespace kv
