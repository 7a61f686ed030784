// Stores of 96 MiB in 12 blocks until they are accepted, in process and over the socket, beside a
// copy of as many bytes and the codec's own work on them.
//
// The entry: 3,072 tokens of 32 layers, 4 kv heads of 64, f16 rows (8 MiB a block). All times are
// of wall clocks; what makes room for the next store is not timed.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "codec/finite.h"
#include "proto/socket_client.h"
#include "tests/support/cachesvc_server.h"
#include "tests/support/own_memory_testing.h"

namespace kv {
namespace {

constexpr uint32_t kTokens = 3072, kBlockTokens = 256;
constexpr uint64_t kEntryBytes = uint64_t{kTokens} * 32 * 2 * 4 * 64 * 2;

ModelSpec bench_model() {
  return model_of(std::vector<LayerSpec>(32, LayerSpec{{full_part(4, 64)}}));
}

// One entry's puts, stored again and again under other tokens.
class Stores {
 public:
  explicit Stores(Client& client) : b_(Bench::open(client, bench_model())) {
    std::mt19937 rng(1);
    tokens_ = random_tokens(rng, kTokens);
  }
  // The puts, for a reservation that lacks everything.
  Status prepare() {
    KV_ASSIGN_OR_RETURN(ReserveReply reserved, b_.reserve(tokens_));
    const auto hashes = prefix_hashes(tokens_);
    for (const Need& need : reserved.needs) {
      puts_.push_back(make_put(b_.model, kBlockTokens, tokens_, hashes, need, 0));
    }
    return b_.client.abort(reserved.reservation, soon());
  }
  Status store() {
    KV_ASSIGN_OR_RETURN(ReserveReply reserved, b_.reserve(tokens_));
    std::vector<PutRequest> puts = puts_;
    for (PutRequest& put : puts) put.reservation = reserved.reservation;
    for (const Status& put : b_.client.put_all(std::move(puts), soon())) KV_RETURN_IF_ERROR(put);
    return b_.client.commit(reserved.reservation, Durability::accepted, soon()).status();
  }
  // Other entries of the same size: a tier that is in use keeps the memory that a store needs.
  Status fill() {
    for (int i = 0; i < 7; ++i) {
      KV_RETURN_IF_ERROR(store());
      ++tokens_[0];
    }
    return {};
  }
  Status make_room() {
    const QueryRequest entry{b_.opened.model, {tokens_, {}}, b_.opened.realm.profile};
    ++tokens_[0];
    return b_.client.erase_entry(entry, soon()).status();
  }
  // The codec's own work on all rows, on two threads, into memory that was touched. False: refused.
  bool encode_alone(std::vector<uint8_t>& to) const {
    std::vector<const Plane*> planes;
    for (const PutRequest& put : puts_) {
      for (const Plane& plane : put.object.planes) planes.push_back(&plane);
    }
    const uint64_t most = to.size() / planes.size();
    std::atomic<size_t> next = 0;
    std::atomic<bool> good = true;
    auto work = [&] {
      for (size_t i = next++; i < planes.size(); i = next++) {
        const uint64_t size = *b_.codec->encoded_bytes(*planes[i]);
        const auto place = std::span(to).subspan(i * most, size);
        if (!b_.codec->encode(*planes[i], place).ok()) good = false;
      }
    };
    std::thread other(work);
    work();
    other.join();
    return good;
  }
  // Has the rows lie in `memory` from now on.
  void move_into(const std::shared_ptr<OwnMemory>& memory) {
    uint64_t at = 0;
    for (PutRequest& put : puts_) move_rows(memory, put, at);
  }

 private:
  Bench b_;
  std::vector<Token> tokens_;
  std::vector<PutRequest> puts_;
};

void measure(benchmark::State& state, Client& client,
             const std::shared_ptr<OwnMemory>& memory = nullptr) {
  Stores stores(client);
  if (Status s = stores.prepare(); !s.ok()) return state.SkipWithError(s.to_string().c_str());
  if (memory) stores.move_into(memory);
  if (Status s = stores.fill(); !s.ok()) return state.SkipWithError(s.to_string().c_str());
  for (auto _ : state) {
    Status s = stores.store();
    state.PauseTiming();
    if (s.ok()) s = stores.make_room();
    if (!s.ok()) return state.SkipWithError(s.to_string().c_str());
    state.ResumeTiming();
  }
}

// In process. Argument: bits of keys and values; 0: rows as they are.
void BM_StoreInProcess(benchmark::State& state) {
  CacheOptions options;
  options.ram_budget_bytes = 1ull << 30;
  const auto bits = static_cast<uint8_t>(state.range(0));
  options.coding = {bits, bits};
  auto cache = open_cache(options);
  measure(state, *cache);
}
BENCHMARK(BM_StoreInProcess)->Arg(0)->Arg(4)->Unit(benchmark::kMillisecond)->UseRealTime();

void store_to_daemon(benchmark::State& state, std::shared_ptr<OwnMemory> memory) {
  TempDir dir;
  const std::string socket = dir.store() + "-run/cachesvc.sock";
  auto daemon =
      DaemonProcess::start({"--dir", dir.store(), "--socket", socket, "--ram", "1GiB", "--ssd",
                            "4GiB", "--codec", state.range(0) == 0 ? "raw" : "tq4", "--set",
                            "tier.ssd.min_free=0", "--set", "tier.ssd.spill=evict"});
  SocketClientOptions options;
  options.memory = memory;
  auto client = SocketClient::connect(socket, "bench", options);
  if (!daemon || !client.ok()) return state.SkipWithError("no daemon");
  measure(state, **client, memory);
}

// Rows that travel.
void BM_StoreSocket(benchmark::State& state) { store_to_daemon(state, nullptr); }
BENCHMARK(BM_StoreSocket)->Arg(0)->Arg(4)->Unit(benchmark::kMillisecond)->UseRealTime();

// Rows that the service reads in the client's memory.
void BM_StoreFromMemory(benchmark::State& state) {
  auto memory = OwnMemory::create(kEntryBytes);
  if (!memory.ok()) return state.SkipWithError(memory.status().to_string().c_str());
  store_to_daemon(state, *memory);
}
BENCHMARK(BM_StoreFromMemory)->Arg(0)->Arg(4)->Unit(benchmark::kMillisecond)->UseRealTime();

// Share of the RAM tier's memory that lies in objects, while entries of mixed lengths come, are
// read and go, so that it is exchanged some ten times: the rest lies idle in segments that clients
// have mapped, and can't go back to the system by pieces.
void BM_SegmentsUnderChurn(benchmark::State& state) {
  constexpr size_t kStores = 400;
  TempDir dir;
  const std::string socket = dir.store() + "-run/cachesvc.sock";
  auto daemon = DaemonProcess::start({"--dir", dir.store(), "--socket", socket, "--ram", "256MiB",
                                      "--ssd", "4GiB", "--codec", "raw", "--set",
                                      "tier.ssd.min_free=0", "--set", "tier.ssd.spill=evict"});
  auto client = SocketClient::connect(socket, "bench", {});
  if (!daemon || !client.ok()) return state.SkipWithError("no daemon");
  Bench b =
      Bench::open(**client, model_of(std::vector<LayerSpec>(4, LayerSpec{{full_part(4, 64)}})));
  std::mt19937 rng(5);
  for (auto _ : state) {
    std::vector<std::vector<Token>> recent;
    double sum = 0, least = 1;
    size_t looks = 0;
    for (size_t i = 0; i < kStores; ++i) {
      recent.push_back(random_tokens(rng, 100 + rng() % 6000));
      if (!b.store(recent.back()).ok()) return state.SkipWithError("a store failed");
      if (recent.size() > 20) recent.erase(recent.begin());
      if (!b.fetch(recent[rng() % recent.size()]).ok())
        return state.SkipWithError("a fetch failed");
      if (i < kStores / 4) continue;  // the tier fills
      const auto stored = static_cast<double>(b.stat("ram_stored_bytes"));
      const double live = stored / (stored + static_cast<double>(b.stat("segment_idle_bytes")));
      sum += live;
      least = std::min(least, live);
      ++looks;
    }
    state.counters["live"] = sum / static_cast<double>(looks);
    state.counters["least"] = least;
  }
}
BENCHMARK(BM_SegmentsUnderChurn)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(1);

// Yardstick of coded rows.
void BM_EncodeAlone(benchmark::State& state) {
  CacheOptions options;
  options.ram_budget_bytes = 1ull << 30;
  options.coding = {4, 4};
  auto cache = open_cache(options);
  Stores stores(*cache);
  if (Status s = stores.prepare(); !s.ok()) return state.SkipWithError(s.to_string().c_str());
  std::vector<uint8_t> to(kEntryBytes, 1);
  for (auto _ : state) {
    if (!stores.encode_alone(to)) return state.SkipWithError("not encoded");
  }
}
BENCHMARK(BM_EncodeAlone)->Unit(benchmark::kMillisecond)->UseRealTime();

// Yardstick of rows as they are: one copy, into memory that was touched before.
void BM_Copy(benchmark::State& state) {
  std::vector<uint8_t> from(kEntryBytes, 3), to(kEntryBytes, 4);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), to.size());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_Copy)->Unit(benchmark::kMillisecond)->UseRealTime();

// The least that a store of rows as they are from a client's memory can do, on two threads: each
// block's bytes read out of the memfd into memory that was touched, by pieces of a plane; argument
// 1: and looked at whether they are finite, 2: and summed, piece by piece.
void BM_ReadAlone(benchmark::State& state) {
  constexpr uint64_t kPiece = 128u << 10, kBlock = kEntryBytes / 12;
  auto memory = OwnMemory::create(kEntryBytes);
  if (!memory.ok()) return state.SkipWithError(memory.status().to_string().c_str());
  std::fill_n((*memory)->data(), kEntryBytes, uint8_t{3});
  std::vector<uint8_t> to(kEntryBytes, 4);
  const int fd = (*memory)->fd();
  std::atomic<uint64_t> wrong = 0;
  for (auto _ : state) {
    std::atomic<uint64_t> next = 0;
    auto work = [&] {
      for (uint64_t block = next++; block < 12; block = next++) {
        Xxh128Stream sum;
        for (uint64_t at = block * kBlock; at < (block + 1) * kBlock; at += kPiece) {
          const std::span piece(to.data() + at, kPiece);
          wrong += ::pread(fd, piece.data(), kPiece, static_cast<off_t>(at)) != kPiece;
          if (state.range(0) >= 1) wrong += !finite_values(piece.data(), kPiece / 2, DType::f16);
          if (state.range(0) >= 2) sum.update(piece);
        }
        wrong += sum.digest() == Xxh128{};
      }
    };
    std::thread other(work);
    work();
    other.join();
  }
  if (wrong != 0) state.SkipWithError("not read");
}
BENCHMARK(BM_ReadAlone)->DenseRange(0, 2)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace kv

BENCHMARK_MAIN();
