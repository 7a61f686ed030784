// Power cuts: a file system of our own on a loop device is shut down without its log at a random
// moment of a running tier, mounted again, and every durable promise is checked; of a copy with
// damaged files too. Skipped where that can't be had: it needs root, a loop device and mkfs.
// KV_POWER_CUTS sets the number of cuts.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "storage/ssd_tier.h"
#include "tests/support/loop_disk.h"
#include "tests/support/soak.h"
#include "tests/support/storage_damage.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

using namespace kv::testing;

constexpr uint64_t kSeed = 51;

// Few under a sanitizer: what is tried here is the order of calls, not memory.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kCuts = 20;
#else
constexpr int kCuts = 300;
#endif
int cuts() {
  const char* text = std::getenv("KV_POWER_CUTS");
  return text != nullptr ? std::atoi(text) : soaked(kCuts);
}

/// What one round of the writer may store, a function of its number.
std::vector<FileImage> batch_of(uint64_t number) {
  std::mt19937_64 rng(kSeed * 1000 + number);
  auto images = sample_chain(rng, 1 + rng() % 6, 8u << rng() % 7);
  if (rng() % 2 == 0) {
    images.push_back(raw_image(sample_supplement(rng, images[0].header, 1, 0, 8)));
  }
  return images;
}

/// The power is still on. What a file system answers after its end, nobody would hear: XFS lets an
/// fsync of a folder succeed then.
bool powered(const std::string& store) {
  Fd fd = ::open(store.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) ::close(fd);
  return fd >= 0;
}

/// Stores and erases for ever; tells on `out` "D n" (batch n durable), "E n" (batch n is being
/// erased), "G n" (it is gone for good), each in one write.
[[noreturn]] void write_for_ever(const std::string& store, uint64_t from, int out) {
  auto say = [out](char what, uint64_t number) {
    std::string line = std::string(1, what) + " " + std::to_string(number) + "\n";
    if (::write(out, line.data(), line.size()) != static_cast<ssize_t>(line.size())) ::_exit(1);
  };
  auto tier = SsdTier::open(store, small_options());
  if (!tier.ok() || !(*tier)->recover().ok()) ::_exit(1);
  say('O', 0);
  for (uint64_t number = from;; ++number) {
    auto images = batch_of(number);
    // Every third batch is only spilled: nothing is promised for it.
    auto level = number % 3 == 0 ? Durability::spilled : Durability::durable;
    bool durable = true;
    for (const auto& r : (*tier)->put(images, level)) durable &= r.reached == Durability::durable;
    if (durable && powered(store)) say('D', number);
    if (number % 4 != 3) continue;
    std::vector<ObjectName> names;
    for (const auto& image : batch_of(number - 3)) names.push_back(image.header.name);
    say('E', number - 3);
    if ((*tier)->erase(names).ok() && powered(store)) say('G', number - 3);
  }
}

class PowerCut : public ::testing::TestWithParam<const char*> {
 protected:
  /// Lets a writer run until a random number of lines and some microseconds more, then cuts.
  void write_and_cut(LoopDisk& disk, std::mt19937_64& rng) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::close(ends[0]);
      write_for_ever(disk.store(), next_, ends[1]);
    }
    ::close(ends[1]);
    uint64_t lines = rng() % 12;
    std::string text = read_lines(ends[0], lines);
    ::usleep(static_cast<useconds_t>(rng() % 8000));
    EXPECT_TRUE(disk.cut_power());
    ::kill(child, SIGKILL);
    text += read_lines(ends[0], UINT64_MAX);
    ::close(ends[0]);
    ::waitpid(child, nullptr, 0);
    std::istringstream in(text);
    char what;
    for (uint64_t number; in >> what >> number;) {
      if (what != 'O') state_[number] = what;
    }
  }
  static std::string read_lines(int fd, uint64_t lines) {
    std::string text;
    char c;
    for (uint64_t seen = 0; seen < lines && ::read(fd, &c, 1) == 1;) {
      text += c;
      seen += c == '\n';
    }
    return text;
  }
  /// What was durable is there but for files in `damaged`, what was erased is not; nothing that is
  /// read differs from what was stored.
  void check(const std::string& store, const std::set<std::string>& damaged) {
    auto tier = SsdTier::open(store, small_options());
    ASSERT_TRUE(tier.ok()) << tier.status().to_string();
    auto found = (*tier)->recover();
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    if (damaged.empty()) {
      EXPECT_EQ(found->quarantined, 0u) << "a name was there before its bytes";
    }
    auto present = names_of(*found);
    for (uint64_t number = first_; number < end(); ++number) {
      auto state = state_.find(number);
      for (const auto& image : stored(number)) {
        bool hit = damaged.contains(file_name(image.header.name));
        bool there = present.erase(image.header.name) == 1;
        if (state != state_.end() && state->second == 'D' && !hit) {
          EXPECT_TRUE(there) << "batch " << number << " was durable";
          ++durable_;
        }
        if (state != state_.end() && state->second == 'G') {
          EXPECT_FALSE(there) << "batch " << number << " came back";
        }
        if (!there) continue;
        auto read = (*tier)->read(image.header.name);
        missed_ += !read.ok();
        ASSERT_TRUE(read.ok() || hit) << read.status().to_string();
        if (read.ok()) expect_same(image, *read);
      }
    }
    EXPECT_TRUE(present.empty()) << "objects that nobody stored";
    EXPECT_EQ((*tier)->stats().used_bytes, du(store));
    if (damaged.empty()) forget(**tier, *found);
  }
  /// The same of a copy that some files of are damaged, too: with the power's end or later.
  void check_damaged(const std::string& store, std::mt19937_64& rng) {
    TempDir copy(true);
    std::filesystem::copy(store, copy.store(), std::filesystem::copy_options::recursive);
    auto damaged = damage_some(rng, copy.store());
    if (!damaged.empty()) check(copy.store(), damaged);
  }
  const std::vector<FileImage>& stored(uint64_t number) {
    auto [at, added] = stored_.try_emplace(number);
    if (added) at->second = batch_of(number);
    return at->second;
  }
  // The writer may be a few batches past the last one that it told of.
  uint64_t end() const { return std::max(next_, state_.empty() ? 0 : state_.rbegin()->first) + 8; }
  // Empties the store now and then, so that rounds stay short.
  void forget(SsdTier& tier, const Recovery& found) {
    next_ = (end() + 11) / 12 * 12;  // so that number % 3 and % 4 start over
    std::vector<ObjectName> names;
    for (const auto& o : found.objects) names.push_back(o.header.name);
    if (names.size() < 150) return;
    ASSERT_TRUE(tier.erase(names).ok());
    state_.clear();
    stored_.clear();
    first_ = next_;  // whatever comes back from before is one that nobody stored
  }

  std::map<uint64_t, char> state_;
  std::map<uint64_t, std::vector<FileImage>> stored_;  // what batch_of() gave
  uint64_t first_ = 0, next_ = 0;  // numbers of batches: the oldest that may be there, the next
  uint64_t durable_ = 0;           // objects found to be there as promised
  uint64_t missed_ = 0;            // damaged ones
};

TEST_P(PowerCut, DurableIsThereErasedIsGoneNothingIsWrong) {
  std::string why;
  bool xfs = GetParam() == std::string("xfs");
  auto disk = LoopDisk::make(xfs ? LoopDisk::xfs() : LoopDisk::ext4(), why);
  if (!disk) GTEST_SKIP() << "no power cuts on " << GetParam() << ": " << why;
  std::mt19937_64 rng(kSeed), damages(kSeed);
  for (int cut = 0; cut < cuts(); ++cut) {
    SCOPED_TRACE("seed " + std::to_string(kSeed) + " cut " + std::to_string(cut));
    write_and_cut(*disk, rng);
    ASSERT_TRUE(disk->unmount());
    ASSERT_TRUE(disk->mount());
    for (int copy = 0; copy < 2; ++copy) check_damaged(disk->store(), damages);
    check(disk->store(), {});
    if (HasFailure()) return;
  }
  EXPECT_GT(durable_, static_cast<uint64_t>(cuts())) << "too little was promised";
  EXPECT_GT(missed_, static_cast<uint64_t>(cuts()) / 10) << "too little was damaged";
}

INSTANTIATE_TEST_SUITE_P(FileSystems, PowerCut, ::testing::Values("ext4", "xfs"),
                         [](const auto& of) { return std::string(of.param); });

}  // namespace
}  // namespace kv
