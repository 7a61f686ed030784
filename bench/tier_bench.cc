// promote and spill through the whole path, TieredCache to device, beside bare system calls that
// move the same bytes in the same number of files.
//
// The entry: 16,384 tokens of SmolLM2's geometry at 4 bit, 64 blocks, 96 MiB in files; packed:1:
// codes are packed (`pack_codes`), which takes 5 % less. The yardsticks move the plain
// files. Times are of wall clocks; wait_ms: the longest that another client waited for a call that
// only visits the loop meanwhile. The directory is made under TMPDIR, which must be on a device.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "memory/slab_store.h"
#include "proto/checksum.h"
#include "storage/files.h"
#include "storage/read_buffers.h"
#include "tests/support/cachesvc_testing.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kBlocks = 64;
constexpr uint32_t kTokens = kBlocks * 256;
constexpr uint32_t kDirtyEntries = 11;  // about 1 GiB

ModelSpec smollm2() { return model_of(std::vector<LayerSpec>(30, LayerSpec{{full_part(3, 64)}})); }
std::vector<Token> prompt(uint32_t seed) {
  std::mt19937 rng(seed);
  return random_tokens(rng, kTokens + 1);  // one more than is stored: a fetch serves all of it
}
CacheOptions options_in(const std::string& dir, bool packed = false) {
  CacheOptions o;
  o.pack_codes = packed ? PackCodes::always : PackCodes::never;
  o.ram_budget_bytes = 1ull << 30;
  o.ssd_dir = dir;
  o.ssd_limit_bytes = 4ull << 30;
  o.ssd_min_free_bytes = 0;
  o.coding = {4, 4};
  o.durable_group_delay = Milliseconds(1);  // nobody else to wait for
  return o;
}

// The entry's rows, made once: tokens alone tell entries apart.
const std::vector<PutRequest>& rows(Bench& b, const std::vector<Need>& needs) {
  static const std::vector<PutRequest> puts = [&] {
    auto tokens = prompt(1);
    auto hashes = prefix_hashes(tokens);
    std::vector<PutRequest> made;
    for (const Need& need : needs) made.push_back(make_put(b.model, 256, tokens, hashes, need, 0));
    return made;
  }();
  return puts;
}

// An entry in RAM, visible to nobody: what is left to do is its commit.
Result<uint64_t> put_entry(Bench& b, uint32_t seed) {
  auto tokens = prompt(seed);
  tokens.pop_back();
  KV_ASSIGN_OR_RETURN(ReserveReply reserved, b.reserve(tokens));
  for (PutRequest put : rows(b, reserved.needs)) {
    put.reservation = reserved.reservation;
    KV_RETURN_IF_ERROR(b.client.put(std::move(put), soon()));
  }
  return reserved.reservation;
}

std::vector<std::string> block_files(const std::string& dir) {
  std::vector<std::string> files;
  for (const auto& e : fs::recursive_directory_iterator(dir)) {
    if (e.path().extension() == ".block") files.push_back(e.path());
  }
  return files;
}

void forget_pages(const std::vector<std::string>& files) {  // by the page cache
  for (const auto& file : files) {
    Fd fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    KV_CHECK(fd >= 0 && ::fdatasync(fd) == 0);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

bool store_durable(Bench& b, uint32_t seed) {
  auto reservation = put_entry(b, seed);
  if (!reservation.ok()) return false;
  auto reply = b.client.commit(*reservation, Durability::durable, soon());
  return reply.ok() && reply->level == Durability::durable;
}

// One durable entry in a directory, written by a cache that is gone.
struct Stored {
  explicit Stored(bool packed) {
    auto cache = open_cache(options_in(dir.store(), packed));
    auto b = Bench::open(*cache, smollm2());
    KV_CHECK(store_durable(b, 1));
    cache.reset();
    files = block_files(dir.store());
    KV_CHECK(files.size() == kBlocks);
    one_file = dir.store() + "-one";
    std::ofstream all(one_file, std::ios::binary);
    for (const auto& file : files) {
      all << std::ifstream(file, std::ios::binary).rdbuf();
      bytes += fs::file_size(file);
    }
  }
  void forget() const { forget_pages(files); }
  TempDir dir;
  std::vector<std::string> files;
  std::string one_file;
  uint64_t bytes = 0;
};
const Stored& stored(bool packed = false) {
  static const Stored plain(false);
  if (!packed) return plain;
  static const Stored entry(true);
  return entry;
}
void set_bytes(benchmark::State& state) {
  state.SetBytesProcessed(static_cast<int64_t>(stored().bytes * state.iterations()));
}

// A client of its own that asks for next to nothing, again and again, until it is destroyed.
class LoopProbe {
 public:
  LoopProbe(TieredCache& cache, double& longest_ms)
      : client_(*cache.connect("probe")), thread_([this, &longest_ms] {
          while (!stop_) {
            auto start = std::chrono::steady_clock::now();
            (void)client_->abort(UINT64_MAX, soon());
            std::chrono::duration<double, std::milli> took =
                std::chrono::steady_clock::now() - start;
            longest_ms = std::max(longest_ms, took.count());
            std::this_thread::sleep_for(std::chrono::microseconds(200));
          }
        }) {}
  ~LoopProbe() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::unique_ptr<Client> client_;
  std::atomic<bool> stop_{false};
  std::thread thread_;  // last: it uses the others
};

// A cache that has just been opened and has its memory ready (`ready_bytes`), or has none; every
// byte verified, in RAM, leased.
void BM_PromoteCold(benchmark::State& state) {
  auto tokens = prompt(1);
  const Stored& entry = stored(state.range(0) == 1);
  double longest_ms = 0;
  for (auto _ : state) {
    state.PauseTiming();
    CacheOptions options = options_in(entry.dir.store());
    if (state.range(1) == 0) options.ready_bytes = 0;
    auto cache = open_cache(options);
    auto b = Bench::open(*cache, smollm2());
    while (b.stat("ram_recycled_bytes") < options.ready_bytes) std::this_thread::yield();
    entry.forget();
    auto probe = std::make_unique<LoopProbe>(*cache, longest_ms);
    state.ResumeTiming();
    auto hit = b.fetch(tokens);
    state.PauseTiming();
    probe.reset();
    bool all = hit.ok() && hit->tier == Tier::ssd && hit->tokens == kTokens;
    hit = Status(StatusCode::not_found, "");
    cache.reset();
    state.ResumeTiming();
    if (!all) return state.SkipWithError("no promotion");
  }
  state.counters["wait_ms"] = longest_ms;
  set_bytes(state);
}
BENCHMARK(BM_PromoteCold)
    ->ArgNames({"packed", "ready"})
    ->Args({0, 1})
    ->Args({0, 0})
    ->Args({1, 1})
    ->Iterations(5)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// A RAM tier that is full, as one in use is: each entry takes the place of the one used least, and
// its memory.
void BM_PromoteFull(benchmark::State& state) {
  constexpr uint32_t kEntries = 12;
  TempDir dir;
  CacheOptions options = options_in(dir.store());
  auto cache = open_cache(options);
  auto b = Bench::open(*cache, smollm2());
  for (uint32_t seed = 1; seed <= kEntries; ++seed) {
    if (!store_durable(b, seed)) return state.SkipWithError("not stored");
  }
  forget_pages(block_files(dir.store()));
  uint32_t turn = 0;
  for (; turn < kEntries; ++turn) (void)b.fetch(prompt(1 + turn % kEntries));
  for (auto _ : state) {
    state.PauseTiming();
    auto tokens = prompt(1 + turn++ % kEntries);
    state.ResumeTiming();
    auto hit = b.fetch(tokens);
    bool all = hit.ok() && hit->tier == Tier::ssd && hit->tokens == kTokens;
    if (!all) return state.SkipWithError("no promotion");
  }
  set_bytes(state);
}
BENCHMARK(BM_PromoteFull)->Iterations(12)->Unit(benchmark::kMillisecond)->UseRealTime();

// First touch of 96 MiB in slabs of a block's size: out of a new SlabStore, or of operator new.
void BM_FirstTouch(benchmark::State& state) {
  constexpr size_t kBytes = 3 << 19;
  bool of_store = state.range(0) == 1;
  std::vector<uint8_t*> slabs(kBlocks);
  for (auto _ : state) {
    SlabStore store;
    for (uint8_t*& slab : slabs) {
      slab = of_store ? store.take(kBytes) : new uint8_t[kBytes];
      std::memset(slab, 1, kBytes);
    }
    state.PauseTiming();
    for (uint8_t* slab : slabs) {
      if (of_store) {
        store.give(slab, kBytes, 0);
      } else {
        delete[] slab;
      }
    }
    state.ResumeTiming();
  }
  state.SetBytesProcessed(static_cast<int64_t>(kBlocks * kBytes * state.iterations()));
}
BENCHMARK(BM_FirstTouch)
    ->ArgName("store")
    ->Arg(1)
    ->Arg(0)
    ->Iterations(10)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// Yardstick: the same bytes into recycled memory, one request after the other, past the page cache.
void BM_ReadDirect(benchmark::State& state) {
  auto files = state.range(0) == 1 ? std::vector{stored().one_file} : stored().files;
  ReadBuffers buffers;
  ReadBuffers::Use buffer(buffers);
  for (auto _ : state) {
    uint64_t bytes = 0;
    for (const auto& file : files) {
      Fd fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
      if (fd < 0) return state.SkipWithError("no direct reads under TMPDIR");
      auto into = buffer.span();
      ssize_t n = 0;
      for (uint64_t at = 0;
           (n = ::pread(fd, into.data(), into.size(), static_cast<off_t>(at))) > 0;) {
        at += static_cast<uint64_t>(n);
        bytes += static_cast<uint64_t>(n);
        if (static_cast<size_t>(n) < into.size()) break;
      }
      ::close(fd);
    }
    if (bytes != stored().bytes) return state.SkipWithError("a read failed");
  }
  set_bytes(state);
}
BENCHMARK(BM_ReadDirect)
    ->ArgName("files")
    ->Arg(kBlocks)
    ->Arg(1)
    ->Iterations(5)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// One file into `to`, kCopiedFileBytes of memory that is there; summed twice on the way, for the
// file's head and for later checks of what is in RAM. Returns its bytes.
constexpr size_t kCopiedFileBytes = 2 << 20;
uint64_t read_copy_sum(const std::string& file, std::span<uint8_t> buffer, uint8_t* to) {
  Fd fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  ssize_t n = ::pread(fd, buffer.data(), kCopiedFileBytes, 0);
  ::close(fd);
  if (n <= 0) return 0;
  Xxh128Stream sums[2];
  auto rest = buffer.first(static_cast<size_t>(n));
  while (!rest.empty()) {
    auto step = rest.first(std::min<size_t>(rest.size(), 256 << 10));
    std::memcpy(to, step.data(), step.size());
    for (auto& sum : sums) sum.update({to, step.size()});
    to += step.size();
    rest = rest.subspan(step.size());
  }
  for (auto& sum : sums) benchmark::DoNotOptimize(sum.digest());
  return static_cast<uint64_t>(n);
}

// Yardstick: the least that verified promotes do, on as many threads.
void BM_ReadCopySum(benchmark::State& state) {
  const auto& files = stored().files;
  std::vector<uint8_t> out(files.size() * kCopiedFileBytes, 1);
  ReadBuffers buffers;
  buffers.make_ready();
  for (auto _ : state) {
    std::atomic<size_t> next = 0;
    std::atomic<uint64_t> bytes = 0;
    auto read = [&] {
      ReadBuffers::Use buffer(buffers);
      for (size_t i; (i = next++) < files.size();) {
        bytes += read_copy_sum(files[i], buffer.span(), &out[i * kCopiedFileBytes]);
      }
    };
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < kDiskThreads; ++i) threads.emplace_back(read);
    for (auto& thread : threads) thread.join();
    if (bytes != stored().bytes) return state.SkipWithError("a read failed");
  }
  set_bytes(state);
}
BENCHMARK(BM_ReadCopySum)->Iterations(5)->Unit(benchmark::kMillisecond)->UseRealTime();

// From an entry in RAM until it is durable.
void BM_SpillDurable(benchmark::State& state) {
  TempDir dir;
  auto cache = open_cache(options_in(dir.store(), state.range(0) == 1));
  auto b = Bench::open(*cache, smollm2());
  uint32_t seed = 100;
  double longest_ms = 0;
  for (auto _ : state) {
    state.PauseTiming();
    auto reservation = put_entry(b, ++seed);
    if (!reservation.ok()) return state.SkipWithError(reservation.status().to_string().c_str());
    auto probe = std::make_unique<LoopProbe>(*cache, longest_ms);
    state.ResumeTiming();
    auto reply = b.client.commit(*reservation, Durability::durable, soon());
    state.PauseTiming();
    probe.reset();
    state.ResumeTiming();
    if (!reply.ok() || reply->level != Durability::durable) {
      return state.SkipWithError("not durable");
    }
  }
  state.counters["wait_ms"] = longest_ms;
  set_bytes(state);
}
BENCHMARK(BM_SpillDurable)
    ->ArgName("packed")
    ->Arg(0)
    ->Arg(1)
    ->Iterations(4)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// 1 GiB in RAM that was never written, as a daemon's end finds it with `tier.ssd.spill = evict`.
void BM_Drain(benchmark::State& state) {
  TempDir dir;
  CacheOptions options = options_in(dir.store());
  options.ram_budget_bytes = 3ull << 30;
  options.spill_when = SpillWhen::evict;
  auto cache = open_cache(options);
  auto b = Bench::open(*cache, smollm2());
  for (uint32_t entry = 0; entry < kDirtyEntries; ++entry) {
    auto reservation = put_entry(b, 200 + entry);
    if (!reservation.ok()) return state.SkipWithError(reservation.status().to_string().c_str());
    (void)b.client.commit(*reservation, Durability::accepted, soon());
  }
  if (b.stat("ssd_objects") != 0) return state.SkipWithError("written before");
  for (auto _ : state) {
    Status drained = cache->drain(soon());
    if (!drained.ok()) return state.SkipWithError(drained.to_string().c_str());
  }
  cache.reset();
  if (block_files(dir.store()).size() != kDirtyEntries * kBlocks) {
    return state.SkipWithError("blocks are missing");
  }
}
BENCHMARK(BM_Drain)->Iterations(1)->Unit(benchmark::kMillisecond)->UseRealTime();

// Yardstick: the same files by hand in as many folders: write, fdatasync, rename each, then one
// fsync of each folder.
void BM_WriteSyncRename(benchmark::State& state) {
  TempDir dir;
  std::vector<std::vector<uint8_t>> contents;
  for (const auto& file : stored().files) {
    std::ifstream in(file, std::ios::binary);
    contents.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  int round = 0;
  for (auto _ : state) {
    state.PauseTiming();
    std::string base = dir.store() + std::to_string(++round);
    for (int f = 0; f < 16; ++f) fs::create_directories(base + "/" + std::to_string(f));
    state.ResumeTiming();
    for (int64_t i = 0; i < state.range(0); ++i) {
      const auto& bytes = contents[static_cast<size_t>(i) % contents.size()];
      std::string name = base + "/" + std::to_string(i % 16) + "/" + std::to_string(i);
      Fd fd = ::open((name + ".tmp").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
      auto size = static_cast<ssize_t>(bytes.size());
      KV_CHECK(fd >= 0 && ::pwrite(fd, bytes.data(), bytes.size(), 0) == size);
      KV_CHECK(::fdatasync(fd) == 0 && ::close(fd) == 0);
      KV_CHECK(::rename((name + ".tmp").c_str(), name.c_str()) == 0);
    }
    for (int f = 0; f < 16; ++f) {
      KV_CHECK(posix_files().sync_dir(base + "/" + std::to_string(f)).ok());
    }
  }
}
BENCHMARK(BM_WriteSyncRename)
    ->ArgName("files")
    ->Arg(kBlocks)
    ->Iterations(4)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK(BM_WriteSyncRename)
    ->ArgName("files")
    ->Arg(kDirtyEntries* kBlocks)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// A tenant's durable stores of 40 tokens, alone and while another one erases 10,000 objects; the
// longest and the mean in milliseconds. erase_ms: from its call to its answer.
void BM_DurableBesideErase(benchmark::State& state) {
  TempDir dir;
  CacheOptions options = options_in(dir.store());
  options.coding.block_tokens = 16;
  auto cache = open_cache(options, "stores");
  auto other = cache->connect("erases");
  const ModelSpec model = model_of({LayerSpec{{full_part(1, 64)}}});
  auto stores = Bench::open(*cache, model), erases = Bench::open(**other, model);
  std::mt19937 rng(1);
  double longest = 0, all = 0, erase_ms = 0;
  uint64_t count = 0;
  auto since = [](auto start) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
        .count();
  };
  for (auto _ : state) {
    for (int i = 0; i < 10 && state.range(0) != 0; ++i) {
      if (!erases.store(random_tokens(rng, 16'000), Durability::spilled).ok()) {
        return state.SkipWithError("store");
      }
    }
    std::atomic<bool> erased{state.range(0) == 0};
    std::thread eraser([&] {
      if (erased) return;
      auto start = std::chrono::steady_clock::now();
      (void)(*other)->erase(erases.opened.model, {}, soon());
      erase_ms = since(start);
      erased = true;
    });
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 100 || !erased; ++i) {
      auto start = std::chrono::steady_clock::now();
      auto stored = stores.store(random_tokens(rng, 40), Durability::durable);
      bool durable = stored.ok() && stored->level == Durability::durable;
      if (!durable) state.SkipWithError("a store was not durable");
      longest = std::max(longest, since(start));
      all += since(start);
      ++count;
    }
    eraser.join();
    state.SetIterationTime(since(begin) / 1'000);
  }
  state.counters["store_ms"] = all / double(count);
  state.counters["longest_ms"] = longest;
  state.counters["stores"] = double(count);
  state.counters["erase_ms"] = erase_ms;
}
BENCHMARK(BM_DurableBesideErase)
    ->ArgName("beside")
    ->Arg(0)
    ->Arg(1)
    ->Iterations(1)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kv

BENCHMARK_MAIN();
