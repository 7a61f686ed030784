// Clients and services that are killed at random moments, in the midst of storing, fetching and
// writing into a client's own memory: nothing stays behind, and nothing changes under a valid
// lease.
#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/support/mapped_testing.h"
#include "tests/support/own_memory_testing.h"

namespace kv {
namespace {

constexpr uint64_t kBusyBytes = 4u << 20;
constexpr size_t kRounds = 40;

// Stores rows that travel and rows that lie in its own memory, fetches, holds and lets go, until
// it is killed.
class BusyClient {
 public:
  static std::unique_ptr<BusyClient> begin(const std::string& socket, uint32_t seed) {
    auto memory = OwnMemory::create(kBusyBytes);
    if (!memory.ok()) return nullptr;
    SocketClientOptions options;
    options.memory = *memory;
    auto client = SocketClient::connect(socket, "test", options);
    if (!client.ok()) return nullptr;
    return std::unique_ptr<BusyClient>(new BusyClient(std::move(*client), *memory, seed));
  }
  void work() {
    while (true) step();
  }

 private:
  BusyClient(std::unique_ptr<SocketClient> client, std::shared_ptr<OwnMemory> memory, uint32_t seed)
      : client_(std::move(client)),
        memory_(std::move(memory)),
        bench_(Bench::open(*client_, wide_model())),
        rng_(seed) {}
  void step() {
    auto tokens = random_tokens(rng_, 16 + rng_() % 200);
    if (auto reserved = bench_.reserve(tokens); reserved.ok()) store(tokens, *reserved);
    for (size_t i = rng_() % 3; i > 0; --i) {
      auto reply =
          bench_.fetch(plus_one(tokens), rng_() % 3 == 0 ? FetchForm::f16 : FetchForm::stored);
      if (reply.ok()) held_.push_back(std::move(*reply));
    }
    if (held_.size() > 8) held_.erase(held_.begin(), held_.begin() + 4);
  }
  void store(const std::vector<Token>& tokens, const ReserveReply& reserved) {
    std::vector<PutRequest> puts;
    uint64_t at = 0;
    for (const Need& need : reserved.needs) {
      puts.push_back(make_put(bench_.model, bench_.opened.profile->block_tokens, tokens, need,
                              reserved.reservation));
      if (rng_() % 2 == 0) move_rows(memory_, puts.back(), at);
    }
    (void)client_->put_all(std::move(puts), soon());
    if (rng_() % 8 != 0) {
      (void)client_->commit(reserved.reservation, Durability::accepted, soon());
    }
  }

  std::unique_ptr<SocketClient> client_;
  std::shared_ptr<OwnMemory> memory_;
  Bench bench_;
  std::mt19937 rng_;
  std::vector<FetchReply> held_;
};

class MappedKillsTest : public MappedTest {
 protected:
  struct Held {
    FetchReply reply;
    std::vector<std::vector<uint8_t>> bytes;  ///< of each plane, as they came
  };

  bool start_busy(ForkedClient& busy) {
    const auto seed = static_cast<uint32_t>(rng_());
    return busy.start([&](auto stay) {
      auto client = BusyClient::begin(socket(), seed);
      if (!client) return stay(false);
      std::thread([&client] { client->work(); }).detach();
      stay(true);
    });
  }
  // A client that reads, and what it holds.
  void begin_reading() {
    client_ = connect();
    bench_ = std::make_unique<Bench>(Bench::open(*client_, wide_model()));
    for (int i = 0; i < 3; ++i) {
      Held held{fetched(*bench_, stored(100)), {}};
      ASSERT_EQ(held.reply.tokens, 100u);
      for (const auto& o : held.reply.lease.prefix().objects) {
        for (const Plane& p : o.object->planes) {
          held.bytes.emplace_back(p.bytes.span().begin(), p.bytes.span().end());
        }
      }
      held_.push_back(std::move(held));
    }
  }
  // Returns: leases that are valid after their bytes were read.
  size_t expect_unchanged() {
    size_t valid = 0;
    for (const Held& held : held_) {
      std::vector<bool> same;
      size_t i = 0;
      for (const auto& o : held.reply.lease.prefix().objects) {
        for (const Plane& p : o.object->planes) {
          const auto& expected = held.bytes[i++];
          same.push_back(std::equal(expected.begin(), expected.end(), p.bytes.span().begin()));
        }
      }
      if (!held.reply.lease.valid()) continue;
      ++valid;
      EXPECT_EQ(std::count(same.begin(), same.end(), false), 0) << "changed under a valid lease";
    }
    return valid;
  }
  // The ledger's accounts of what clients had, once all of it is erased.
  void expect_nothing_left() {
    held_.clear();
    bench_.reset();
    client_ = connect();
    wait_for("namespace_sessions", 2);  // this one and the one that asks
    ASSERT_TRUE(client_->erase(0, {}, soon()).ok());
    wait_for("reservations", 0);
    for (const char* account : {"pins", "ram_stored_bytes", "ram_staging_bytes",
                                "ram_promotion_bytes", "ram_spill_bytes", "ram_reply_bytes"}) {
      wait_for(account, 0);
      if (HasFatalFailure()) return;
    }
    client_.reset();
  }
  void begin_service() {
    start({}, {"handshake_timeout=200"});
    ASSERT_FALSE(HasFatalFailure());
    begin_reading();
  }
  void pause_at_random() {
    std::this_thread::sleep_for(std::chrono::microseconds(rng_() % 40'000));
  }

  std::vector<Held> held_;
};

TEST_F(MappedKillsTest, NothingStaysBehindAndNothingChangesUnderAValidLease) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  rng_.seed(seed);
  const auto before = shared_memory();
  size_t services = 0, clients = 0, valid = 0;
  begin_service();
  for (size_t round = 0; round < kRounds && !HasFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    ForkedClient busy[2];
    for (ForkedClient& each : busy) ASSERT_TRUE(start_busy(each));
    pause_at_random();
    expect_unchanged();
    if (rng_() % 4 != 0) {
      ++clients;
      busy[0].kill();
      pause_at_random();
      valid += expect_unchanged();
      busy[1].kill();
      if (rng_() % 3 != 0) continue;
      ASSERT_NO_FATAL_FAILURE(expect_nothing_left());
      begin_reading();
      continue;
    }
    ++services;
    daemon_->kill();
    expect_unchanged();
    for (ForkedClient& each : busy) each.kill();
    held_.clear();
    bench_.reset();
    client_.reset();
    EXPECT_TRUE(mapped_segments().empty());
    EXPECT_EQ(shared_memory(), before);
    begin_service();
  }
  EXPECT_GT(services, 0u);
  EXPECT_GT(clients, 0u);
  EXPECT_GT(valid, 0u);
  ASSERT_NO_FATAL_FAILURE(expect_nothing_left());
  daemon_->kill();
  EXPECT_EQ(shared_memory(), before);
}

}  // namespace
}  // namespace kv
