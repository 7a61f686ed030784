// Child: a program that cachectl starts by a shell and talks to. One thread.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "proto/status.h"

namespace kv::cachectl {

class Child {
 public:
  Child() = default;
  ~Child() { (void)wait(); }
  Child(const Child&) = delete;  // owns the process
  Child& operator=(const Child&) = delete;

  /// `sh -c COMMAND` with more arguments behind the command's own; `input` and `output` are its
  /// standard input and output, and stay the caller's. Returns: io_error.
  Status start(const std::string& command, std::span<const std::string> arguments, int input,
               int output);
  /// Waits until it ends; true if it ended well. Its ends of pipes are to be closed first.
  bool wait();

 private:
  pid_t process_ = -1;
};

}  // namespace kv::cachectl
