// A stop as an eventfd.
#include "proto/stop_wake.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace kv {

StopWake::~StopWake() {
  end();
  if (fd_ >= 0) ::close(fd_);
}

Status StopWake::begin(std::stop_token stop) {
  end();
  if (!stop.stop_possible()) return {};
  if (fd_ < 0) fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd_ < 0) {
    return {StatusCode::unavailable, std::string("eventfd: ") + std::strerror(errno)};
  }
  stop_ = std::move(stop);
  callback_.emplace(stop_, [fd = fd_] { (void)!::eventfd_write(fd, 1); });
  return {};
}

void StopWake::end() {
  if (!callback_) return;
  callback_.reset();  // none runs any more
  eventfd_t count;
  (void)!::eventfd_read(fd_, &count);
  stop_ = {};
  seen_ = false;
}

}  // namespace kv
