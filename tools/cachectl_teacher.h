// A teacher's program (engine/TEACHER.md): started, asked, ended. One thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/teacher_link.h"
#include "proto/profile.h"
#include "tools/cachectl_child.h"

namespace kv::cachectl {

class TeacherProgram {
 public:
  /// Starts `command` of a shell with the model as its last argument and reads its hello.
  /// Returns: io_error naming the command; what TeacherLink::open returns.
  static Result<std::unique_ptr<TeacherProgram>> start(const std::string& command,
                                                       const std::string& model);
  ~TeacherProgram();
  TeacherProgram(const TeacherProgram&) = delete;  // owns the process and its socket
  TeacherProgram& operator=(const TeacherProgram&) = delete;

  TeacherLink& link() { return *link_; }

 private:
  explicit TeacherProgram(std::string command) : command_(std::move(command)) {}
  Status read(std::span<uint8_t> to);
  Status write(std::span<const uint8_t> from);

  std::string command_;
  Child child_;
  int socket_ = -1;
  std::optional<TeacherLink> link_;
};

/// A profile of 8 bits on every side that is coded, with means and gains of keys of the
/// calibration text, as the engine's calibrate gives. Returns: what the link and the codec return.
Result<Profile> calibrate(TeacherLink& link);

}  // namespace kv::cachectl
