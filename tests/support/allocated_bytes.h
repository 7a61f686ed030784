// What a directory takes on its device: the yardstick of the ledger.
#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>

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

/// Samples the directory's size every 10 ms until destroyed; keeps the highest sum. What was added
/// up over more than kMoment counts files twice that moved meanwhile: no sample.
class Sampler {
 public:
  explicit Sampler(std::string dir) : dir_(std::move(dir)), thread_([this] { run(); }) {}
  ~Sampler() {
    stop_ = true;
    thread_.join();
  }
  uint64_t highest() const { return highest_; }
  uint64_t samples() const { return samples_; }

 private:
  void run() {
    while (!stop_) {
      auto start = std::chrono::steady_clock::now();
      uint64_t sum = allocated_bytes(dir_);
      if (std::chrono::steady_clock::now() - start < kMoment) {
        highest_ = std::max<uint64_t>(highest_, sum);
        ++samples_;
      }
      std::this_thread::sleep_for(kMoment);
    }
  }
  static constexpr std::chrono::milliseconds kMoment{10};
  std::string dir_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> highest_{0}, samples_{0};
  std::thread thread_;
};

}  // namespace kv
