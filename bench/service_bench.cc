// The service at the sizes of its targets: 100 MiB read in place and over the socket beside bare
// reads and a bare Unix socket, a client beside 1,150 that do it no good, and a restart that finds
// 100,000 small blocks on the SSD (KV_READY_BLOCKS: as many).
//
// The entry: 3,072 tokens of 32 layers, 8 kv heads of 128, at 4 bit. Times are of wall clocks. The
// directory is made under TMPDIR.
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "bench/storage_select.h"
#include "proto/socket_client.h"
#include "storage/ssd_tier.h"
#include "tests/support/cachesvc_server.h"

namespace kv {
namespace {

constexpr uint32_t kTokens = 3072;
constexpr uint64_t kEntryBytes = 104'198'144;  // what its planes take: 99.4 MiB

ModelSpec large_model() {
  return model_of(std::vector<LayerSpec>(32, LayerSpec{{full_part(8, 128)}}));
}
std::vector<Token> prompt() {
  std::mt19937 rng(1);
  return random_tokens(rng, kTokens + 1);
}
// Stores the prompt but its last token, so that a fetch of all of it serves kTokens.
Status store_prompt(Bench& b) {
  auto tokens = prompt();
  tokens.pop_back();
  return b.store(tokens).status();
}
uint64_t stored_bytes(const Prefix& prefix) {
  uint64_t bytes = 0;
  for (const auto& o : prefix.objects) {
    for (const auto& p : o.object->planes) bytes += p.bytes.size();
  }
  return bytes;
}
// One body for both readers, and four words at a time: the memory is what they differ in. Inlined,
// a loop of one word a step took 10 or 17 ms of the same bytes, by where the linker put it.
[[gnu::noinline]] uint64_t sum(std::span<const uint8_t> bytes) {
  std::array<uint64_t, 4> total{}, words;
  size_t steps = bytes.size() / sizeof words;
  for (size_t i = 0; i < steps; ++i) {
    std::memcpy(words.data(), bytes.data() + sizeof words * i, sizeof words);
    for (size_t j = 0; j < words.size(); ++j) total[j] += words[j];
  }
  return total[0] + total[1] + total[2] + total[3];
}

// A RAM hit in process, every byte of its planes read where it lies.
void BM_ReadInPlace(benchmark::State& state) {
  CacheOptions options;
  options.ram_budget_bytes = 1ull << 30;
  options.coding = {4, 4};
  auto cache = open_cache(options);
  auto b = Bench::open(*cache, large_model());
  Status stored = store_prompt(b);
  if (!stored.ok()) return state.SkipWithError(stored.to_string().c_str());
  auto tokens = prompt();
  uint64_t bytes = 0;
  for (auto _ : state) {
    auto hit = b.fetch(tokens);
    if (!hit.ok() || hit->tokens != kTokens) return state.SkipWithError("miss");
    uint64_t total = 0;
    for (const auto& o : hit->lease.prefix().objects) {
      for (const auto& p : o.object->planes) total += sum(p.bytes.span());
    }
    benchmark::DoNotOptimize(total);
    bytes = stored_bytes(hit->lease.prefix());
  }
  if (bytes != kEntryBytes) return state.SkipWithError("the yardsticks have other sizes");
}
BENCHMARK(BM_ReadInPlace)->Unit(benchmark::kMillisecond)->UseRealTime();

// As many bytes in one run.
void BM_ReadPlain(benchmark::State& state) {
  std::vector<uint8_t> bytes(kEntryBytes, 3);
  for (auto _ : state) benchmark::DoNotOptimize(sum(bytes));
}
BENCHMARK(BM_ReadPlain)->Unit(benchmark::kMillisecond)->UseRealTime();

// The daemon and a client of it.
struct Daemon {
  Daemon(const char* ram, const char* codec, bool mapped) {
    const std::string socket = dir.store() + "-run/cachesvc.sock";
    process = DaemonProcess::start({"--dir", dir.store(), "--socket", socket, "--ram", ram, "--ssd",
                                    "4GiB", "--codec", codec, "--set", "tier.ssd.min_free=0",
                                    "--set", "tier.ssd.spill=evict"});
    if (!process) return;
    SocketClientOptions options;
    options.map_segments = mapped;
    auto connected = SocketClient::connect(socket, "bench", options);
    if (connected.ok()) client = std::move(*connected);
  }
  TempDir dir;
  std::unique_ptr<DaemonProcess> process;
  std::unique_ptr<SocketClient> client;  ///< null: the daemon did not start
};

// RAM hits of the daemon.
void fetch_from_daemon(benchmark::State& state, bool mapped) {
  Daemon daemon("1GiB", "tq4", mapped);
  if (!daemon.client) return state.SkipWithError("no daemon");
  auto b = Bench::open(*daemon.client, large_model());
  Status stored = store_prompt(b);
  if (!stored.ok()) return state.SkipWithError(stored.to_string().c_str());
  auto tokens = prompt();
  uint64_t bytes = 0;
  for (auto _ : state) {
    auto hit = b.fetch(tokens);
    if (!hit.ok() || hit->tokens != kTokens) return state.SkipWithError("miss");
    bytes = stored_bytes(hit->lease.prefix());
  }
  if (bytes != kEntryBytes) return state.SkipWithError("the yardsticks have other sizes");
}

// Received whole.
void BM_FetchSocket(benchmark::State& state) { fetch_from_daemon(state, false); }
BENCHMARK(BM_FetchSocket)->Unit(benchmark::kMillisecond)->UseRealTime();

// Until every plane can be read where it lies.
void BM_FetchMapped(benchmark::State& state) { fetch_from_daemon(state, true); }
BENCHMARK(BM_FetchMapped)->Unit(benchmark::kMicrosecond)->UseRealTime();

// By the number of a hold, without tokens: an entry of about so many MiB, rows as they are, in 12
// blocks.
void BM_FetchHeld(benchmark::State& state) {
  const auto heads = static_cast<uint16_t>(state.range(0) / 50);  // 32 KiB a token is 100 MiB
  const ModelSpec model = state.range(0) < 50
                              ? model_of({LayerSpec{{full_part(1, 80)}}})
                              : model_of(std::vector<LayerSpec>(32, {{full_part(heads, 128)}}));
  Daemon daemon("3GiB", "lossless", true);
  if (!daemon.client) return state.SkipWithError("no daemon");
  auto b = Bench::open(*daemon.client, model);
  Status stored = store_prompt(b);
  if (!stored.ok()) return state.SkipWithError(stored.to_string().c_str());
  auto hold = b.client.hold({b.opened.model, {prompt(), {}}, {}, Milliseconds(600'000)}, soon());
  if (!hold.ok()) return state.SkipWithError(hold.status().to_string().c_str());
  FetchRequest request;
  request.model = b.opened.model;
  request.hold = hold->number;
  if (!b.client.fetch(request, soon()).ok()) return state.SkipWithError("the first");  // maps it
  double bytes = 0;
  for (auto _ : state) {
    auto hit = b.client.fetch(request, soon());
    if (!hit.ok() || hit->tokens != kTokens) return state.SkipWithError("miss");
    bytes = static_cast<double>(stored_bytes(hit->lease.prefix()));
  }
  state.counters["mib"] = bytes / (1 << 20);
}
BENCHMARK(BM_FetchHeld)->Arg(1)->Arg(100)->Arg(1000)->Unit(benchmark::kMicrosecond)->UseRealTime();

// 64 bytes to another thread and back, the least that any call takes.
void BM_PingPong(benchmark::State& state) {
  int ends[2];
  KV_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  char message[64] = {};
  std::thread echo([&] {
    char back[64];
    while (::recv(ends[1], back, sizeof(back), MSG_WAITALL) == sizeof(back)) {
      if (::send(ends[1], back, sizeof(back), 0) != sizeof(back)) break;
    }
  });
  for (auto _ : state) {
    KV_CHECK(::send(ends[0], message, sizeof(message), 0) == sizeof(message));
    KV_CHECK(::recv(ends[0], message, sizeof(message), MSG_WAITALL) == sizeof(message));
  }
  ::close(ends[0]);
  echo.join();
  ::close(ends[1]);
}
BENCHMARK(BM_PingPong)->Unit(benchmark::kMicrosecond)->UseRealTime();

// 100 MiB from one thread to another through a Unix stream socket, into recycled memory.
void BM_UnixSocket(benchmark::State& state) {
  int ends[2];
  KV_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  std::vector<uint8_t> from(kEntryBytes, 1), to(kEntryBytes, 2);
  for (auto _ : state) {
    std::thread writer([&] {
      for (size_t at = 0; at < from.size();) {
        ssize_t n = ::write(ends[0], from.data() + at, from.size() - at);
        KV_CHECK(n > 0);
        at += static_cast<size_t>(n);
      }
    });
    for (size_t at = 0; at < to.size();) {
      ssize_t n = ::read(ends[1], to.data() + at, to.size() - at);
      KV_CHECK(n > 0);
      at += static_cast<size_t>(n);
    }
    writer.join();
  }
  ::close(ends[0]);
  ::close(ends[1]);
}
BENCHMARK(BM_UnixSocket)->Unit(benchmark::kMillisecond)->UseRealTime();

// The prompt that the healthy client fetches: 256 KiB. A client that asks and does not read gets
// more than a socket holds.
constexpr uint32_t kHealthyTokens = 512;

// 1,000 clients that ask nothing, 50 whose request stops half way, 50 that ask for a prompt four
// times and read nothing, and 50 that send a byte of a request in 5 ms each.
class Crowd {
 public:
  Crowd(const std::string& socket, const ModelSpec& model, const std::vector<Token>& tokens) {
    Query query{tokens, {}};
    QueryRequest lookup{1, {std::vector<Token>(50'000, 7), {}}};
    half_ = testing::flatten(request_frame(FrameType::lookup, 2, 0, lookup));
    for (int i = 0; i < 1000; ++i) join(socket);
    for (int i = 0; i < 50; ++i) join(socket).send(std::span(half_).first(1000));
    for (int i = 0; i < 50; ++i) {
      RawPeer& deaf = join(socket);
      OpenRequest open;
      open.model = model;
      deaf.send(testing::flatten(request_frame(FrameType::open, 2, 0, open)));
      (void)deaf.receive();
      FetchRequest fetch;
      fetch.model = 1;
      fetch.query = query;
      for (uint64_t id = 3; id < 7; ++id) {
        FetchCall call{fetch, 1 << 30};
        deaf.send(testing::flatten(request_frame(FrameType::fetch, id, 0, call)));
      }
    }
    size_t first = peers_.size();
    for (int i = 0; i < 50; ++i) join(socket);
    dribbler_ = std::thread([this, first] { dribble(first); });
  }
  ~Crowd() {
    stop_ = true;
    dribbler_.join();
  }
  Crowd(const Crowd&) = delete;  // the thread points here
  Crowd& operator=(const Crowd&) = delete;
  size_t size() const { return peers_.size(); }

 private:
  RawPeer& join(const std::string& socket) {
    peers_.push_back(std::make_unique<RawPeer>(socket));
    peers_.back()->hello();
    return *peers_.back();
  }
  void dribble(size_t first) {
    for (size_t at = 0; !stop_ && at < half_.size() - 1; ++at) {
      auto byte = std::span(half_).subspan(at, 1);
      for (size_t i = first; i < peers_.size(); ++i) peers_[i]->send(byte);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  std::vector<uint8_t> half_;
  std::vector<std::unique_ptr<RawPeer>> peers_;
  std::thread dribbler_;
  std::atomic<bool> stop_{false};
};

// A tenant that asks as much as it can: 64 connections with 32 requests of 8,000 tokens each always
// under way, from one thread.
class GreedyTenant {
 public:
  static constexpr int kConnections = 64, kInFlight = 32;
  // `idle`: its thread gets what no other wants of the processors, so that it costs others what
  // the service does for it and nothing else.
  GreedyTenant(const std::string& socket, const ModelSpec& model, bool idle) : idle_(idle) {
    for (int i = 0; i < kConnections; ++i) {
      peers_.push_back(std::make_unique<RawPeer>(socket));
      peers_.back()->hello("greedy");
      OpenRequest open;
      open.model = model;
      peers_.back()->send(testing::flatten(request_frame(FrameType::open, 2, 0, open)));
      (void)peers_.back()->receive();
    }
    QueryRequest lookup{1, {std::vector<Token>(8'000, 7), {}}};
    ask_ = testing::flatten(request_frame(FrameType::lookup, 3, 0, lookup));
    thread_ = std::thread([this] { run(); });
  }
  ~GreedyTenant() {
    stop_ = true;
    thread_.join();
  }
  GreedyTenant(const GreedyTenant&) = delete;  // the thread points here
  GreedyTenant& operator=(const GreedyTenant&) = delete;
  uint64_t answers() const { return answers_; }

 private:
  void run() {
    const sched_param none{};
    if (idle_) KV_CHECK(::sched_setscheduler(0, SCHED_IDLE, &none) == 0);
    for (auto& peer : peers_) {
      for (int i = 0; i < kInFlight; ++i) peer->send(ask_);
    }
    while (!stop_) {
      for (auto& peer : peers_) {
        (void)peer->receive();
        peer->send(ask_);
        ++answers_;
      }
    }
  }

  const bool idle_;
  std::vector<uint8_t> ask_;
  std::vector<std::unique_ptr<RawPeer>> peers_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> answers_{0};
};

// Connections that come and go as fast as one thread makes them.
class Revolving {
 public:
  explicit Revolving(const std::string& socket)
      : thread_([this, socket] {
          while (!stop_) RawPeer(socket).say_hello("greedy");
        }) {}
  ~Revolving() {
    stop_ = true;
    thread_.join();
  }
  Revolving(const Revolving&) = delete;  // the thread points here
  Revolving& operator=(const Revolving&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

double percentile_us(std::vector<double>& us, double share) {
  auto at = us.begin() + static_cast<ptrdiff_t>(share * static_cast<double>(us.size() - 1));
  std::nth_element(us.begin(), at, us.end());
  return *at;
}

// Yardstick: two threads that compute, as a greedy tenant and the service's loop do, and ask
// nothing.
class TwoBusyThreads {
 public:
  TwoBusyThreads() {
    for (auto& thread : threads_) {
      thread = std::thread([this] {
        for (uint64_t i = 0; !stop_; ++i) benchmark::DoNotOptimize(i);
      });
    }
  }
  ~TwoBusyThreads() {
    stop_ = true;
    for (auto& thread : threads_) thread.join();
  }
  TwoBusyThreads(const TwoBusyThreads&) = delete;  // the threads point here
  TwoBusyThreads& operator=(const TwoBusyThreads&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::thread threads_[2];
};

enum Beside : int64_t {
  nobody,
  a_crowd,
  a_greedy_tenant,
  a_revolving_door,
  two_busy_threads,
  an_idle_greedy_tenant,
};

// A client's RAM hits over the socket, alone or beside those who do it no good.
void BM_HealthyFetch(benchmark::State& state) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 4096);  // the daemon's too
  ::setrlimit(RLIMIT_NOFILE, &files);
  TempDir dir;
  std::string socket = dir.store() + "-run/cachesvc.sock";
  auto daemon = DaemonProcess::start({"--dir", dir.store(), "--socket", socket, "--ram", "1GiB",
                                      "--ssd", "1GiB", "--set", "tier.ssd.min_free=0", "--set",
                                      "server.max_connections=2000", "--codec", "raw"});
  if (!daemon) return state.SkipWithError("the daemon did not start");
  auto client = SocketClient::connect(socket, "raw", {});
  if (!client.ok()) return state.SkipWithError(client.status().to_string().c_str());
  ModelSpec model = model_of(std::vector<LayerSpec>(2, LayerSpec{{full_part(2, 64)}}));
  auto b = Bench::open(**client, model);
  std::mt19937 rng(1);
  auto tokens = random_tokens(rng, kHealthyTokens);
  if (!b.store(tokens).ok()) return state.SkipWithError("not stored");
  tokens.push_back(-1);
  std::unique_ptr<Crowd> crowd;
  std::unique_ptr<GreedyTenant> greedy;
  std::unique_ptr<Revolving> revolving;
  std::unique_ptr<TwoBusyThreads> busy;
  const int64_t beside = state.range(0);
  if (beside == a_crowd) crowd = std::make_unique<Crowd>(socket, model, tokens);
  if (beside == a_greedy_tenant || beside == an_idle_greedy_tenant) {
    greedy = std::make_unique<GreedyTenant>(socket, model, beside == an_idle_greedy_tenant);
  }
  if (beside == a_revolving_door) revolving = std::make_unique<Revolving>(socket);
  if (beside == two_busy_threads) busy = std::make_unique<TwoBusyThreads>();
  if (b.stat("sessions") < (crowd ? crowd->size() : 0)) {
    return state.SkipWithError("the crowd is not there");
  }
  std::vector<double> us;
  for (auto _ : state) {
    auto start = std::chrono::steady_clock::now();
    auto hit = b.fetch(tokens);
    us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
                     .count());
    if (!hit.ok() || hit->tokens != kHealthyTokens) return state.SkipWithError("miss");
  }
  state.counters["p50_us"] = percentile_us(us, 0.5);
  state.counters["p99_us"] = percentile_us(us, 0.99);
  if (greedy) state.counters["greedy_answers"] = static_cast<double>(greedy->answers());
}
BENCHMARK(BM_HealthyFetch)
    ->ArgName("beside")
    ->DenseRange(nobody, an_idle_greedy_tenant)
    ->Iterations(5000)
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

constexpr uint32_t kSmallTokens = 16;

uint32_t small_blocks() {
  const char* text = std::getenv("KV_READY_BLOCKS");
  return text != nullptr ? static_cast<uint32_t>(std::atoi(text)) : 100'000;
}

CacheOptions many_blocks(const std::string& dir) {
  CacheOptions o;
  o.ram_budget_bytes = 4ull << 30;  // a quarter of it for the index
  o.ssd_dir = dir;
  o.ssd_limit_bytes = 64ull << 30;
  o.ssd_min_free_bytes = 0;
  o.coding.block_tokens = kSmallTokens;
  return o;
}

// small_blocks() files of 100 blocks a sequence, written by hand: without syncs, which are not what
// is measured here.
void write_blocks(const std::string& dir, const Realm& realm) {
  std::mt19937_64 rng(5);
  Id parent;
  for (uint32_t i = 0; i < small_blocks(); ++i) {
    Object o;
    o.parent = i % 100 == 0 ? Id{} : parent;
    o.first_token = i % 100 * kSmallTokens;
    for (uint32_t t = 0; t < kSmallTokens; ++t) {
      o.tokens.push_back(static_cast<Token>(rng() % 49152));
    }
    for (Side side : {Side::k, Side::v}) {
      Plane p;
      p.side = side;
      p.bits = 4;
      p.heads = 1;
      p.dim = 32;
      p.first_row = o.first_token;
      p.runs = {{RunForm::codes, kSmallTokens}};
      p.bytes = Bytes::owning(std::vector<uint8_t>(plane_bytes(p), static_cast<uint8_t>(rng())));
      o.planes.push_back(std::move(p));
    }
    stamp(o, realm);
    parent = o.name.id;
    auto bytes = encode_file(raw_image(o))->flatten();
    std::ofstream(dir + "/" + relative_path(o.name), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
  }
}

// A store of one block more than small_blocks(), and its catalog.
Status fill(const std::string& dir, const ModelSpec& model) {
  {
    auto cache = open_cache(many_blocks(dir));
    auto b = Bench::open(*cache, model);
    std::mt19937 rng(1);
    Status stored = b.store(random_tokens(rng, kSmallTokens), Durability::spilled).status();
    if (!stored.ok()) return stored;
    write_blocks(dir, b.opened.realm);
  }
  CacheOptions options = many_blocks(dir);
  options.adopt_at_start = UINT64_MAX;
  open_cache(options);
  return {};
}

struct FilledStore {
  TempDir dir;
  ModelSpec model = model_of({LayerSpec{{full_part(1, 32)}}});
  Status filled = fill(dir.store(), model);
};
const FilledStore& filled_store() {
  static const FilledStore store;
  return store;
}

// From nothing to a service that answers: directory, catalog, index. The page cache is warm, as
// after a crash of the process.
void BM_Ready(benchmark::State& state) {
  const FilledStore& store = filled_store();
  if (!store.filled.ok()) return state.SkipWithError(store.filled.to_string().c_str());
  double bytes = 0;
  for (auto _ : state) {
    size_t before = ::mallinfo2().uordblks;
    auto cache = open_cache(many_blocks(store.dir.store()));
    state.PauseTiming();
    bytes = static_cast<double>(::mallinfo2().uordblks - before);
    auto b = Bench::open(*cache, store.model);
    if (b.stat("ssd_objects") != small_blocks() + 1) {
      return state.SkipWithError("blocks are missing");
    }
    cache.reset();
    state.ResumeTiming();
  }
  state.counters["blocks"] = small_blocks();
  state.counters["bytes_per_block"] = bytes / small_blocks();
}
BENCHMARK(BM_Ready)->Unit(benchmark::kMillisecond)->UseRealTime();

// Yardstick: the rows that such a start reads, by SQLite alone.
void BM_SelectRows(benchmark::State& state) {
  const FilledStore& store = filled_store();
  if (!store.filled.ok()) return state.SkipWithError(store.filled.to_string().c_str());
  RowSelect select(store.dir.store() + "/catalog.db");
  for (auto _ : state) {
    uint64_t bytes = 0;
    if (select.read_all(bytes) != small_blocks() + 1)
      return state.SkipWithError("rows are missing");
    benchmark::DoNotOptimize(bytes);
  }
}
BENCHMARK(BM_SelectRows)->Unit(benchmark::kMillisecond)->UseRealTime();

// The same without a catalog: the files are counted, most of them read in the background
// (`background_s`, at the rate of the settings).
void BM_ReadyWithoutCatalog(benchmark::State& state) {
  TempDir dir;
  ModelSpec model = model_of({LayerSpec{{full_part(1, 32)}}});
  Status filled = fill(dir.store(), model);
  if (!filled.ok()) return state.SkipWithError(filled.to_string().c_str());
  double seconds = 0;
  for (auto _ : state) {
    state.PauseTiming();
    std::filesystem::remove(dir.store() + "/catalog.db");
    state.ResumeTiming();
    auto cache = open_cache(many_blocks(dir.store()));
    state.PauseTiming();
    auto start = std::chrono::steady_clock::now();
    auto b = Bench::open(*cache, model);
    while (b.stat("recovery_unread") > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (b.stat("ssd_objects") != small_blocks() + 1) {
      return state.SkipWithError("blocks are missing");
    }
    cache.reset();
    state.ResumeTiming();
  }
  state.counters["blocks"] = small_blocks();
  state.counters["background_s"] = seconds;
}
BENCHMARK(BM_ReadyWithoutCatalog)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(1);

}  // namespace
}  // namespace kv

BENCHMARK_MAIN();
