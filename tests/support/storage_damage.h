// What a disk may do to the files of a store, the catalog and its log included.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/support/storage_testing.h"

namespace kv::testing {

/// One fault of one file; `other` is the file that a misdirected write was meant for.
inline void damage(std::mt19937_64& rng, const std::filesystem::path& path,
                   const std::filesystem::path& other) {
  namespace fs = std::filesystem;
  auto size = fs::file_size(path);
  std::fstream file;
  switch (rng() % 6) {
    case 0:  // bits
      for (uint64_t i = 0; i < 1 + rng() % 3 && size > 0; ++i) {
        flip_byte(path, static_cast<long>(rng() % size));
      }
      return;
    case 1:
      return fs::resize_file(path, size == 0 ? 0 : rng() % size);
    case 2:
      return fs::resize_file(path, size + 1 + rng() % 9000);
    case 3:  // a page of zeros
      file.open(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<long>(size == 0 ? 0 : rng() % size / 4096 * 4096));
      file << std::string(4096, '\0');
      return;
    case 4:  // a write that went to the wrong file
      if (path == other || !fs::exists(other)) return;
      fs::copy_file(other, path, fs::copy_options::overwrite_existing);
      return;
    default:
      fs::remove(path);
  }
}

/// Damages one to four of the store's files, every fourth time the catalog or its log. Returns
/// their names without folders.
inline std::set<std::string> damage_some(std::mt19937_64& rng, const std::string& store) {
  namespace fs = std::filesystem;
  std::vector<fs::path> all, catalog;
  for (const auto& entry : fs::recursive_directory_iterator(store)) {
    std::string name = entry.path().filename();
    if (entry.is_regular_file() && name != "LOCK") all.push_back(entry.path());
  }
  std::sort(all.begin(), all.end());
  for (const auto& path : all) {
    if (path.filename().string().starts_with("catalog.db")) catalog.push_back(path);
  }
  std::set<std::string> hit;
  if (all.empty()) return hit;
  for (uint64_t hits = 1 + rng() % 4; hits > 0; --hits) {
    const auto& files = catalog.empty() || rng() % 4 != 0 ? all : catalog;
    const fs::path& victim = files[rng() % files.size()];
    if (!fs::exists(victim)) continue;
    hit.insert(victim.filename());
    damage(rng, victim, all[rng() % all.size()]);
  }
  return hit;
}

}  // namespace kv::testing
