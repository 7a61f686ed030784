// LoopDisk: a file system of our own in a file, mounted through a loop device that can lose its
// power, or fail: the kernel's own EIO, not an injected one. Needs root, a loop device and mkfs.
#pragma once

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "tests/support/storage_testing.h"

namespace kv::testing {

inline bool shell(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

/// All gone at the end.
class LoopDisk {
 public:
  struct Kind {
    std::string type;  ///< mkfs.TYPE makes it
    uint64_t bytes;
    std::string mkfs_options;   ///< and "force", "quiet"
    std::string mount_options;  ///< behind "loop"
  };
  static Kind ext4() { return {"ext4", 320ull << 20, "-qF", ""}; }
  static Kind xfs() { return {"xfs", 320ull << 20, "-qf", ""}; }  // wants as much
  /// Without a journal there is nothing to abort: it goes on where a failure ends.
  static Kind without_journal() {
    return {"ext4", 64ull << 20, "-qF -O ^has_journal", ",errors=continue"};
  }
  /// Its journal's first failure makes it read-only until it is mounted anew, as most systems have
  /// it.
  static Kind read_only_on_error() { return {"ext4", 64ull << 20, "-qF", ",errors=remount-ro"}; }

  /// Null with the reason in `why` where it can't be had.
  static std::unique_ptr<LoopDisk> make(const Kind& kind, std::string& why) {
    namespace fs = std::filesystem;
    why.clear();
    if (::geteuid() != 0) why = "needs root";
    if (!fs::exists("/dev/loop-control")) why = "needs loop devices";
    if (!shell("command -v mkfs." + kind.type)) why = "needs mkfs." + kind.type;
    if (!why.empty()) return nullptr;
    std::unique_ptr<LoopDisk> disk(new LoopDisk(kind));
    std::ofstream(disk->image()).close();
    fs::resize_file(disk->image(), kind.bytes);
    fs::create_directory(disk->mounted());
    bool made = shell("mkfs." + kind.type + " " + kind.mkfs_options + " " + disk->image());
    if (!made) why = "mkfs." + kind.type + " failed";
    if (why.empty() && !disk->mount()) why = "mounting a loop device is not allowed here";
    return why.empty() ? std::move(disk) : nullptr;
  }
  ~LoopDisk() {
    (void)::umount2(mounted().c_str(), MNT_DETACH);  // may be unmounted already
  }
  bool mount() {
    return shell("mount -o loop" + kind_.mount_options + " " + image() + " " + mounted());
  }
  bool unmount() { return shell("umount " + mounted()); }
  std::string store() const { return mounted() + "/store"; }

  /// Everything that was not on the device is gone, as with the power.
  bool cut_power() {
    Fd fd = ::open(mounted().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    uint32_t no_log_flush = 2;
    bool cut = fd >= 0 && ::ioctl(fd, _IOR('X', 125, uint32_t), &no_log_flush) == 0;
    ::close(fd);
    return cut;
  }
  /// Reads and writes fail from now on, and what files hold is in memory no longer. What the device
  /// holds stays.
  bool fail() {
    if (!shell("sync -f " + mounted())) return false;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(mounted())) {
      if (entry.is_regular_file()) forget(entry.path());
    }
    return limit(kBytesLeft);
  }
  bool heal() { return limit(0); }
  /// Takes all its free space but `bytes`; give_back() frees it.
  bool fill(uint64_t bytes) {
    Fd fd = ::open(ballast().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    off_t end = 0;
    for (off_t step = 8 << 20; step >= 4096;) {
      bool room = free_bytes() >= bytes + static_cast<uint64_t>(step);
      bool taken = room && ::posix_fallocate(fd, end, step) == 0;
      if (taken)
        end += step;
      else
        step /= 2;
    }
    ::close(fd);
    return fd >= 0 && end > 0;
  }
  bool give_back() { return ::unlink(ballast().c_str()) == 0; }
  /// For users without privileges, as the tier counts.
  uint64_t free_bytes() const {
    struct statvfs info {};
    KV_CHECK(::statvfs(mounted().c_str(), &info) == 0);
    return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  }
  bool read_only() const {
    struct statvfs info {};
    KV_CHECK(::statvfs(mounted().c_str(), &info) == 0);
    return (info.f_flag & ST_RDONLY) != 0 || !std::ofstream(mounted() + "/probe").is_open();
  }

 private:
  static constexpr uint64_t kBytesLeft = 64 << 10;
  explicit LoopDisk(Kind kind) : kind_(std::move(kind)) {}
  std::string image() const { return dir_.path() + "/disk"; }
  std::string mounted() const { return dir_.path() + "/mnt"; }
  std::string ballast() const { return mounted() + "/ballast"; }
  static void forget(const std::string& file) {
    Fd fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
  /// Makes the device as short as `bytes`, the file behind it unchanged; 0: as long as that.
  bool limit(uint64_t bytes) {
    std::string name = dir_.path() + "/device";
    std::string find = "losetup -nO NAME -j " + image() + " > " + name;
    if (std::system(find.c_str()) != 0) return false;
    std::string device;
    std::ifstream(name) >> device;
    Fd fd = ::open(device.c_str(), O_RDWR | O_CLOEXEC);
    loop_info64 info{};
    bool done = fd >= 0 && ::ioctl(fd, LOOP_GET_STATUS64, &info) == 0;
    info.lo_sizelimit = bytes;
    done = done && ::ioctl(fd, LOOP_SET_STATUS64, &info) == 0;
    ::close(fd);
    return done;
  }

  const Kind kind_;
  TempDir dir_{true};  // of what is cut or failed nothing reaches a real disk
};

}  // namespace kv::testing
