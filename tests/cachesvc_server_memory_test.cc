// What the daemon holds of the machine's memory: its budget and little beside, in every sample,
// whatever clients do. The yardstick is the kernel's own account of the process.
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "cachesvc/daemon/server.h"
#include "tests/support/cachesvc_server.h"

namespace kv {
namespace {

using testing::flatten;

constexpr uint64_t kMiB = 1u << 20;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // shadow and quarantine are resident too
#else
constexpr bool kSanitized = false;
#endif
constexpr uint64_t kBeside = 32 * kMiB;  // cachesvc/OPERATING.md, "Memory"

// Resident bytes of a process, each 10 ms until it is destroyed; keeps the highest.
class ResidentSampler {
 public:
  explicit ResidentSampler(pid_t pid)
      : path_("/proc/" + std::to_string(pid) + "/smaps_rollup"), thread_([this] { run(); }) {}
  ~ResidentSampler() {
    stop_ = true;
    thread_.join();
  }
  ResidentSampler(const ResidentSampler&) = delete;  // owns a thread
  ResidentSampler& operator=(const ResidentSampler&) = delete;
  uint64_t highest() const { return highest_; }
  uint64_t samples() const { return samples_; }

 private:
  void run() {
    while (!stop_) {
      std::ifstream in(path_);
      for (std::string word; in >> word;) {
        uint64_t kib = 0;
        if (word != "Rss:" || !(in >> kib)) continue;
        highest_ = std::max<uint64_t>(highest_, kib << 10);
        ++samples_;
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  std::string path_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> highest_{0}, samples_{0};
  std::thread thread_;
};

class Resident : public ServerTest {
 protected:
  void start_with(uint64_t budget) {
    start({"--set", "tier.ram.budget=" + std::to_string(budget), "--set", "tier.ssd.limit=512MiB",
           "--set", "codec.default=tq4", "--set", "codec.block_tokens=64"},
          {"room_wait=50", "max_put=" + std::to_string(budget / 8)});
  }

  // Stores, fetches in several forms, and so promotes, evicts and spills; misses and busy are fine.
  void churn(int number, int rounds) {
    std::mt19937 rng(static_cast<uint32_t>(number));
    auto client = connect("churn" + std::to_string(number % 2));
    ASSERT_TRUE(client);
    // 512 KiB a block of f16 rows
    ModelSpec model = model_of(std::vector<LayerSpec>(8, LayerSpec{{full_part(4, 64)}}));
    auto b = Bench::open(*client, model);
    std::vector<Sequence> stored;
    for (int i = 0; i < rounds; ++i) {
      stored.push_back(random_tokens(rng, 64 * (1 + rng() % 8) + rng() % 64));
      (void)b.store(stored.back(), i % 4 == 0 ? Durability::spilled : Durability::accepted);
      for (FetchForm form : {FetchForm::stored, FetchForm::f32}) {
        const Sequence& one = stored[rng() % stored.size()];
        auto hit = b.fetch(plus_one(one), form);
        if (hit.ok()) ++hits_;
      }
    }
  }

  // Asks for everything as f32 and reads none of it, until the daemon cuts it.
  void never_read(int number, int rounds) {
    std::mt19937 rng(static_cast<uint32_t>(number));
    ModelSpec model = model_of(std::vector<LayerSpec>(8, LayerSpec{{full_part(4, 64)}}));
    auto client = connect("raw");
    auto b = Bench::open(*client, model);
    auto tokens = random_tokens(rng, 1024);
    (void)b.store(tokens);
    for (int i = 0; i < rounds; ++i) {
      RawPeer peer(socket());
      if (!peer.connected()) continue;
      peer.hello();
      peer.send(flatten(request_frame(FrameType::open, 2, 0,
                                      OpenRequest{model, nullptr, false, PrefillMode::exact})));
      auto frame = peer.receive();
      if (!frame) continue;
      auto opened = decode_reply<OpenReply>(FrameType::open_ok, frame->body.span());
      if (!opened.ok()) continue;
      FetchCall call;
      call.request.model = opened->model;
      call.request.query.tokens = plus_one(tokens);
      call.request.form = FetchForm::f32;
      for (uint64_t id = 3; id < 19; ++id) {
        if (!peer.send(flatten(request_frame(FrameType::fetch, id, 0, call)))) break;
      }
      uint64_t before = b.stat("fetches");
      Deadline deadline = soon();
      while (b.stat("fetches") < before + 1 && std::chrono::steady_clock::now() < deadline) {
        (void)b.store(tokens);
        if (b.fetch(plus_one(tokens)).ok()) break;
      }
    }
  }

  // Models as large as the format lets them be, and profiles: most are refused.
  void hostile_opens(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      auto client = connect("hostile" + std::to_string(i % 3));
      if (!client) continue;
      ModelSpec model = model_of(std::vector<LayerSpec>(kMaxLayers), 9);
      model.fingerprint.bytes[1] = static_cast<uint8_t>(i);
      uint32_t number = 0;
      for (auto& layer : model.layers) {
        layer.parts.assign(i % 2 ? kMaxPartsPerLayer : 1,
                           i % 2 ? full_part(1, 32) : full_part(4, 64));
        for (PartSpec& part : layer.parts) part.window = ++number;
      }
      Profile profile = *make_profile(model, 4);
      for (auto& layer : profile.parts) {
        for (PartCoding& part : layer) part.key_mean.assign(i % 2 ? 32 : 256, float(i));
      }
      OpenRequest open;
      open.model = model;
      open.profile = std::make_shared<const Profile>(std::move(profile));
      for (int again = 0; again < 3; ++again) opened_ += client->open(open, soon()).ok();
    }
  }

  void expect_bounded(uint64_t budget, int rounds) {
    start_with(budget);
    ResidentSampler sampler(daemon_->pid());
    std::vector<std::thread> clients;
    for (int i = 0; i < 4; ++i) clients.emplace_back([this, i, rounds] { churn(i, rounds); });
    clients.emplace_back([this, rounds] { never_read(9, rounds / 8); });
    clients.emplace_back([this, rounds] { hostile_opens(rounds / 4); });
    for (auto& c : clients) c.join();
    std::printf(
        "budget %llu MiB: highest %.1f MiB in %llu samples, %d hits, %d hostile opens; of "
        "the ledger %.1f MiB\n",
        static_cast<unsigned long long>(budget / kMiB),
        static_cast<double>(sampler.highest()) / double(kMiB),
        static_cast<unsigned long long>(sampler.samples()), hits_.load(), opened_.load(),
        static_cast<double>(stat("ram_peak_bytes")) / double(kMiB));
    EXPECT_GT(hits_, 0);
    EXPECT_GT(sampler.highest(), budget / 2) << "nothing pressed against the budget";
    EXPECT_LE(stat("ram_peak_bytes"), budget);
    if (kSanitized) return;  // the churn has looked for errors of memory; the bytes are a release's
    EXPECT_LE(sampler.highest(), budget + kBeside);
  }

  std::atomic<int> hits_{0}, opened_{0};
};

TEST_F(Resident, ABudgetOf64MiBHoldsAll) { expect_bounded(64 * kMiB, 40); }
TEST_F(Resident, ABudgetOf256MiBHoldsAll) {
  if (kSanitized) GTEST_SKIP() << "the bytes are a release's; the churn is that of 64 MiB";
  expect_bounded(256 * kMiB, 80);
}
TEST_F(Resident, ABudgetOf1GiBHoldsAll) {
  if (std::getenv("KV_SOAK") == nullptr) GTEST_SKIP() << "half a minute: in the soak";
  expect_bounded(1024 * kMiB, 400);
}

}  // namespace
}  // namespace kv
