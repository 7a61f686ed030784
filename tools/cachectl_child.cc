// A shell's command as a process. See cachectl_child.h.
#include "tools/cachectl_child.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

namespace kv::cachectl {

Status Child::start(const std::string& command, std::span<const std::string> arguments, int input,
                    int output) {
  std::vector<std::string> words = {"sh", "-c", command + " \"$@\"", "sh"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  const int error = ::posix_spawn(&process_, "/bin/sh", &files, nullptr, pointers.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  if (error == 0) return {};
  process_ = -1;
  return {StatusCode::io_error, "can't start a shell"};
}

bool Child::wait() {
  if (process_ < 0) return false;
  int status = 0;
  const pid_t ended = ::waitpid(std::exchange(process_, -1), &status, 0);
  return ended > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace kv::cachectl
