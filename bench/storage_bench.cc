// storage/ against its yardsticks: the bare system calls and SQLite's bare SELECT on the same
// bytes.
//
// One entry is shaped as 3,000 tokens of a 30-layer model at 4 bit: 12 files of 60 planes, 1.6 MB
// each. Rows named yard_* are the yardsticks, *_sealed the same work with a key. KV_BENCH_DIR
// chooses the directory (default /tmp).
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "bench/storage_select.h"
#include "proto/identity.h"
#include "storage/catalog.h"
#include "storage/ssd_tier.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlocks = 12;
constexpr uint32_t kBlockTokens = 256;
constexpr uint16_t kLayers = 30;

std::string fresh_directory() {
  const char* base = std::getenv("KV_BENCH_DIR");
  std::string pattern = std::string(base != nullptr ? base : "/tmp") + "/kv_bench_XXXXXX";
  KV_CHECK(::mkdtemp(pattern.data()) != nullptr);
  return pattern;
}

Object block_of(std::mt19937_64& rng, const Id& parent, uint32_t index, bool planes) {
  Object o;
  o.parent = parent;
  o.first_token = index * kBlockTokens;
  for (uint32_t i = 0; i < kBlockTokens; ++i) o.tokens.push_back(static_cast<Token>(rng() % 49152));
  for (uint16_t layer = 0; planes && layer < kLayers; ++layer) {
    for (Side side : {Side::k, Side::v}) {
      Plane p;
      p.layer = layer;
      p.side = side;
      p.bits = 4;
      p.heads = 3;
      p.dim = 64;
      p.first_row = o.first_token;
      p.runs = {{RunForm::codes, kBlockTokens}};
      std::vector<uint8_t> bytes(plane_bytes(p));
      for (auto& b : bytes) b = static_cast<uint8_t>(rng());
      p.bytes = Bytes::owning(std::move(bytes));
      o.planes.push_back(std::move(p));
    }
  }
  Realm realm;
  realm.ns = "bench";
  realm.fingerprint = sha256(std::vector<uint8_t>{1});
  realm.profile = sha256(std::vector<uint8_t>{2});
  stamp(o, realm);
  return o;
}

// An open tier and one entry; the directory goes at the end.
struct Store {
  explicit Store(bool sealed = false) : directory(fresh_directory()) {
    SsdOptions options;
    if (sealed) options.key = *SealKey::make_ephemeral();
    options.limit_bytes = uint64_t{4} << 30;
    auto opened = SsdTier::open(directory + "/store", options);
    KV_CHECK(opened.ok() && (*opened)->recover().ok());
    tier = std::move(*opened);
    std::mt19937_64 rng(1);
    Id parent;
    for (uint32_t i = 0; i < kBlocks; ++i) {
      Object o = block_of(rng, parent, i, true);
      parent = o.name.id;
      names.push_back(o.name);
      images.push_back(raw_image(o));
      bytes += images.back().stored_bytes();
    }
  }
  ~Store() {
    tier.reset();
    fs::remove_all(directory);
  }
  std::string path(size_t i) const { return directory + "/store/" + relative_path(names[i]); }

  std::string directory;
  std::unique_ptr<SsdTier> tier;
  std::vector<FileImage> images;
  std::vector<ObjectName> names;
  uint64_t bytes = 0;
};

void run_put(benchmark::State& state, bool sealed) {
  Store store(sealed);
  auto level = state.range(0) == 0 ? Durability::spilled : Durability::durable;
  for (auto _ : state) {
    for (const auto& r : store.tier->put(store.images, level)) KV_CHECK(r.status.ok());
    state.PauseTiming();
    KV_CHECK(store.tier->erase(store.names).ok());
    state.ResumeTiming();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * store.bytes));
}
void put(benchmark::State& state) { run_put(state, false); }
void put_sealed(benchmark::State& state) { run_put(state, true); }
BENCHMARK(put)->Arg(0)->Arg(1)->ArgName("durable")->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(put_sealed)
    ->Arg(0)
    ->Arg(1)
    ->ArgName("durable")
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// The same files by hand: write, fdatasync, rename each, then one fsync of their directory.
void yard_write_sync_rename(benchmark::State& state) {
  Store store;
  std::string folder = store.directory + "/yard";
  fs::create_directory(folder);
  std::vector<std::vector<uint8_t>> files;
  for (const auto& image : store.images) files.push_back(encode_file(image)->flatten());
  for (auto _ : state) {
    for (size_t i = 0; i < files.size(); ++i) {
      std::string name = folder + "/" + std::to_string(i);
      int fd = ::open((name + ".tmp").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
      KV_CHECK(fd >= 0);
      auto size = static_cast<ssize_t>(files[i].size());
      KV_CHECK(::pwrite(fd, files[i].data(), files[i].size(), 0) == size);
      KV_CHECK(::fdatasync(fd) == 0 && ::close(fd) == 0);
      KV_CHECK(::rename((name + ".tmp").c_str(), name.c_str()) == 0);
    }
    if (state.range(0) == 1) KV_CHECK(posix_files().sync_dir(folder).ok());
    state.PauseTiming();
    for (size_t i = 0; i < files.size(); ++i) fs::remove(folder + "/" + std::to_string(i));
    state.ResumeTiming();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * store.bytes));
}
BENCHMARK(yard_write_sync_rename)
    ->Arg(0)
    ->Arg(1)
    ->ArgName("durable")
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

void drop_cached(const Store& store) {
  for (size_t i = 0; i < kBlocks; ++i) {
    int fd = ::open(store.path(i).c_str(), O_RDONLY | O_CLOEXEC);
    KV_CHECK(fd >= 0);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

void run_read(benchmark::State& state, bool sealed) {
  Store store(sealed);
  for (const auto& r : store.tier->put(store.images, Durability::durable)) KV_CHECK(r.status.ok());
  for (auto _ : state) {
    if (state.range(0) == 1) {
      state.PauseTiming();
      drop_cached(store);
      state.ResumeTiming();
    }
    for (const auto& name : store.names) {
      auto image = store.tier->read(name);
      KV_CHECK(image.ok());
      benchmark::DoNotOptimize(image);
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * store.bytes));
}
void read_verified(benchmark::State& state) { run_read(state, false); }
void read_sealed(benchmark::State& state) { run_read(state, true); }
BENCHMARK(read_verified)
    ->Arg(0)
    ->Arg(1)
    ->ArgName("cold")
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(read_sealed)
    ->Arg(0)
    ->Arg(1)
    ->ArgName("cold")
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// One pread per file into a fresh buffer, unverified; cold: past the page cache with O_DIRECT.
void yard_pread(benchmark::State& state) {
  Store store;
  for (const auto& r : store.tier->put(store.images, Durability::durable)) KV_CHECK(r.status.ok());
  bool direct = state.range(0) == 1;
  for (auto _ : state) {
    if (direct) {
      state.PauseTiming();
      drop_cached(store);
      state.ResumeTiming();
    }
    for (size_t i = 0; i < kBlocks; ++i) {
      int fd = ::open(store.path(i).c_str(), O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
      KV_CHECK(fd >= 0);
      auto size = static_cast<size_t>(::lseek(fd, 0, SEEK_END));
      size_t rounded = (size + 4095) / 4096 * 4096;
      void* buffer = std::aligned_alloc(4096, rounded);
      KV_CHECK(::pread(fd, buffer, rounded, 0) == static_cast<ssize_t>(size));
      benchmark::DoNotOptimize(buffer);
      std::free(buffer);
      ::close(fd);
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * store.bytes));
}
BENCHMARK(yard_pread)
    ->Arg(0)
    ->Arg(1)
    ->ArgName("cold")
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

constexpr int64_t kRows = 100'000;

// A catalog of kRows blocks with their 256 tokens each.
std::string filled_catalog(const std::string& directory) {
  std::string path = directory + "/catalog.db";
  auto catalog = Catalog::open(path, posix_files(), nullptr);
  KV_CHECK(catalog.ok());
  std::mt19937_64 rng(2);
  std::vector<KnownObject> rows(kRows);
  Id parent;
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].header = block_of(rng, parent, static_cast<uint32_t>(i % 1000), false);
    parent = rows[i].header.name.id;
    rows[i].recency = i;
  }
  KV_CHECK((*catalog)->upsert(rows).ok() && (*catalog)->checkpoint().ok());
  return path;
}

// What a restart costs per row: every column, every id hashed again.
void catalog_load(benchmark::State& state) {
  std::string directory = fresh_directory();
  std::string path = filled_catalog(directory);
  auto catalog = Catalog::open(path, posix_files(), nullptr);
  for (auto _ : state) {
    auto rows = (*catalog)->load();
    KV_CHECK(rows.ok() && rows->good.size() == kRows);
  }
  state.SetItemsProcessed(state.iterations() * kRows);
  fs::remove_all(directory);
}
BENCHMARK(catalog_load)->UseRealTime()->Unit(benchmark::kMillisecond);

void yard_select(benchmark::State& state) {
  std::string directory = fresh_directory();
  std::string path = filled_catalog(directory);
  {
    RowSelect select(path);
    for (auto _ : state) {
      uint64_t bytes = 0;
      KV_CHECK(select.read_all(bytes) == kRows);
      benchmark::DoNotOptimize(bytes);
    }
  }
  state.SetItemsProcessed(state.iterations() * kRows);
  fs::remove_all(directory);
}
BENCHMARK(yard_select)->UseRealTime()->Unit(benchmark::kMillisecond);

// The least that a load can do which believes no row: the same rows, copied, and one SHA-256 over
// each.
void yard_select_hashed(benchmark::State& state) {
  std::string directory = fresh_directory();
  std::string path = filled_catalog(directory);
  {
    RowSelect select(path);
    for (auto _ : state) {
      std::vector<std::vector<uint8_t>> copies;
      copies.reserve(kRows);
      const uint64_t rows = select.each_row([&](sqlite3_stmt* row) {
        std::vector<uint8_t>& copy = copies.emplace_back();
        for (int c = 0; c < sqlite3_column_count(row); ++c) {
          auto* data = static_cast<const uint8_t*>(sqlite3_column_blob(row, c));
          copy.insert(copy.end(), data, data + sqlite3_column_bytes(row, c));
        }
        benchmark::DoNotOptimize(sha256(copy));
      });
      KV_CHECK(rows == kRows);
    }
  }
  state.SetItemsProcessed(state.iterations() * kRows);
  fs::remove_all(directory);
}
BENCHMARK(yard_select_hashed)->UseRealTime()->Unit(benchmark::kMillisecond);

constexpr uint32_t kFiles = 5000;

// A store of kFiles small objects, closed.
std::string filled_store(const std::string& directory) {
  std::string path = directory + "/store";
  SsdOptions options;
  options.limit_bytes = uint64_t{1} << 30;
  auto tier = SsdTier::open(path, options);
  KV_CHECK(tier.ok() && (*tier)->recover().ok());
  std::mt19937_64 rng(3);
  std::vector<FileImage> images;
  for (uint32_t i = 0; i < kFiles; ++i) images.push_back(raw_image(block_of(rng, {}, 0, false)));
  for (const auto& r : (*tier)->put(images, Durability::spilled)) KV_CHECK(r.status.ok());
  return path;
}

// A restart, until every object is known. 1: without the catalog, from the files alone.
void recover(benchmark::State& state) {
  std::string directory = fresh_directory();
  std::string path = filled_store(directory);
  for (auto _ : state) {
    if (state.range(0) == 1) {
      state.PauseTiming();
      fs::remove(path + "/catalog.db");
      state.ResumeTiming();
    }
    SsdOptions options;
    options.limit_bytes = uint64_t{1} << 30;
    auto tier = SsdTier::open(path, options);
    KV_CHECK(tier.ok());
    auto found = (*tier)->recover();
    KV_CHECK(found.ok() && found->objects.size() == kFiles);
  }
  state.SetItemsProcessed(state.iterations() * kFiles);
  fs::remove_all(directory);
}
BENCHMARK(recover)->Arg(0)->Arg(1)->ArgName("rebuild")->UseRealTime()->Unit(
    benchmark::kMillisecond);

}  // namespace
}  // namespace kv

BENCHMARK_MAIN();
