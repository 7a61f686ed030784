// Opens a secret's file, checks owner and mode, reads it.
#include "storage/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace kv {
namespace {

struct OpenSecret {
  int fd;
  ~OpenSecret() { ::close(fd); }
};

}  // namespace

Result<size_t> read_private(const std::string& what, const std::string& path,
                            std::span<uint8_t> into) {
  std::string where = what + " " + path + ": ";
  OpenSecret file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (file.fd < 0) return Status(StatusCode::io_error, where + std::strerror(errno));
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) {
    return Status(StatusCode::io_error, where + std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) return invalid_argument(where + "is no regular file");
  if (info.st_uid != ::geteuid()) {
    return invalid_argument(where + "belongs to user " + std::to_string(info.st_uid) +
                            ", this process runs as " + std::to_string(::geteuid()));
  }
  if ((info.st_mode & 077) != 0) {
    return invalid_argument(where + "others may read or write it: chmod 600");
  }
  size_t size = 0;
  while (size < into.size()) {
    ssize_t n = ::read(file.fd, into.data() + size, into.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Status(StatusCode::io_error, where + std::strerror(errno));
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  return size;
}

}  // namespace kv
