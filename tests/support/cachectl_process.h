// Runs the program cachectl as a user does, for tests of its measuring commands.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace kv::cachectl {

struct Ran {
  int code = -1;
  std::string out, err;
};

/// `cachectl ARGUMENTS` with `directory` as the working directory; arguments hold nothing that a
/// shell takes apart but spaces.
inline Ran run_cachectl(const std::string& arguments, const std::filesystem::path& directory) {
  auto read = [&](const char* name) {
    std::ifstream in(directory / name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string command = "cd '" + directory.string() + "' && '" KV_CACHECTL_BIN "' " +
                              arguments + " >ran.out 2>ran.err";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read("ran.out"), read("ran.err")};
}

}  // namespace kv::cachectl
