// PosixFiles: system calls with EINTR retried and errno told apart. Linux.
#include "storage/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace kv {
namespace {

Status error(const char* call, const std::string& path) {
  int number = errno;
  StatusCode code = StatusCode::io_error;
  switch (number) {
    case ENOENT:
      code = StatusCode::not_found;
      break;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      code = StatusCode::resource_exhausted;
      break;
    default:
      break;
  }
  char text[128];
  const char* reason = strerror_r(number, text, sizeof(text));
  return {code, std::string(call) + " " + path + ": " + reason};
}

std::string fd_path(Fd fd) { return "descriptor " + std::to_string(fd); }

template <typename Call>
auto retry(Call call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

// Visits every entry but the folder itself and its parent, in no order.
template <typename Visit>
Status walk(const std::string& path, Visit visit) {
  std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(path.c_str()), ::closedir);
  DIR* dir = open.get();
  if (dir == nullptr) return error("opendir", path);
  errno = 0;
  while (dirent* e = ::readdir(dir)) {
    std::string_view name = e->d_name;
    if (name != "." && name != "..") visit(::dirfd(dir), *e);
    errno = 0;
  }
  return errno == 0 ? Status() : error("readdir", path);
}

FileInfo info_of(const struct stat& st) {
  FileInfo info;
  info.bytes = static_cast<uint64_t>(st.st_size);
  info.allocated_bytes = static_cast<uint64_t>(st.st_blocks) * 512;
  info.modified_ns = int64_t{st.st_mtim.tv_sec} * 1'000'000'000 + st.st_mtim.tv_nsec;
  info.changed_ns = int64_t{st.st_ctim.tv_sec} * 1'000'000'000 + st.st_ctim.tv_nsec;
  info.mode = st.st_mode;
  info.owner = st.st_uid;
  info.is_file = S_ISREG(st.st_mode);
  info.is_dir = S_ISDIR(st.st_mode);
  return info;
}

// True if the page cache holds the whole file. False where the kernel can't tell (before 6.5).
bool all_cached(Fd fd) {
  struct Range {
    uint64_t offset, length;
  } range{0, 0};  // length 0: to the end
  struct {
    uint64_t cached, dirty, writeback, evicted, recently_evicted;
  } pages{};
  constexpr long kCachestat = 451;  // the C library has no name for it yet
  struct stat st;
  if (::fstat(fd, &st) != 0 || ::syscall(kCachestat, fd, &range, &pages, 0) != 0) return false;
  auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return pages.cached >= (static_cast<uint64_t>(st.st_size) + page - 1) / page;
}

class PosixFiles final : public Files {
 public:
  Result<Fd> create(const std::string& path) override {
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    Fd fd = retry([&] { return ::open(path.c_str(), flags, 0600); });
    if (fd < 0) return error("create", path);
    return fd;
  }

  Result<Fd> open_read(const std::string& path) override {
    // O_NONBLOCK: a FIFO under a block's name must not hang the reader.
    int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    Fd fd = retry([&] { return ::open(path.c_str(), flags); });
    if (fd < 0) return error("open", path);
    return fd;
  }

  Result<size_t> pwrite(Fd fd, std::span<const uint8_t> bytes, uint64_t offset) override {
    ssize_t n =
        retry([&] { return ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
    if (n < 0) return error("pwrite", fd_path(fd));
    return static_cast<size_t>(n);
  }

  Result<Fd> open_stream(const std::string& path) override {
    KV_ASSIGN_OR_RETURN(Fd fd, open_read(path));
    if (!all_cached(fd)) (void)::fcntl(fd, F_SETFL, O_NONBLOCK | O_DIRECT);  // may fail
    return fd;
  }

  Result<size_t> pread(Fd fd, std::span<uint8_t> into, uint64_t offset) override {
    auto read = [&] {
      return retry(
          [&] { return ::pread(fd, into.data(), into.size(), static_cast<off_t>(offset)); });
    };
    ssize_t n = read();
    // A direct read that is not aligned, or of a file system that has none after all.
    if (n < 0 && errno == EINVAL && ::fcntl(fd, F_SETFL, O_NONBLOCK) == 0) n = read();
    if (n < 0) return error("pread", fd_path(fd));
    return static_cast<size_t>(n);
  }

  Status allocate(Fd fd, uint64_t bytes) override {
    if (bytes == 0) return {};
    int rc = retry([&] { return ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)); });
    if (rc == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return {};
    return error("fallocate", fd_path(fd));
  }

  void write_behind(Fd fd) override {
    (void)::sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);  // fdatasync tells what fails
  }

  void drop_cached(Fd fd) override {
    (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);  // dirty pages stay
  }

  Status fdatasync(Fd fd) override {
    // A failed sync is never retried: the kernel may have dropped the pages that it could not
    // write.
    if (::fdatasync(fd) == 0) return {};
    return error("fdatasync", fd_path(fd));
  }

  Status sync_dir(const std::string& path) override {
    Fd fd = retry([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
    if (fd < 0) return error("open", path);
    FdGuard guard(*this, fd);
    return ::fsync(fd) == 0 ? Status() : error("fsync", path);
  }

  void close(Fd fd) override { ::close(fd); }

  Status rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) == 0) return {};
    return error("rename", from + " to " + to);
  }

  Status unlink(const std::string& path) override {
    if (::unlink(path.c_str()) == 0) return {};
    return error("unlink", path);
  }

  Result<std::vector<DirEntry>> list(const std::string& path) override {
    std::vector<DirEntry> entries;
    KV_RETURN_IF_ERROR(walk(path, [&](int, const dirent& e) {
      entries.push_back({e.d_name, e.d_type == DT_REG, e.d_type == DT_DIR, e.d_type != DT_UNKNOWN});
    }));
    return entries;
  }

  Result<std::vector<ListedFile>> list_files(const std::string& path) override {
    std::vector<ListedFile> files;
    KV_RETURN_IF_ERROR(walk(path, [&](int folder, const dirent& e) {
      ListedFile& file = files.emplace_back();
      file.name = e.d_name;
      struct stat st;
      file.readable = ::fstatat(folder, e.d_name, &st, AT_SYMLINK_NOFOLLOW) == 0;
      if (file.readable) file.info = info_of(st);
    }));
    return files;
  }

  Result<FileInfo> stat(const std::string& path) override {
    struct stat st;
    if (::lstat(path.c_str(), &st) != 0) return error("stat", path);
    return info_of(st);
  }

  Result<FileInfo> stat(Fd fd) override {
    struct stat st;
    if (::fstat(fd, &st) != 0) return error("stat", fd_path(fd));
    return info_of(st);
  }

  Result<uint64_t> free_bytes(const std::string& path) override {
    struct statvfs fs;
    if (::statvfs(path.c_str(), &fs) != 0) return error("statvfs", path);
    return uint64_t{fs.f_bavail} * fs.f_frsize;
  }

  Status make_dir(const std::string& path) override {
    if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return {};
    return error("mkdir", path);
  }

  Result<Fd> lock(const std::string& path) override {
    int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
    Fd fd = retry([&] { return ::open(path.c_str(), flags, 0600); });
    if (fd < 0) return error("open", path);
    FdGuard guard(*this, fd);
    if (retry([&] { return ::flock(fd, LOCK_EX | LOCK_NB); }) == 0) {
      guard.release();
      return fd;
    }
    return errno == EWOULDBLOCK ? Status(StatusCode::busy, path + " is locked by another process")
                                : error("flock", path);
  }

  Result<Fd> lock_dir(const std::string& path) override {
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;
    Fd fd = retry([&] { return ::open(path.c_str(), flags); });
    if (fd < 0) return error("open", path);
    if (retry([&] { return ::flock(fd, LOCK_EX | LOCK_NB); }) == 0) return fd;
    const bool taken = errno == EWOULDBLOCK;
    close(fd);
    return taken ? Result<Fd>(Status(StatusCode::busy, path + " is locked by another process"))
                 : Result<Fd>(-1);
  }
};

}  // namespace

Files& posix_files() {
  // The instance is never destroyed: a thread that a device held may close its files as the process
  // ends.
  static Files& files = *new PosixFiles;
  return files;
}

Status write_all(Files& files, Fd fd, std::span<const uint8_t> bytes, uint64_t offset) {
  while (!bytes.empty()) {
    KV_ASSIGN_OR_RETURN(size_t n, files.pwrite(fd, bytes, offset));
    if (n == 0) return {StatusCode::io_error, "pwrite wrote nothing"};
    bytes = bytes.subspan(n);
    offset += n;
  }
  return {};
}

Status read_all(Files& files, Fd fd, std::span<uint8_t> into, uint64_t offset) {
  while (!into.empty()) {
    KV_ASSIGN_OR_RETURN(size_t n, files.pread(fd, into, offset));
    if (n == 0) return corruption("file ends at byte " + std::to_string(offset));
    into = into.subspan(n);
    offset += n;
  }
  return {};
}

}  // namespace kv
