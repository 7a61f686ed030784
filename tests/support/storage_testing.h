// Shared by the tests of storage/: sample objects, a temporary directory, and Files that fail or
// kill.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "proto/identity.h"
#include "storage/ssd_tier.h"

namespace kv::testing {

/// A fresh directory that goes with the test.
class TempDir {
 public:
  /// `memory`: in memory where there is such a file system, for tests of thousands of syncs that a
  /// busy disk would slow down and that no power cut is part of.
  explicit TempDir(bool memory = false) {
    const char* base = std::getenv("TMPDIR");
    if (memory && ::access("/dev/shm", W_OK) == 0) base = "/dev/shm";
    std::string pattern = std::string(base != nullptr ? base : "/tmp") + "/kv_storage_XXXXXX";
    KV_CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string store() const { return path_ + "/store"; }

 private:
  std::string path_;
};

inline Realm sample_realm(const std::string& ns = "tenant") {
  Realm realm;
  realm.ns = ns;
  realm.fingerprint = sha256(std::vector<uint8_t>{1, 2, 3});
  realm.profile = sha256(std::vector<uint8_t>{4, 5, 6});
  return realm;
}

inline Bytes random_payload(std::mt19937_64& rng, size_t size) {
  std::vector<uint8_t> out(size);
  for (auto& b : out) b = static_cast<uint8_t>(rng());
  return Bytes::owning(std::move(out));
}

/// A plane of exact rows with random bytes.
inline Plane sample_plane(std::mt19937_64& rng, uint16_t layer, Side side, uint32_t first_row,
                          uint32_t rows, uint32_t heads = 1, uint32_t dim = 8) {
  Plane plane;
  plane.layer = layer;
  plane.side = side;
  plane.heads = heads;
  plane.dim = dim;
  plane.first_row = first_row;
  plane.runs = {{RunForm::exact, rows}};
  plane.bytes = random_payload(rng, plane_bytes(plane));
  return plane;
}

/// A block of `rows` random tokens after `parent`, two layers of K and V.
inline Object sample_block(std::mt19937_64& rng, const Id& parent = {}, uint32_t first_token = 0,
                           uint32_t rows = 16, uint32_t dim = 8) {
  Object o;
  o.name.kind = ObjectKind::block;
  o.parent = parent;
  o.first_token = first_token;
  for (uint32_t i = 0; i < rows; ++i) o.tokens.push_back(static_cast<Token>(rng() % 50000));
  for (uint16_t layer = 0; layer < 2; ++layer) {
    o.planes.push_back(sample_plane(rng, layer, Side::k, first_token, rows, 1, dim));
    o.planes.push_back(sample_plane(rng, layer, Side::v, first_token, rows, 1, dim));
  }
  stamp(o, sample_realm());
  return o;
}

/// Window rows of `block`.
inline Object sample_supplement(std::mt19937_64& rng, const Object& block, uint16_t group,
                                uint32_t first_row, uint32_t end_row) {
  Object o = block;
  o.name.kind = ObjectKind::supplement;
  o.name.group = group;
  o.name.first_row = first_row;
  o.name.end_row = end_row;
  o.planes = {sample_plane(rng, 0, Side::k, first_row, end_row - first_row)};
  return o;
}

/// States at the end of `parent`, plus `rest` tokens.
inline Object sample_snapshot(std::mt19937_64& rng, const Object& parent, uint32_t rest) {
  Object o;
  o.name.kind = ObjectKind::snapshot;
  o.parent = parent.name.id;
  o.first_token = parent.end_token();
  for (uint32_t i = 0; i < rest; ++i) o.tokens.push_back(static_cast<Token>(rng() % 50000));
  o.states = {{0, 0, random_payload(rng, 100)}, {1, 0, random_payload(rng, 0)}};
  stamp(o, sample_realm());
  return o;
}

/// A chain of `count` blocks from the root.
inline std::vector<FileImage> sample_chain(std::mt19937_64& rng, size_t count, uint32_t dim = 8) {
  std::vector<FileImage> images;
  Id parent;
  for (uint32_t i = 0; i < count; ++i) {
    Object o = sample_block(rng, parent, i * 16, 16, dim);
    parent = o.name.id;
    images.push_back(raw_image(o));
  }
  return images;
}

inline Profile sample_profile(float mean) {
  Profile profile;
  profile.parts = {{PartCoding{4, 4, {mean, 0, 0, 0, 0, 0, 0, 0}, {}}}, {PartCoding{}}};
  return profile;
}

inline ModelRecord sample_record(uint64_t serial) {
  ModelRecord record;
  record.ns = "tenant";
  record.model.name = "sample";
  record.model.fingerprint = sample_realm().fingerprint;
  PartSpec part;
  part.heads = 1;
  part.k_dim = part.v_dim = 8;
  record.model.layers = {LayerSpec{{part}}, LayerSpec{{part}}};
  record.profile = sample_profile(static_cast<float>(serial)).id();
  record.serial = serial;
  return record;
}

/// Bytes as decoding must give them back.
inline void expect_same(const FileImage& expected, const FileImage& given) {
  ASSERT_EQ(expected.pieces.size(), given.pieces.size());
  EXPECT_EQ(expected.header.name, given.header.name);
  EXPECT_EQ(expected.header.tokens, given.header.tokens);
  EXPECT_EQ(expected.header.extras, given.header.extras);
  EXPECT_EQ(expected.header.parent, given.header.parent);
  EXPECT_EQ(expected.header.ns, given.header.ns);
  for (size_t i = 0; i < expected.pieces.size(); ++i) {
    EXPECT_EQ(expected.pieces[i].packing, given.pieces[i].packing);
    EXPECT_EQ(expected.pieces[i].unpacked_bytes, given.pieces[i].unpacked_bytes);
    EXPECT_TRUE(expected.pieces[i].bytes == given.pieces[i].bytes) << "piece " << i;
  }
}

/// Allocated bytes of everything in a directory, itself included: what `du` counts.
inline uint64_t du(const std::string& path) {
  auto info = posix_files().stat(path);
  if (!info.ok()) return 0;
  uint64_t bytes = info->allocated_bytes;
  if (!info->is_dir) return bytes;
  auto listed = posix_files().list(path);
  if (!listed.ok()) return bytes;
  for (const auto& entry : *listed) bytes += du(path + "/" + entry.name);
  return bytes;
}

/// The real Files, with something happening at the Nth call that changes or reads the disk.
class FaultFiles final : public Files {
 public:
  enum class Mode { off, fail_once, fail_for_ever, kill };
  Mode mode = Mode::off;
  uint64_t at = 0;                         ///< the call, counted from 1
  StatusCode code = StatusCode::io_error;  ///< of the failure
  bool short_io = false;                   ///< every read and write moves at most 7 bytes
  std::atomic<uint64_t> calls = 0;
  /// Asked first, if set: fails the call when it returns an error.
  std::function<Status(const char* call, const std::string& path)> script;
  std::function<void(const std::string& path)> before_close;

  Result<Fd> create(const std::string& p) override {
    KV_RETURN_IF_ERROR(step("create", p));
    return remember(real_.create(p), p);
  }
  Result<Fd> open_read(const std::string& p) override {
    KV_RETURN_IF_ERROR(step("open_read", p));
    return remember(real_.open_read(p), p);
  }
  Result<size_t> pwrite(Fd fd, std::span<const uint8_t> b, uint64_t o) override {
    KV_RETURN_IF_ERROR(step("pwrite", path_of(fd)));
    return real_.pwrite(fd, short_io && b.size() > 7 ? b.first(7) : b, o);
  }
  Result<size_t> pread(Fd fd, std::span<uint8_t> b, uint64_t o) override {
    KV_RETURN_IF_ERROR(step("pread", path_of(fd)));
    return real_.pread(fd, short_io && b.size() > 7 ? b.first(7) : b, o);
  }
  Status allocate(Fd fd, uint64_t bytes) override {
    KV_RETURN_IF_ERROR(step("allocate", path_of(fd)));
    return real_.allocate(fd, bytes);
  }
  void write_behind(Fd fd) override { real_.write_behind(fd); }
  void drop_cached(Fd fd) override { real_.drop_cached(fd); }
  Status fdatasync(Fd fd) override {
    KV_RETURN_IF_ERROR(step("fdatasync", path_of(fd)));
    return real_.fdatasync(fd);
  }
  Status sync_dir(const std::string& p) override {
    KV_RETURN_IF_ERROR(step("sync_dir", p));
    return real_.sync_dir(p);
  }
  void close(Fd fd) override {
    if (before_close) before_close(path_of(fd));
    {
      std::lock_guard lock(mutex_);
      paths_.erase(fd);
    }
    real_.close(fd);
  }
  Status rename(const std::string& from, const std::string& to) override {
    KV_RETURN_IF_ERROR(step("rename", to));
    return real_.rename(from, to);
  }
  Status unlink(const std::string& p) override {
    KV_RETURN_IF_ERROR(step("unlink", p));
    return real_.unlink(p);
  }
  Result<std::vector<DirEntry>> list(const std::string& p) override {
    KV_RETURN_IF_ERROR(step("list", p));
    return real_.list(p);
  }
  Result<std::vector<ListedFile>> list_files(const std::string& p) override {
    KV_ASSIGN_OR_RETURN(auto entries, list(p));
    std::vector<ListedFile> files;
    for (const DirEntry& entry : entries) {
      auto info = stat(p + "/" + entry.name);
      files.push_back({entry.name, info.ok() ? *info : FileInfo{}, info.ok()});
    }
    return files;
  }
  Result<FileInfo> stat(const std::string& p) override {
    KV_RETURN_IF_ERROR(step("stat", p));
    return real_.stat(p);
  }
  Result<FileInfo> stat(Fd fd) override {
    KV_RETURN_IF_ERROR(step("fstat", path_of(fd)));
    return real_.stat(fd);
  }
  Result<uint64_t> free_bytes(const std::string& p) override {
    KV_RETURN_IF_ERROR(step("free_bytes", p));
    return real_.free_bytes(p);
  }
  Status make_dir(const std::string& p) override {
    KV_RETURN_IF_ERROR(step("make_dir", p));
    return real_.make_dir(p);
  }
  Result<Fd> lock(const std::string& p) override {
    KV_RETURN_IF_ERROR(step("lock", p));
    return remember(real_.lock(p), p);
  }
  Result<Fd> lock_dir(const std::string& p) override {
    KV_RETURN_IF_ERROR(step("lock_dir", p));
    return remember(real_.lock_dir(p), p);
  }

 private:
  Result<Fd> remember(Result<Fd> fd, const std::string& path) {
    std::lock_guard lock(mutex_);
    if (fd.ok()) paths_[*fd] = path;
    return fd;
  }
  std::string path_of(Fd fd) {
    std::lock_guard lock(mutex_);
    return paths_[fd];
  }
  Status step(const char* call, const std::string& path) {
    uint64_t number = ++calls;
    if (script) KV_RETURN_IF_ERROR(script(call, path));
    bool now = mode == Mode::fail_for_ever ? number >= at : number == at;
    if (mode == Mode::off || !now) return {};
    if (mode == Mode::kill) ::kill(::getpid(), SIGKILL);
    return {code, std::string("injected at ") + call + " " + path};
  }

  Files& real_ = posix_files();
  std::mutex mutex_;
  std::map<Fd, std::string> paths_;  // under the mutex
};

/// The key of 32 equal bytes.
inline std::shared_ptr<const SealKey> sample_key(uint8_t byte) {
  std::array<uint8_t, kSealKeyBytes> secret;
  secret.fill(byte);
  return *SealKey::create(secret);
}

inline SsdOptions small_options(Files* files = nullptr, uint64_t limit_bytes = 64 << 20) {
  SsdOptions options;
  options.limit_bytes = limit_bytes;
  options.files = files;
  return options;
}

/// Open and recovered; null after a failed expectation.
inline std::unique_ptr<SsdTier> open_tier(const TempDir& dir, SsdOptions options,
                                          Recovery* found = nullptr) {
  auto tier = SsdTier::open(dir.store(), std::move(options));
  EXPECT_TRUE(tier.ok()) << tier.status().to_string();
  if (!tier.ok()) return nullptr;
  auto recovery = (*tier)->recover();
  EXPECT_TRUE(recovery.ok()) << recovery.status().to_string();
  if (found != nullptr && recovery.ok()) *found = std::move(*recovery);
  return std::move(*tier);
}

inline void put_all(SsdTier& tier, const std::vector<FileImage>& images,
                    Durability level = Durability::spilled) {
  for (const auto& result : tier.put(images, level)) {
    EXPECT_TRUE(result.status.ok()) << result.status.to_string();
    EXPECT_EQ(result.reached, level);
  }
}

inline std::set<ObjectName> names_of(const Recovery& found) {
  std::set<ObjectName> names;
  for (const auto& object : found.objects) names.insert(object.header.name);
  return names;
}

inline std::set<ObjectName> names_of(const std::vector<FileImage>& images) {
  std::set<ObjectName> names;
  for (const auto& image : images) names.insert(image.header.name);
  return names;
}

inline std::string path_of(const TempDir& dir, const ObjectName& name) {
  return dir.store() + "/" + relative_path(name);
}

inline void flip_byte(const std::string& path, long offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(offset);
  char c = static_cast<char>(file.get());
  file.seekp(offset);
  file.put(static_cast<char>(c ^ 0x40));
}

}  // namespace kv::testing
