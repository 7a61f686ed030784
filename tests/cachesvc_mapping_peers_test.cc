// Segments of processes that close their connection: with a word, without one, and how many of them
// a namespace may have mapped.
#include "tests/support/mapped_testing.h"

namespace kv {
namespace {

class MappingPeersTest : public MappedTest {
 protected:
  static constexpr int kEntries = 8;          // of 4 MiB each, in segments of 2 MiB
  static constexpr uint64_t kLeft = 4;        // segments that may lie idle: an eighth of the RAM
  static constexpr uint64_t kAll = kEntries;  // at least so many segments are mapped

  // The peer fetches all entries and closes its connection; it `keeps` the hits, or lets them go
  // first. It stays.
  void start_peer(bool keeps) {
    ASSERT_TRUE(peer_.start([&](auto stay) {
      auto client = SocketClient::connect(socket(), "test", {});
      std::vector<FetchReply> held;
      {
        Bench bench = Bench::open(**client, wide_model());
        for (const auto& tokens : entries_) held.push_back(fetched(bench, tokens));
      }
      const size_t mapped = mapped_segments().size();
      if (!keeps) held.clear();
      client->reset();
      stay(mapped >= kAll && mapped_segments().size() == (keeps ? mapped : 0));
    }));
  }
  void store_entries() {
    for (int i = 0; i < kEntries; ++i) entries_.push_back(stored(1024));
  }
  void erase_all() { ASSERT_TRUE(client_->erase(bench_->opened.model, {}, soon()).ok()); }
  // Each look is a call of the test's own client, which has the segments mapped as well.
  void wait_until(const std::function<bool()>& so) {
    const Deadline deadline = soon();
    while (!so()) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }

  // The service looks at its connections and segments, twice: it closes those without a hello.
  void sweeps() {
    for (int i = 0; i < 2; ++i) {
      RawPeer silent(socket());
      EXPECT_FALSE(silent.receive().has_value());
    }
    bench_->stat("sessions");  // the test's own client lets go
  }

  std::vector<std::vector<Token>> entries_;
  ForkedClient peer_;
};

TEST_F(MappingPeersTest, WhatAProcessHasMappedCountsUntilItEnds) {
  begin({"handshake_timeout=100"});
  store_entries();
  for (const auto& tokens : entries_) fetched(*bench_, tokens);
  start_peer(true);
  erase_all();
  wait_until([&] { return bench_->stat("sessions") == 1 && mapped_segments().size() <= kLeft; });
  sweeps();
  EXPECT_GE(bench_->stat("segments"), kAll) << "the test let its mappings go, the peer did not";
  EXPECT_GE(bench_->stat("namespace_segment_bytes"), kAll * (2u << 20));
  peer_.kill();
  wait_until([&] { return bench_->stat("segments") <= kLeft; });
}

TEST_F(MappingPeersTest, AClientLetsItsSegmentsGoBeforeItCloses) {
  begin({"handshake_timeout=100"});
  store_entries();
  start_peer(false);
  erase_all();
  wait_until([&] { return bench_->stat("segments") <= kLeft; });
  EXPECT_TRUE(peer_.lives());
}

TEST_F(MappingPeersTest, ANamespaceHasHalfOfItsShareMapped) {
  const std::string config = dir_.store() + ".toml";
  std::ofstream(config) << "[[namespace]]\nname = \"small\"\nram = \"16MiB\"\n";
  start({"--config", config});
  client_ = connect("small");
  bench_ = std::make_unique<Bench>(Bench::open(*client_, wide_model()));
  std::vector<FetchReply> held;
  for (int i = 0; i < kEntries; ++i) {
    held.push_back(fetched(*bench_, stored(1024)));
    EXPECT_LE(bench_->stat("namespace_segment_bytes"), 8u << 20);
  }
  EXPECT_FALSE(segments_of(held.front().lease.prefix()).contains(""));
  EXPECT_TRUE(segments_of(held.back().lease.prefix()).contains("")) << "it was streamed";
  auto other = connect("other");
  Bench bench = Bench::open(*other, wide_model());
  const auto tokens = random_tokens(rng_, 256);
  ASSERT_TRUE(bench.store(tokens).ok());
  EXPECT_FALSE(segments_of(fetched(bench, tokens).lease.prefix()).contains(""));
}

}  // namespace
}  // namespace kv
