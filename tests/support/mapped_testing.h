// What this process has mapped of a service's segments, and a service with objects that lie in
// them.
#pragma once

#include <dirent.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/cachesvc_server.h"

namespace kv {

/// Names of shared memory. Without folders: other tests have theirs there.
inline std::set<std::string> shared_memory() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    std::error_code gone;
    if (!entry.is_directory(gone)) names.insert(entry.path().string());
  }
  return names;
}

/// A line of /proc/self/maps that is one of a segment.
struct MappedRange {
  uintptr_t begin = 0, end = 0;
  std::string mode, inode;
};
inline std::vector<MappedRange> mapped_segments() {
  std::ifstream in("/proc/self/maps");
  std::vector<MappedRange> out;
  for (std::string line; std::getline(in, line);) {
    if (line.find("/memfd:cachesvc-segment") == line.npos) continue;
    MappedRange r;
    char dash;
    std::string offset, device;
    std::istringstream words(line);
    words >> std::hex >> r.begin >> dash >> r.end >> r.mode >> offset >> device >> r.inode;
    out.push_back(r);
  }
  return out;
}
/// The segment that these bytes lie in; empty: none.
inline std::string segment_of(const Bytes& bytes) {
  const auto at = reinterpret_cast<uintptr_t>(bytes.data());
  for (const MappedRange& r : mapped_segments()) {
    if (at >= r.begin && at + bytes.size() <= r.end) return r.inode;
  }
  return "";
}
inline std::set<std::string> segments_of(const Prefix& prefix) {
  std::set<std::string> out;
  for (const auto& o : prefix.objects) {
    for (const Plane& p : o.object->planes) out.insert(segment_of(p.bytes));
  }
  return out;
}
inline size_t open_files(const std::string& process = "self") {
  size_t n = 0;
  for (const auto& e : fs::directory_iterator("/proc/" + process + "/fd")) n += !e.path().empty();
  return n;
}

/// Blocks of 64 KiB.
inline ModelSpec wide_model() { return model_of({{{full_part(4, 128)}}, {{full_part(4, 128)}}}); }

/// A client in a process of its own, forked from the test. It says once whether all went well, and
/// stays until it is killed.
class ForkedClient {
 public:
  ForkedClient() = default;
  ~ForkedClient() { kill(); }
  ForkedClient(const ForkedClient&) = delete;  // owns the process
  ForkedClient& operator=(const ForkedClient&) = delete;

  /// `act(stay)` runs in the new process, and ends with stay(well). Returns: `well`.
  template <typename Act>
  bool start(Act act) {
    int said[2];
    if (::pipe2(said, O_CLOEXEC) != 0) return false;
    process_ = ::fork();
    if (process_ == 0) {
      act([&](bool well) {
        (void)!::write(said[1], well ? "y" : "n", 1);
        ::pause();
        ::_exit(0);
      });
      ::_exit(1);
    }
    ::close(said[1]);
    char byte = 'n';
    const bool well = ::read(said[0], &byte, 1) == 1 && byte == 'y';
    ::close(said[0]);
    return well;
  }
  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(std::exchange(process_, 0), nullptr, 0);
  }
  bool lives() const { return process_ > 0 && ::kill(process_, 0) == 0; }

 private:
  pid_t process_ = 0;
};

class MappedTest : public ServerTest {
 protected:
  void begin(std::vector<std::string> limits = {}) {
    start({}, std::move(limits));
    client_ = connect();
    bench_ = std::make_unique<Bench>(Bench::open(*client_, wide_model()));
  }
  std::vector<Token> stored(size_t n) {
    auto tokens = random_tokens(rng_, n);
    EXPECT_TRUE(bench_->store(tokens).ok());
    return tokens;
  }
  FetchReply fetched(Bench& bench, const std::vector<Token>& tokens,
                     FetchForm form = FetchForm::stored) {
    auto reply = bench.fetch(plus_one(tokens), form);
    EXPECT_TRUE(reply.ok()) << reply.status().to_string();
    return reply.ok() ? std::move(*reply) : FetchReply();
  }

  std::unique_ptr<SocketClient> client_;
  std::unique_ptr<Bench> bench_;
};

}  // namespace kv
