// Kills the real daemon at random moments while it spills, and checks what the next one serves.
//
// The parent journals every commit acked `spilled` with its own copy of the rows. After each
// SIGKILL a copy of the directory is recovered on the side: a temporary file with bytes in it, or a
// file that the catalog doesn't know, proves that the kill fell between a temporary file's first
// byte and its catalog row. A sampler adds up the directory's allocated bytes every 10 ms
// throughout.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "proto/socket_client.h"
#include "storage/ssd_tier.h"
#include "tests/support/allocated_bytes.h"
#include "tests/support/daemon_process.h"
#include "tests/support/soak.h"

namespace kv {
namespace {

namespace fs = std::filesystem;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
const int kKills = soaked(40);
#else
const int kKills = soaked(200);
#endif
const int kKillsInWindow = kKills * 3 / 4;
constexpr uint64_t kLimitBytes = 24ull << 20;
constexpr uint64_t kTightLimitBytes = 12ull << 20;
const int kKillsUnderPressure = shared_rounds(30);
const int kKillsInBackground = soaked(20);
constexpr uint32_t kBlockTokens = 256;
constexpr uint32_t kDim = 64;
constexpr uint32_t kBlocksPerEntry = 6;
constexpr size_t kLiveEntries = 12;

// One layer, one kv head, raw f16 rows: what comes back must be the very bytes that went in.
ModelSpec small_model() {
  ModelSpec model;
  model.name = "kill-test";
  model.fingerprint.bytes[0] = 7;
  PartSpec part;
  part.heads = 1;
  part.k_dim = part.v_dim = kDim;
  model.layers.push_back({{part}});
  return model;
}

std::shared_ptr<const Profile> raw_profile() {
  auto profile = std::make_shared<Profile>();
  profile->block_tokens = kBlockTokens;
  profile->exact_tokens = 0;
  profile->parts = {{PartCoding{}}};
  return profile;
}

// A row's bytes follow from its sequence and position alone.
Plane make_plane(uint64_t seed, Side side, uint32_t first, uint32_t rows) {
  Plane p;
  p.side = side;
  p.heads = 1;
  p.dim = kDim;
  p.first_row = first;
  p.runs = {{RunForm::exact, rows}};
  std::mt19937_64 random(seed * 1000003 + first * 2 + static_cast<uint64_t>(side));
  std::vector<uint8_t> bytes(size_t{rows} * kDim * 2);
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    bytes[i] = static_cast<uint8_t>(random());
    bytes[i + 1] = static_cast<uint8_t>(random() & 0x3b);  // finite f16, positive, below 2
  }
  p.bytes = Bytes::owning(std::move(bytes));
  return p;
}

Query make_query(uint64_t seed) {
  Query q;
  for (uint32_t i = 0; i < kBlocksPerEntry * kBlockTokens; ++i) {
    q.tokens.push_back(i == 0 ? static_cast<Token>(seed)
                              : static_cast<Token>((seed * 31 + i) % 997));
  }
  return q;
}

// Waits for the first bytes of new temporary files.
class TempWatch {
 public:
  explicit TempWatch(const std::string& tmp_dir) : fd_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
    ::inotify_add_watch(fd_, tmp_dir.c_str(), IN_MODIFY);
  }
  ~TempWatch() { ::close(fd_); }
  TempWatch(const TempWatch&) = delete;  // owns the descriptor
  TempWatch& operator=(const TempWatch&) = delete;
  /// True once `count` files have got their first byte since construction.
  bool wait(size_t count, int timeout_ms) {
    alignas(inotify_event) char buffer[4096];
    while (started_.size() < count) {
      pollfd p{fd_, POLLIN, 0};
      if (::poll(&p, 1, timeout_ms) != 1) return false;
      ssize_t n = ::read(fd_, buffer, sizeof(buffer));
      for (ssize_t at = 0; at < n;) {
        auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
        if (event->len > 0) started_.insert(event->name);
        at += static_cast<ssize_t>(sizeof(inotify_event)) + event->len;
      }
    }
    return true;
  }

 private:
  int fd_;
  std::set<std::string> started_;
};

// True if the directory, as the kill left it, holds a started temporary file or a file without a
// row.
bool killed_in_window(const std::string& dir) {
  std::string copy = dir + ".copy";
  fs::remove_all(copy);
  fs::copy(dir, copy, fs::copy_options::recursive);
  fs::permissions(copy, fs::perms::owner_all);
  bool started = false;
  for (const auto& e : fs::directory_iterator(fs::path(copy) / kTempFolder)) {
    started |= e.is_regular_file() && e.file_size() > 0;
  }
  SsdOptions options;
  options.limit_bytes = 4 * kLimitBytes;
  auto tier = SsdTier::open(copy, options);
  EXPECT_TRUE(tier.ok()) << tier.status().to_string();
  if (!tier.ok()) return false;
  auto recovery = (*tier)->recover();
  EXPECT_TRUE(recovery.ok()) << recovery.status().to_string();
  EXPECT_TRUE(!recovery.ok() || recovery->quarantined == 0) << "a kill left a damaged file";
  EXPECT_TRUE(!recovery.ok() || recovery->catalog_rebuilt.empty()) << recovery->catalog_rebuilt;
  bool without_row = recovery.ok() && recovery->adopted > 0;
  tier->reset();
  fs::remove_all(copy);
  return started || without_row;
}

class KillTest : public ::testing::Test {
 protected:
  KillTest() : root_(::testing::TempDir() + "kill-" + std::to_string(::getpid())) {
    fs::remove_all(root_);
    fs::create_directories(root_);
    fs::permissions(root_, fs::perms::owner_all);
    dir_ = root_ + "/store";
    socket_ = root_ + "/run/cachesvc.sock";
  }
  ~KillTest() override { fs::remove_all(root_); }

  void start() {
    std::vector<std::string> arguments{"--dir", dir_,    "--socket",
                                       socket_, "--ssd", std::to_string(limit_bytes_)};
    daemon_ = DaemonProcess::start(arguments, limits_);
    ASSERT_TRUE(daemon_ != nullptr);
    auto client = SocketClient::connect(socket_, "kill", {});
    ASSERT_TRUE(client.ok()) << client.status().to_string();
    client_ = std::move(*client);
    OpenRequest open;
    open.model = small_model();
    open.profile = raw_profile();
    auto reply = client_->open(open, deadline());
    ASSERT_TRUE(reply.ok()) << reply.status().to_string();
    realm_ = reply->realm;
    model_ = reply->model;
  }

  static Deadline deadline() { return deadline_in(std::chrono::seconds(30)); }

  // Stores entry `seed`; true if the commit was acked `spilled`.
  bool store(uint64_t seed, Client& client) {
    auto reserved = client.reserve({model_, realm_.profile, make_query(seed)}, deadline());
    if (!reserved.ok()) return false;
    Query q = make_query(seed);
    Id parent;
    for (uint32_t b = 0; b < kBlocksPerEntry; ++b) {
      PutRequest put;
      put.reservation = reserved->reservation;
      Object& o = put.object;
      o.name.kind = ObjectKind::block;
      o.parent = parent;
      o.first_token = b * kBlockTokens;
      o.tokens.assign(q.tokens.begin() + o.first_token,
                      q.tokens.begin() + o.first_token + kBlockTokens);
      for (Side side : {Side::k, Side::v}) {
        o.planes.push_back(make_plane(seed, side, o.first_token, kBlockTokens));
      }
      stamp(o, realm_);
      parent = o.name.id;
      if (!client.put(std::move(put), deadline()).ok()) return false;
    }
    auto commit = client.commit(reserved->reservation, Durability::spilled, deadline());
    return commit.ok() && commit->level >= Durability::spilled;
  }

  // Every journaled entry is served whole and bytewise equal; nothing of a never-acked one is
  // wrong.
  void check(uint64_t seed, bool must_be_whole) {
    FetchRequest request;
    request.model = model_;
    request.query = make_query(seed);
    request.query.tokens.push_back(1);  // so that all of the entry may be served
    auto reply = client_->fetch(request, deadline());
    ASSERT_TRUE(reply.ok()) << reply.status().to_string();
    if (must_be_whole) {
      ASSERT_EQ(reply->tokens, kBlocksPerEntry * kBlockTokens)
          << "entry " << seed << ": " << reply->reason;
    }
    for (const auto& f : reply->lease.prefix().objects) {
      for (const Plane& p : f.object->planes) {
        Plane expected = make_plane(seed, p.side, p.first_row, p.rows());
        ASSERT_TRUE(p.bytes == expected.bytes) << "entry " << seed << " rows from " << p.first_row;
      }
    }
  }

  std::string root_, dir_, socket_;
  uint64_t limit_bytes_ = kLimitBytes;
  std::vector<std::string> limits_;  // of the daemon (DaemonProcess)
  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<SocketClient> client_;
  Realm realm_;
  uint32_t model_ = 0;
};

TEST_F(KillTest, EverySpilledBlockIsServedAfterEveryKill) {
  uint64_t seed = std::random_device{}();
  if (const char* given = std::getenv("KV_SEED")) seed = std::strtoull(given, nullptr, 10);
  std::printf("KV_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  int in_window = 0, acked = 0;
  double latest_us = 3000;  // of a kill after its event: shorter while kills come after the window
  uint64_t next_entry = 1;
  std::vector<uint64_t> journal, attempted;
  ASSERT_NO_FATAL_FAILURE(start());
  Sampler sampler(dir_);
  for (int kill = 0; kill < kKills; ++kill) {
    TempWatch watch(dir_ + "/" + kTempFolder);
    std::atomic<bool> stop{false};
    std::vector<uint64_t> stored;
    std::thread storer([&] {
      while (!stop) {
        uint64_t entry = next_entry++;
        attempted.push_back(entry);
        if (!store(entry, *client_)) return;  // the daemon is gone
        stored.push_back(entry);
      }
    });
    bool began = watch.wait(1 + random() % (4 * kBlocksPerEntry), 10000);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % static_cast<int>(latest_us)));
    daemon_->kill();
    stop = true;
    storer.join();
    ASSERT_TRUE(began) << "no spill began";
    bool hit = killed_in_window(dir_);
    in_window += hit ? 1 : 0;
    latest_us = std::clamp(latest_us * (hit ? 1.1 : 0.5), 10.0, 3000.0);
    acked += static_cast<int>(stored.size());
    journal.insert(journal.end(), stored.begin(), stored.end());
    ASSERT_NO_FATAL_FAILURE(start());
    for (uint64_t entry : journal) ASSERT_NO_FATAL_FAILURE(check(entry, true));
    for (uint64_t entry : attempted) ASSERT_NO_FATAL_FAILURE(check(entry, false));
    // Keep the live set far below the limit, so that nothing acked may be evicted.
    if (journal.size() > kLiveEntries || attempted.size() > 2 * kLiveEntries) {
      ASSERT_TRUE(client_->erase(model_, {}, deadline()).ok());
      for (uint64_t entry : attempted) {
        FetchRequest request;
        request.model = model_;
        request.query = make_query(entry);
        auto reply = client_->fetch(request, deadline());
        ASSERT_TRUE(reply.ok());
        ASSERT_EQ(reply->tokens, 0u) << "an erased entry returned";
      }
      journal.clear();
      attempted.clear();
    }
  }
  std::printf(
      "kills %d, in the window %d, acked entries %d (%u blocks each), samples %llu, highest %.1f "
      "of %.1f MiB\n",
      kKills, in_window, acked, kBlocksPerEntry, static_cast<unsigned long long>(sampler.samples()),
      static_cast<double>(sampler.highest()) / (1 << 20),
      static_cast<double>(kLimitBytes) / (1 << 20));
  EXPECT_GE(in_window, kKillsInWindow);
  EXPECT_GT(sampler.samples(), 0u);
  EXPECT_LE(sampler.highest(), kLimitBytes);
  EXPECT_GT(acked, kKills / 4);
}

// More than the directory holds is stored, with kills in between: the oldest goes, never the limit.
TEST_F(KillTest, NoSampleIsOverTheLimitWhenStoresPressAgainstIt) {
  limit_bytes_ = kTightLimitBytes;
  std::mt19937_64 random(7);
  uint64_t entry = 1'000;
  ASSERT_NO_FATAL_FAILURE(start());
  Sampler sampler(dir_);
  for (int kill = 0; kill < kKillsUnderPressure; ++kill) {
    uint64_t first = entry;
    std::thread storer([&] {
      while (store(entry, *client_)) ++entry;
    });
    TempWatch watch(dir_ + "/" + kTempFolder);
    bool began = watch.wait(100 + random() % 100, 10'000);
    daemon_->kill();
    storer.join();
    EXPECT_TRUE(began) << "spilling stopped";
    EXPECT_GT(entry, first);
    ASSERT_NO_FATAL_FAILURE(start());
    for (uint64_t e = first; e <= entry; ++e) ASSERT_NO_FATAL_FAILURE(check(e, false));
    ++entry;
  }
  std::printf("entries %llu, samples %llu, highest %.2f of %.2f MiB\n",
              static_cast<unsigned long long>(entry - 1'000),
              static_cast<unsigned long long>(sampler.samples()),
              static_cast<double>(sampler.highest()) / (1 << 20),
              static_cast<double>(limit_bytes_) / (1 << 20));
  EXPECT_LE(sampler.highest(), limit_bytes_);
  EXPECT_GT(sampler.highest(), limit_bytes_ / 2) << "the stores never pressed against the limit";
}

// Started by something that closed them: what is opened first must not be where messages go.
TEST_F(KillTest, ADaemonWithoutStandardDescriptorsOpensNothingOfItsOwnInTheirPlace) {
  auto daemon = DaemonProcess::start({"--dir", dir_, "--socket", socket_}, {}, true);
  ASSERT_TRUE(daemon != nullptr);
  for (const char* fd : {"0", "1", "2"}) {
    std::string link = "/proc/" + std::to_string(daemon->pid()) + "/fd/" + fd;
    EXPECT_EQ(fs::read_symlink(link), "/dev/null") << fd;
  }
  EXPECT_EQ(daemon->stop(), 0);
}

// Every start has lost its catalog and is killed while the background reads the files and more is
// stored: every other time something that is being read.
TEST_F(KillTest, KillsDuringTheBackgroundRecoveryLoseNothing) {
  constexpr uint64_t kEntries = 6;
  std::mt19937_64 random(11);
  std::vector<uint64_t> journal;
  ASSERT_NO_FATAL_FAILURE(start());
  for (uint64_t entry = 1; entry <= kEntries; ++entry) {
    ASSERT_TRUE(store(entry, *client_));
    journal.push_back(entry);
  }
  limits_ = {"adopt_at_start=0", "reconcile_rate=30"};
  Sampler sampler(dir_);
  int unread = 0;
  for (int kill = 0; kill < kKillsInBackground; ++kill) {
    daemon_->kill();
    fs::remove(dir_ + "/" + kCatalogFile);
    fs::remove(dir_ + "/" + kCatalogFile + "-wal");
    ASSERT_NO_FATAL_FAILURE(start());
    uint64_t again = kill % 2 == 0 ? 1 + random() % kEntries : kEntries + 1 + random() % 3;
    if (store(again, *client_)) journal.push_back(again);
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 60));
    auto stats = client_->stats(deadline());
    ASSERT_TRUE(stats.ok());
    for (const auto& [name, value] : stats->values) unread += name == "recovery_unread" && value;
  }
  daemon_->kill();
  EXPECT_GT(unread, kKillsInBackground / 4) << "most were killed after the background had ended";
  limits_.clear();
  ASSERT_NO_FATAL_FAILURE(start());
  for (uint64_t entry : journal) ASSERT_NO_FATAL_FAILURE(check(entry, true));
  auto stats = client_->stats(deadline());
  std::map<std::string, uint64_t> value(stats->values.begin(), stats->values.end());
  EXPECT_EQ(value["recovery_quarantined"], 0u);
  EXPECT_EQ(value["ssd_used_bytes"], allocated_bytes(dir_));
  EXPECT_LE(sampler.highest(), limit_bytes_);
}

}  // namespace
}  // namespace kv
