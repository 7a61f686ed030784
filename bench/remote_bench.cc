// The shared tier over a real redis-server on loopback, beside redis-benchmark with equal sizes.
//
// BM_RemoteGet, BM_RemotePut: kAtOnce values of three parts each at a time, verified as they come,
// summed as they go. BM_RedisGet, BM_RedisSet: as many requests for values of a part's size, by
// redis-benchmark with as many connections; what is set goes to new keys, as ours does.
// BM_RemoteQuestion: the names of a prompt of 32K tokens; BM_RoundTrip: one name. BM_LocalHit: a
// hit in RAM without the tier, with it, and where it hangs. One thread drives the tier, but in
// BM_LocalHit, where it has its own.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>

#include "cachesvc/remote/redis_tier.h"
#include "proto/identity.h"
#include "tests/support/cachesvc_redis.h"
#include "tests/support/cachesvc_testing.h"

namespace kv {
namespace {

using testing::output_of;
using testing::RedisServer;
using testing::RemoteTierRig;

constexpr size_t kAtOnce = 8;        // values
constexpr uint64_t kRequests = 480;  // of redis-benchmark
constexpr size_t kNames = 130;       // blocks of 32K tokens, and two tails
const char* const kNotThere = "redis-server or redis-benchmark is not installed";

bool installed() {
  return testing::redis_installed() && ::access("/usr/bin/redis-benchmark", X_OK) == 0;
}

/// A server and a tier on it, for a benchmark's life.
struct Node {
  RedisServer server{{"--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"}};
  RemoteTierRig rig{{server.address()}, options()};
  std::mt19937_64 rng{1};
  std::vector<FileImage> images;
  std::vector<RemoteName> names;

  Node() {
    for (size_t i = 0; i < kAtOnce; ++i) {
      images.push_back(raw_image(testing::sample_block(rng, {}, 0, 256, 1480)));
      names.push_back({remote_space("bench"), images[i].header.name, images[i].header.name.id});
    }
  }
  static RemoteTierOptions options() {
    RemoteTierOptions o;
    o.max_bytes_in_flight = 256 << 20;
    return o;
  }
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const FileImage& image : images)
      sum += make_remote_value(image, nullptr)->front.file_bytes;
    return sum;
  }
  uint64_t parts() const { return kAtOnce * make_remote_value(images[0], nullptr)->front.parts(); }
};

void count_bytes(benchmark::State& state, uint64_t bytes) {
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(bytes) * 1e-9,
                                              benchmark::Counter::kIsIterationInvariantRate);
}

void BM_RemoteGet(benchmark::State& state) {
  if (!installed()) return state.SkipWithError(kNotThere);
  Node node;
  for (size_t i = 0; i < kAtOnce; ++i) {
    if (!node.rig.put(node.images[i], node.names[i]).ok()) return state.SkipWithError("put");
  }
  const auto found = node.rig.find(node.names);
  for (auto _ : state) {
    size_t good = 0, ended = 0;
    for (const RemoteFound& f : found) {
      node.rig.tier.get(f, node.rig.soon(), [&](const Result<FileImage>& image) {
        good += image.ok();
        ++ended;
      });
    }
    while (ended < kAtOnce) node.rig.io.run_one();
    if (good != kAtOnce) state.SkipWithError("a miss");
  }
  count_bytes(state, node.bytes());
}
BENCHMARK(BM_RemoteGet)->UseRealTime()->MinTime(2);

void BM_RemotePut(benchmark::State& state) {
  if (!installed()) return state.SkipWithError(kNotThere);
  Node node;
  uint32_t serial = 0;
  std::string last = "it was there";
  for (auto _ : state) {
    size_t good = 0, ended = 0;
    for (size_t i = 0; i < kAtOnce; ++i) {
      FileImage image = node.images[i];  // another object each time; its bytes are shared
      Object& header = image.header;
      header.tokens[0] = static_cast<Token>(++serial);
      stamp(header, {header.ns, header.fingerprint, header.profile});
      const RemoteName name{remote_space("bench"), image.header.name, image.header.name.id};
      node.rig.tier.put(image, name, node.rig.soon(), [&](const Result<RemotePut>& put) {
        good += put.ok() && *put == RemotePut::stored;
        if (!put.ok()) last = put.status().to_string();
        ++ended;
      });
    }
    while (ended < kAtOnce) node.rig.io.run_one();
    if (good != kAtOnce) state.SkipWithError(last.c_str());
  }
  count_bytes(state, node.bytes());
}
BENCHMARK(BM_RemotePut)->UseRealTime()->MinTime(2);

// Requests a second, of redis-benchmark's line "TEST","RPS",…; 0: it said something else.
double requests_per_second(const std::string& said, const std::string& test) {
  const size_t at = said.find("\"" + test + "\",\"");
  return at == std::string::npos ? 0 : std::atof(said.c_str() + at + test.size() + 4);
}

void redis_benchmark(benchmark::State& state, const std::string& test) {
  if (!installed()) return state.SkipWithError(kNotThere);
  Node node;
  const uint64_t part = node.bytes() / node.parts();
  const auto run = [&](const std::string& which, const char* keys) {
    return output_of({"redis-benchmark", "-p", std::to_string(node.server.port()), "-t", which,
                      "-d", std::to_string(part), "-n", std::to_string(kRequests), "-c",
                      std::to_string(node.parts()), "-r", keys, "--csv"});
  };
  const bool get = test == "GET";
  run("set", "1");  // what is read
  for (auto _ : state) {
    const double rate = requests_per_second(get ? run("get", "1") : run("set", "1000000"), test);
    if (rate == 0) state.SkipWithError("redis-benchmark failed");
    state.SetIterationTime(static_cast<double>(node.parts()) / rate);
  }
  count_bytes(state, node.bytes());
}
void BM_RedisGet(benchmark::State& state) { redis_benchmark(state, "GET"); }
void BM_RedisSet(benchmark::State& state) { redis_benchmark(state, "SET"); }
BENCHMARK(BM_RedisGet)->UseManualTime()->Iterations(5);
BENCHMARK(BM_RedisSet)->UseManualTime()->Iterations(5);

void question(benchmark::State& state, size_t count) {
  if (!installed()) return state.SkipWithError(kNotThere);
  Node node;
  std::vector<RemoteName> names(count);
  for (size_t i = 0; i < count; ++i) {
    names[i].object.id.bytes[0] = static_cast<uint8_t>(i);
    names[i].tag.bytes[0] = static_cast<uint8_t>(remote_tag_depth(i));
  }
  (void)node.rig.find(names);
  for (auto _ : state) benchmark::DoNotOptimize(node.rig.find(names));
}
void BM_RemoteQuestion(benchmark::State& state) { question(state, kNames); }
void BM_RoundTrip(benchmark::State& state) { question(state, 1); }
BENCHMARK(BM_RemoteQuestion)->UseRealTime();
BENCHMARK(BM_RoundTrip)->UseRealTime();

// tier: 0 none, 1 it answers, 2 it hangs and was found out.
void BM_LocalHit(benchmark::State& state) {
  if (!installed()) return state.SkipWithError(kNotThere);
  RedisServer server;
  testing::TempDir dir;
  CacheOptions options;
  options.ram_budget_bytes = 256 << 20;
  options.ssd_dir = dir.path() + "/store";
  if (state.range(0) > 0) {
    RedisOptions nodes;
    nodes.seeds = {server.address()};
    options.remote.tier = std::make_shared<RedisTier>(std::move(nodes), RemoteTierOptions());
  }
  auto cache = TieredCache::create(options, "bench");
  if (!cache.ok()) return state.SkipWithError("no cache");
  {
    Bench bench = Bench::open(**cache, plain_model());
    std::mt19937 rng(3);
    const auto tokens = random_tokens(rng, 3000), other = random_tokens(rng, 3000);
    if (!bench.store(tokens, Durability::spilled).ok()) return state.SkipWithError("store");
    if (state.range(0) == 2) server.signal(SIGSTOP);
    (void)bench.fetch(other);  // a question, which finds out a tier that hangs
    std::vector<double> us;
    for (auto _ : state) {
      const auto begin = std::chrono::steady_clock::now();
      auto reply = bench.fetch(tokens);
      const auto end = std::chrono::steady_clock::now();
      if (!reply.ok() || reply->tokens != 2999) state.SkipWithError("a miss");
      us.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
    }
    std::sort(us.begin(), us.end());
    state.counters["p50_us"] = us[us.size() / 2];
    state.counters["p99_us"] = us[us.size() * 99 / 100];
    server.signal(SIGCONT);
  }
  cache->reset();
  if (options.remote.tier) options.remote.tier->close();
}
BENCHMARK(BM_LocalHit)->ArgName("tier")->DenseRange(0, 2)->Iterations(5000)->UseRealTime();

}  // namespace
}  // namespace kv

BENCHMARK_MAIN();
