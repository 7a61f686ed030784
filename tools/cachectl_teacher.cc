// A teacher over one socket, which is its standard input and output. See cachectl_teacher.h.
#include "tools/cachectl_teacher.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "codec/calibrate.h"
#include "codec/plan.h"
#include "engine/calibration.h"

namespace kv::cachectl {

Result<std::unique_ptr<TeacherProgram>> TeacherProgram::start(const std::string& command,
                                                              const std::string& model) {
  std::unique_ptr<TeacherProgram> made(new TeacherProgram(command));
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return Status(StatusCode::io_error, "no socket for a teacher");
  }
  made->socket_ = ends[0];
  const Status started = made->child_.start(command, std::span(&model, 1), ends[1], ends[1]);
  ::close(ends[1]);
  KV_RETURN_IF_ERROR(started);
  TeacherProgram* self = made.get();
  KV_ASSIGN_OR_RETURN(
      made->link_,
      TeacherLink::open({[self](std::span<uint8_t> to) { return self->read(to); },
                         [self](std::span<const uint8_t> from) { return self->write(from); }}));
  return made;
}

TeacherProgram::~TeacherProgram() {
  if (socket_ >= 0) ::close(socket_);  // its input ends
}

Status TeacherProgram::read(std::span<uint8_t> to) {
  while (!to.empty()) {
    const ssize_t got = ::recv(socket_, to.data(), to.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return {StatusCode::io_error, "the teacher \"" + command_ + "\" ended early"};
    to = to.subspan(static_cast<size_t>(got));
  }
  return {};
}

Status TeacherProgram::write(std::span<const uint8_t> from) {
  while (!from.empty()) {
    const ssize_t sent = ::send(socket_, from.data(), from.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return {StatusCode::io_error, "the teacher \"" + command_ + "\" ended early"};
    from = from.subspan(static_cast<size_t>(sent));
  }
  return {};
}

Result<Profile> calibrate(TeacherLink& link) {
  KV_ASSIGN_OR_RETURN(auto tokens, link.encode(kCalibrationText, kCalibrationTokens));
  const auto all = static_cast<uint32_t>(tokens.size());
  KV_ASSIGN_OR_RETURN(TaughtText text, link.exact(0, tokens, all));
  CodingSettings settings;
  settings.k_bits = settings.v_bits = 8;
  KV_ASSIGN_OR_RETURN(auto parts, row_parts(link.spec()));
  if (parts[0].spec.dtype == DType::bf16) settings.raw_dtype = DType::bf16;
  KV_ASSIGN_OR_RETURN(Profile base, plain_profile(link.spec(), settings));
  KeyStatistics statistics(link.spec());
  for (const RowPart& part : parts) {
    const uint32_t first = prefix_rows(part.spec, all).first;
    KV_RETURN_IF_ERROR(statistics.add_keys(part.layer, part.part, first, text.rows.k[part.layer]));
  }
  return statistics.calibrated(base);
}

}  // namespace kv::cachectl
