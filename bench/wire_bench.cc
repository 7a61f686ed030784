// Waits of a client beside the service: small fetches in batches, the first hit of a client
// that has nothing mapped, rows decoded into the pool, further blocks of a hit, and leases of a
// client that was killed.
//
// All times are of wall clocks; yardsticks run in the same program.
#include <benchmark/benchmark.h>
#include <sys/wait.h>

#include <atomic>
#include <barrier>
#include <thread>

#include "proto/socket_client.h"
#include "tests/support/cachesvc_server.h"

namespace kv {
namespace {

constexpr uint32_t kTokens = 3072;  // 12 blocks
using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// The daemon, and clients of it.
struct Daemon {
  Daemon(const char* ram, const char* codec) {
    process = DaemonProcess::start({"--dir", dir.store(), "--socket", socket(), "--ram", ram,
                                    "--ssd", "4GiB", "--codec", codec, "--set",
                                    "tier.ssd.min_free=0", "--set", "tier.ssd.spill=evict"});
  }
  std::string socket() const { return dir.store() + "-run/cachesvc.sock"; }
  std::unique_ptr<SocketClient> connect(const std::shared_ptr<OwnMemory>& memory = nullptr) const {
    SocketClientOptions options;
    options.max_connections = 1;
    options.memory = memory;
    auto client = SocketClient::connect(socket(), "bench", options);
    return client.ok() ? std::move(*client) : nullptr;
  }
  TempDir dir;
  std::unique_ptr<DaemonProcess> process;
};

ModelSpec large_model() {
  return model_of(std::vector<LayerSpec>(32, LayerSpec{{full_part(8, 128)}}));
}
ModelSpec small_model() { return model_of({LayerSpec{{full_part(2, 64)}}}); }

// 16 connections, each with batches of 64 fetches of 512 tokens under way.
void BM_SmallFetches(benchmark::State& state) {
  constexpr size_t kClients = 16, kBatch = 64, kBatches = 50;
  const Daemon daemon("1GiB", "raw");
  std::vector<std::unique_ptr<SocketClient>> clients;
  for (size_t i = 0; i < kClients; ++i) clients.push_back(daemon.connect());
  if (!daemon.process || !clients.back()) return state.SkipWithError("no daemon");
  std::mt19937 rng(1);
  Bench first = Bench::open(*clients[0], small_model());
  std::vector<std::vector<FetchRequest>> requests(kClients);
  for (size_t i = 0; i < kClients; ++i) {
    const auto tokens = random_tokens(rng, 512);
    if (!first.store(tokens).ok()) return state.SkipWithError("not stored");
    FetchRequest one;
    one.model = Bench::open(*clients[i], small_model()).opened.model;
    one.query = {plus_one(tokens), {}};
    requests[i].assign(kBatch, one);
  }
  std::atomic<size_t> served = 0;
  for (auto _ : state) {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kClients; ++i) {
      threads.emplace_back([&, i] {
        for (size_t n = 0; n < kBatches; ++n) {
          for (const auto& hit : clients[i]->fetch_all(requests[i], soon())) {
            served += hit.ok() && hit->tokens == 512;
          }
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }
  if (served != state.iterations() * kClients * kBatch * kBatches) {
    return state.SkipWithError("a miss");
  }
  state.counters["fetches/s"] =
      benchmark::Counter(static_cast<double>(served), benchmark::Counter::kIsRate);
}
BENCHMARK(BM_SmallFetches)->Iterations(3)->Unit(benchmark::kMillisecond)->UseRealTime();

// A fresh client's first hit of 100 MiB, beside one that has it mapped: until every plane can be
// read. Connecting and opening the model are not counted.
void BM_FirstHit(benchmark::State& state) {
  const Daemon daemon("1GiB", "tq4");
  auto owner = daemon.connect();
  if (!owner) return state.SkipWithError("no daemon");
  std::mt19937 rng(1);
  const auto tokens = random_tokens(rng, kTokens);
  Bench own = Bench::open(*owner, large_model());
  if (!own.store(tokens).ok() || !own.fetch(plus_one(tokens)).ok()) {
    return state.SkipWithError("not stored");
  }
  for (auto _ : state) {
    state.PauseTiming();
    auto fresh = daemon.connect();
    Bench b = Bench::open(*fresh, large_model());
    state.ResumeTiming();
    auto hit = b.fetch(plus_one(tokens));
    state.PauseTiming();
    if (!hit.ok() || hit->tokens != kTokens) return state.SkipWithError("miss");
    hit = Status(StatusCode::not_found, "let go");
    fresh.reset();
    state.ResumeTiming();
  }
}
BENCHMARK(BM_FirstHit)->Iterations(30)->Unit(benchmark::kMicrosecond)->UseRealTime();

// 96 MiB of rows as they are, written by the service into the client's own memory, whose pages are
// there.
constexpr uint64_t kIntoBytes = uint64_t{kTokens} * 16 * 2 * 4 * 128 * 2;
void BM_FetchInto(benchmark::State& state) {
  auto memory = OwnMemory::create(kIntoBytes);
  if (!memory.ok()) return state.SkipWithError(memory.status().to_string().c_str());
  const std::span all((*memory)->data(), kIntoBytes);
  (*memory)->touch(all);
  const Daemon daemon("1GiB", "raw");
  auto client = daemon.connect(*memory);
  if (!client) return state.SkipWithError("no daemon");
  std::mt19937 rng(1);
  const auto tokens = random_tokens(rng, kTokens);
  Bench b = Bench::open(*client, model_of(std::vector<LayerSpec>(16, {{full_part(4, 128)}})));
  if (!b.store(tokens).ok()) return state.SkipWithError("not stored");
  FetchRequest request;
  request.model = b.opened.model;
  request.query = {plus_one(tokens), {}};
  request.into = {all};
  for (auto _ : state) {
    auto hit = client->fetch(request, soon());
    if (!hit.ok()) return state.SkipWithError(hit.status().to_string().c_str());
    if (hit->tokens != kTokens) return state.SkipWithError("miss");
  }
}
BENCHMARK(BM_FetchInto)->Iterations(30)->Unit(benchmark::kMillisecond)->UseRealTime();

// Yardstick of that: as many bytes copied into memory that was touched.
void BM_CopyAlone(benchmark::State& state) {
  std::vector<uint8_t> from(kIntoBytes, 3), to(kIntoBytes, 4);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), to.size());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_CopyAlone)->Iterations(30)->Unit(benchmark::kMillisecond)->UseRealTime();

// Rows of 100 MiB of codes as f16, decoded into the pool and mapped.
void BM_FetchDecoded(benchmark::State& state) {
  const Daemon daemon("3GiB", "tq4");
  auto client = daemon.connect();
  if (!client) return state.SkipWithError("no daemon");
  std::mt19937 rng(1);
  const auto tokens = random_tokens(rng, kTokens);
  Bench b = Bench::open(*client, large_model());
  if (!b.store(tokens).ok()) return state.SkipWithError("not stored");
  FetchRequest request;
  request.model = b.opened.model;
  request.query = {plus_one(tokens), {}};
  request.form = FetchForm::f16;
  for (auto _ : state) {
    auto hit = client->fetch(request, soon());
    if (!hit.ok() || hit->tokens != kTokens) return state.SkipWithError("miss");
  }
}
BENCHMARK(BM_FetchDecoded)->Iterations(15)->Unit(benchmark::kMillisecond)->UseRealTime();

// Yardstick: the codec alone on the same planes, on two threads, into memory that was touched.
void BM_DecodeAlone(benchmark::State& state) {
  const Daemon daemon("1GiB", "tq4");
  auto client = daemon.connect();
  if (!client) return state.SkipWithError("no daemon");
  std::mt19937 rng(1);
  const auto tokens = random_tokens(rng, kTokens);
  Bench b = Bench::open(*client, large_model());
  if (!b.store(tokens).ok()) return state.SkipWithError("not stored");
  auto hit = b.fetch(plus_one(tokens));
  if (!hit.ok() || hit->tokens != kTokens) return state.SkipWithError("miss");
  std::vector<const Plane*> planes;
  uint64_t most = 0;
  for (const FetchedObject& o : hit->lease.prefix().objects) {
    for (const Plane& p : o.object->planes) {
      planes.push_back(&p);
      most = std::max(most, uint64_t{p.rows()} * p.heads * p.dim * 2);
    }
  }
  std::vector<uint8_t> to(planes.size() * most, 1);
  std::atomic<bool> good = true;
  for (auto _ : state) {
    std::atomic<size_t> next = 0;
    auto work = [&] {
      for (size_t i = next++; i < planes.size(); i = next++) {
        const Plane& p = *planes[i];
        const auto dst = std::span(to).subspan(i * most, most);
        if (!b.codec->decode_rows(p, p.first_row, p.end_row(), DType::f16, dst).ok()) good = false;
      }
    };
    std::thread other(work);
    work();
    other.join();
  }
  if (!good) state.SkipWithError("not decoded");
}
BENCHMARK(BM_DecodeAlone)->Iterations(15)->Unit(benchmark::kMillisecond)->UseRealTime();

// A hit by a hold's number of 12 and of 396 blocks in turn: what each further block adds.
void BM_FurtherBlocks(benchmark::State& state) {
  constexpr uint32_t kBlocks[] = {12, 396};
  const Daemon daemon("1GiB", "lossless");
  auto client = daemon.connect();
  if (!client) return state.SkipWithError("no daemon");
  std::mt19937 rng(1);
  Bench b = Bench::open(*client, small_model());
  std::vector<FetchRequest> requests;
  for (uint32_t blocks : kBlocks) {
    const auto tokens = random_tokens(rng, blocks * 256);
    if (!b.store(tokens).ok()) return state.SkipWithError("not stored");
    auto hold =
        client->hold({b.opened.model, {plus_one(tokens), {}}, {}, Milliseconds(600'000)}, soon());
    if (!hold.ok()) return state.SkipWithError(hold.status().to_string().c_str());
    FetchRequest& request = requests.emplace_back();
    request.model = b.opened.model;
    request.hold = hold->number;
    (void)client->fetch(request, soon());
  }
  std::vector<double> us[2];
  for (auto _ : state) {
    for (size_t i : {0u, 1u}) {
      const auto start = Clock::now();
      auto hit = client->fetch(requests[i], soon());
      us[i].push_back(us_since(start));
      if (!hit.ok() || hit->tokens != kBlocks[i] * 256) return state.SkipWithError("miss");
    }
  }
  for (auto& times : us) std::sort(times.begin(), times.end());
  const double few = us[0][us[0].size() / 2], many = us[1][us[1].size() / 2];
  state.counters["us_of_12"] = few;
  state.counters["us_a_block"] = (many - few) / (kBlocks[1] - kBlocks[0]);
}
BENCHMARK(BM_FurtherBlocks)->Iterations(1000)->Unit(benchmark::kMicrosecond)->UseRealTime();

// From the SIGKILL of a client that has leases of 100 MiB, which were erased meanwhile, until the
// service has their memory back.
void BM_DeadClient(benchmark::State& state) {
  const Daemon daemon("1GiB", "tq4");
  auto owner = daemon.connect();
  if (!owner) return state.SkipWithError("no daemon");
  std::mt19937 rng(1);
  const auto tokens = random_tokens(rng, kTokens);
  Bench own = Bench::open(*owner, large_model());
  double longest = 0;
  for (auto _ : state) {
    state.PauseTiming();
    if (!own.store(tokens).ok()) return state.SkipWithError("not stored");
    int ready[2];
    KV_CHECK(::pipe(ready) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
      auto client = daemon.connect();
      Bench b = Bench::open(*client, large_model());
      std::vector<Result<FetchReply>> held;
      for (int i = 0; i < 10; ++i) held.push_back(b.fetch(plus_one(tokens)));
      const char has = held.back().ok() && held.back()->tokens == kTokens;
      (void)!::write(ready[1], &has, 1);
      ::pause();
    }
    char has = 0;
    const bool leased = ::read(ready[0], &has, 1) == 1 && has != 0;
    ::close(ready[0]);
    ::close(ready[1]);
    const bool erased = owner->erase(own.opened.model, {}, soon()).ok();
    const bool held = own.stat("ram_stored_bytes") > 0;
    state.ResumeTiming();
    const auto start = Clock::now();
    ::kill(child, SIGKILL);
    while (own.stat("ram_stored_bytes") > 0) {
    }
    longest = std::max(longest, us_since(start) / 1000);
    state.PauseTiming();
    ::waitpid(child, nullptr, 0);
    if (!leased || !erased || !held) return state.SkipWithError("nothing was leased");
    state.ResumeTiming();
  }
  state.counters["longest_ms"] = longest;
}
BENCHMARK(BM_DeadClient)->Iterations(10)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace kv

BENCHMARK_MAIN();
