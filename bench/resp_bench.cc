// Cost of commands on the RESP port of the real daemon, by the number and the size of its values.
//
// Keys: with 1,000 and more stored, one DEL, and one SET that evicts; of a value of 100 bytes. Both
// go round by TCP. Bytes: SET and GET of values of a size, one after the other, as LMCache's client
// does on each of its connections. The directory is made under TMPDIR.
#include <benchmark/benchmark.h>

#include "tests/support/cachesvc_resp.h"

namespace kv {
namespace {

constexpr size_t kSmallBytes = 100;
constexpr const char* kOk = "+OK\r\n";

// A daemon with a client of its port.
class Port {
 public:
  Port(const char* ram, const char* ssd) : port_(free_port()) {
    daemon_ = DaemonProcess::start({"--dir", dir_.store(), "--socket",
                                    dir_.store() + "-run/cachesvc.sock", "--ram", ram, "--ssd", ssd,
                                    "--set", "tier.ssd.min_free=0", "--set", "tier.ram.index=70%",
                                    "--resp", "127.0.0.1:" + std::to_string(port_)});
    KV_CHECK(daemon_ != nullptr);
    peer_ = std::make_unique<RespPeer>(port_);
  }
  std::string call(const std::vector<std::string>& words) { return peer_->call(words); }
  // Stores values from `first` on, many commands at a time.
  bool fill(int64_t first, int64_t end) {
    constexpr int64_t kTogether = 256;
    const std::string value(kSmallBytes, 'v');
    for (int64_t at = first; at < end; at += kTogether) {
      const int64_t last = std::min(end, at + kTogether);
      std::string sent, expected;
      for (int64_t i = at; i < last; ++i) {
        sent += testing::resp_command({"SET", key(i), value});
        expected += kOk;
      }
      if (!peer_->send(sent) || peer_->receive(expected.size()) != expected) return false;
    }
    return true;
  }
  int64_t keys() { return std::stoll(call({"DBSIZE"}).substr(1)); }
  static std::string key(int64_t number) { return "key-" + std::to_string(number); }

 private:
  TempDir dir_;
  uint16_t port_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<RespPeer> peer_;
};

// One value goes that was stored just before, beside all others.
void BM_RespDel(benchmark::State& state) {
  Port port("8GiB", "0");
  int64_t next = state.range(0);
  if (!port.fill(0, next)) return state.SkipWithError("not stored");
  for (auto _ : state) {
    state.PauseTiming();
    if (!port.fill(next, next + 1)) return state.SkipWithError("not stored");
    state.ResumeTiming();
    if (port.call({"DEL", Port::key(next++)}) != ":1\r\n") return state.SkipWithError("no value");
  }
  state.counters["stored"] = static_cast<double>(port.keys());
}
BENCHMARK(BM_RespDel)->ArgName("keys")->Arg(1000)->Arg(1'000'000)->UseRealTime();

// The tier is full: each value takes the place of the one that was used least.
void BM_RespEvict(benchmark::State& state) {
  const std::string ram = std::to_string(state.range(0)) + "MiB";
  Port port(ram.c_str(), "0");
  int64_t next = 0, before = -1;
  while (port.keys() > before) {
    before = port.keys();
    if (!port.fill(next, next + 10'000)) return state.SkipWithError("not stored");
    next += 10'000;
  }
  for (auto _ : state) {
    if (!port.fill(next, next + 1)) return state.SkipWithError("not stored");
    ++next;
  }
  state.counters["stored"] = static_cast<double>(port.keys());
}
BENCHMARK(BM_RespEvict)->ArgName("MiB")->Arg(8)->Arg(2300)->UseRealTime();

void BM_RespSet(benchmark::State& state) {
  Port port("1GiB", "0");
  const std::string value(static_cast<size_t>(state.range(0)), 'v');
  int64_t next = 0;
  for (auto _ : state) {
    if (port.call({"SET", Port::key(next++), value}) != kOk)
      return state.SkipWithError("not stored");
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_RespSet)->ArgName("bytes")->Arg(100)->Arg(4 << 20)->UseRealTime();

void BM_RespGet(benchmark::State& state) {
  Port port("1GiB", "0");
  const std::string value(static_cast<size_t>(state.range(0)), 'v');
  if (port.call({"SET", "key", value}) != kOk) return state.SkipWithError("not stored");
  for (auto _ : state) {
    if (port.call({"GET", "key"}).size() < value.size()) return state.SkipWithError("no value");
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_RespGet)->ArgName("bytes")->Arg(100)->Arg(4 << 20)->UseRealTime();

}  // namespace
}  // namespace kv

BENCHMARK_MAIN();
