// What a directory takes on its device: the yardstick of the ledger.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace kv {

/// Allocated bytes of the directory and everything in it; files that vanish meanwhile count or not.
inline uint64_t allocated_bytes(const std::string& dir) {
  uint64_t total = 0;
  std::error_code ec;
  auto add = [&total](const std::filesystem::path& path) {
    struct stat st;
    if (::lstat(path.c_str(), &st) == 0) total += static_cast<uint64_t>(st.st_blocks) * 512;
  };
  add(dir);
  std::filesystem::recursive_directory_iterator it(dir, ec), end;
  for (; !ec && it != end; it.increment(ec)) add(it->path());
  return total;
}

}  // namespace kv
