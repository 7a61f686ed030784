// How long the loop of the real daemon is busy with one thing, while 100 MiB entries are stored,
// fetched, spilled, promoted, evicted and erased over its socket.
//
// Counters, since the daemon's start, which each benchmark makes anew: handlers of the loop;
// over_1ms: those of them that took longer than that by the clock, what the kernel gave the
// processor to meanwhile included; over_1ms_cpu: of the processor; apart: those of the latter that
// are not near a long step of the bystander (bench/bystander.h), so that no pause of the machine
// is behind them; bystander_long: its long steps, bystander_steps: all of them; held_up: the part
// of the time that is near a long one; wall_us and cpu_us: the longest of late, and the longest
// that one took of the processor. Entries, of 4 bit: blocks:12 is 3,072 tokens of 32 layers, 8 kv
// heads of 128, blocks:64 is 16,384 of SmolLM2's geometry, blocks:512 is 131,072 of 12 layers, one
// kv head of 64. The directory is made under TMPDIR.
#include <benchmark/benchmark.h>

#include "bench/bystander.h"
#include "tests/support/cachesvc_server.h"

namespace kv {
namespace {

constexpr uint32_t kBlockTokens = 256;

ModelSpec model_of_blocks(int64_t blocks) {
  if (blocks == 512) return model_of(std::vector<LayerSpec>(12, LayerSpec{{full_part(1, 64)}}));
  bool large = blocks == 12;
  return model_of(std::vector<LayerSpec>(
      large ? 32 : 30, LayerSpec{{large ? full_part(8, 128) : full_part(3, 64)}}));
}

// A daemon with a client of it.
class Service {
 public:
  Service(const TempDir& dir, const char* ram, bool spill_at_commit, int64_t blocks)
      : blocks_(blocks) {
    std::string socket = dir.store() + "-run/cachesvc.sock";
    const char* spill = spill_at_commit ? "tier.ssd.spill=commit" : "tier.ssd.spill=evict";
    daemon_ = DaemonProcess::start({"--dir", dir.store(), "--socket", socket, "--ram", ram, "--ssd",
                                    "8GiB", "--set", "tier.ssd.min_free=0", "--set", spill});
    KV_CHECK(daemon_ != nullptr);
    auto client = SocketClient::connect(socket, "bench", {});
    KV_CHECK(client.ok());
    client_ = std::move(*client);
    auto watching = SocketClient::connect(socket, "watch", {});
    KV_CHECK(watching.ok());
    watching_ = std::move(*watching);
    bench_ = std::make_unique<Bench>(Bench::open(*client_, model_of_blocks(blocks)));
    bystander_ =
        std::make_unique<Bystander>([this] { return stat_of(*watching_, "loop_over_1ms_cpu"); });
  }

  std::vector<Token> prompt(uint32_t seed) const {
    std::mt19937 rng(seed);
    return random_tokens(rng, static_cast<size_t>(blocks_) * kBlockTokens);
  }
  bool store(uint32_t seed, Durability level = Durability::accepted) {
    auto reserved = bench_->reserve(prompt(seed));
    if (!reserved.ok()) return false;
    for (PutRequest put : rows(reserved->needs)) {
      put.reservation = reserved->reservation;
      if (!bench_->client.put(std::move(put), soon()).ok()) return false;
    }
    auto reply = bench_->client.commit(reserved->reservation, level, soon());
    return reply.ok() && reply->level >= level;
  }
  bool fetch(uint32_t seed, Tier tier, FetchForm form = FetchForm::stored) {
    auto hit = bench_->fetch(plus_one(prompt(seed)), form);
    return hit.ok() && hit->tier == tier && hit->tokens == blocks_ * kBlockTokens;
  }
  bool erase(uint32_t seed) {
    auto count = client_->erase(bench_->opened.model, {prompt(seed), {}}, soon());
    return count.ok() && *count > 0;
  }
  bool erase_all() {
    auto count = client_->erase(bench_->opened.model, {}, soon());
    return count.ok() && *count > 0;
  }
  uint64_t stat(const char* name) { return bench_->stat(name); }

  void report(benchmark::State& state) {
    Bystander::Seen seen = bystander_->end();
    auto tell = [&](const char* name, const char* counter) {
      state.counters[name] = static_cast<double>(stat(counter));
    };
    tell("handlers", "loop_handlers");
    tell("over_1ms", "loop_over_1ms");
    tell("over_1ms_cpu", "loop_over_1ms_cpu");
    tell("wall_us", "loop_longest_us");
    tell("cpu_us", "loop_longest_cpu_us");
    state.counters["apart"] = static_cast<double>(seen.apart);
    state.counters["bystander_steps"] = static_cast<double>(seen.steps);
    state.counters["bystander_long"] = static_cast<double>(seen.long_steps);
    state.counters["held_up"] =
        seen.tenths == 0 ? 0 : static_cast<double>(seen.held_up) / static_cast<double>(seen.tenths);
  }

 private:
  // Made once for each geometry: tokens alone tell entries apart.
  const std::vector<PutRequest>& rows(const std::vector<Need>& needs) const {
    static std::map<int64_t, std::vector<PutRequest>> made;
    auto& puts = made[blocks_];
    if (!puts.empty()) return puts;
    auto tokens = prompt(1);
    auto hashes = prefix_hashes(tokens);
    for (const Need& need : needs) {
      puts.push_back(make_put(model_of_blocks(blocks_), kBlockTokens, tokens, hashes, need, 0));
    }
    return puts;
  }

  const int64_t blocks_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<SocketClient> client_;
  std::unique_ptr<Bench> bench_;
  std::unique_ptr<SocketClient> watching_;
  std::unique_ptr<Bystander> bystander_;  // ends before its client
};

void measured(benchmark::internal::Benchmark* b) {
  b->ArgName("blocks")
      ->Arg(12)
      ->Arg(64)
      ->Arg(512)
      ->Iterations(6)
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}

// Into RAM, until the answer.
void BM_LoopStore(benchmark::State& state) {
  TempDir dir;
  Service service(dir, "2GiB", false, state.range(0));
  uint32_t seed = 0;
  for (auto _ : state) {
    if (!service.store(++seed)) return state.SkipWithError("not stored");
  }
  service.report(state);
}
BENCHMARK(BM_LoopStore)->Apply(measured);

// Out of RAM, received whole; as it is stored, then as f16.
void BM_LoopFetch(benchmark::State& state) {
  TempDir dir;
  Service service(dir, "2GiB", false, state.range(0));
  if (!service.store(1)) return state.SkipWithError("not stored");
  for (auto _ : state) {
    bool all = service.fetch(1, Tier::ram) && service.fetch(1, Tier::ram, FetchForm::f16);
    if (!all) return state.SkipWithError("miss");
  }
  service.report(state);
}
BENCHMARK(BM_LoopFetch)->Apply(measured);

// Stored and written, until it is durable.
void BM_LoopSpill(benchmark::State& state) {
  TempDir dir;
  Service service(dir, "2GiB", true, state.range(0));
  uint32_t seed = 0;
  for (auto _ : state) {
    if (!service.store(++seed, Durability::durable)) return state.SkipWithError("not durable");
  }
  service.report(state);
}
BENCHMARK(BM_LoopSpill)->Apply(measured);

// Entries that an earlier daemon has stored, each fetched once.
void BM_LoopPromote(benchmark::State& state) {
  TempDir dir;
  {
    Service before(dir, "2GiB", true, state.range(0));
    for (uint32_t seed = 1; seed <= state.max_iterations; ++seed) {
      if (!before.store(seed, Durability::durable)) return state.SkipWithError("not durable");
    }
  }
  Service service(dir, "2GiB", true, state.range(0));
  uint32_t seed = 0;
  for (auto _ : state) {
    if (!service.fetch(++seed, Tier::ssd)) return state.SkipWithError("no promotion");
  }
  service.report(state);
}
BENCHMARK(BM_LoopPromote)->Apply(measured);

// A RAM tier that is full: each store, and then each promotion, takes the place of what was used
// least.
void BM_LoopEvict(benchmark::State& state) {
  constexpr uint32_t kFill = 6;
  TempDir dir;
  Service service(dir, "640MiB", true, state.range(0));
  uint32_t seed = 0;
  while (seed < kFill) {
    if (!service.store(++seed, Durability::durable)) return state.SkipWithError("not durable");
  }
  uint64_t evicted = service.stat("ram_evicted_clean");
  uint32_t oldest = 0;
  for (auto _ : state) {
    bool all = service.store(++seed, Durability::durable) && service.fetch(++oldest, Tier::ssd);
    if (!all) return state.SkipWithError("neither stored nor promoted");
  }
  service.report(state);
  state.counters["evicted"] = static_cast<double>(service.stat("ram_evicted_clean") - evicted);
}
BENCHMARK(BM_LoopEvict)->Apply(measured);

// One entry after the other, then all that is left at once.
void BM_LoopErase(benchmark::State& state) {
  TempDir dir;
  Service service(dir, "3GiB", true, state.range(0));
  auto entries = static_cast<uint32_t>(2 * state.max_iterations);
  for (uint32_t seed = 1; seed <= entries; ++seed) {
    if (!service.store(seed, Durability::durable)) return state.SkipWithError("not durable");
  }
  uint32_t seed = 0;
  for (auto _ : state) {
    bool done = ++seed == state.max_iterations ? service.erase_all() : service.erase(seed);
    if (!done) return state.SkipWithError("not erased");
  }
  service.report(state);
}
BENCHMARK(BM_LoopErase)->Apply(measured);

}  // namespace
}  // namespace kv

BENCHMARK_MAIN();
