// A cache that hangs, is slow or is down costs a generation a bounded time and nothing else; and
// nothing is stored before the first token.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "engine/generator.h"
#include "engine/model_network.h"
#include "proto/socket_client.h"
#include "tests/support/cachesvc_testing.h"
#include "tests/support/daemon_process.h"
#include "tests/support/engine_memory_client.h"
#include "tests/support/tiny_model.h"

namespace kv {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

// ------------------------------------------------------------------ CacheCalls

class Calls : public ::testing::Test {
 protected:
  // Length of the stage that begins now; -1: paused.
  double begin_ms(uint64_t bytes, uint64_t tokens, Deadline given = Deadline::max()) {
    auto until = calls_.begin(CacheWaits(), bytes, tokens, given, now_);
    if (!until.ok()) {
      EXPECT_EQ(until.status().code(), StatusCode::unavailable);
      return -1;
    }
    return std::chrono::duration<double, std::milli>(*until - now_).count();
  }
  void end(StatusCode code) { calls_.ended(Status(code, "the test's"), now_); }

  CacheCalls calls_;
  CacheCalls::Clock::time_point now_ = CacheCalls::Clock::now();
};

TEST_F(Calls, WaitForAShareOfThePrefill) {
  EXPECT_DOUBLE_EQ(begin_ms(0, 1000), 1000);  // nothing is known of the prefill
  calls_.computed(10, seconds(10));           // too few to tell
  EXPECT_DOUBLE_EQ(begin_ms(0, 1000), 1000);
  calls_.computed(1000, milliseconds(1000));
  EXPECT_NEAR(begin_ms(0, 1000), 500, 1e-3);
  EXPECT_NEAR(begin_ms(0, 100), 200, 1e-3);               // the least
  EXPECT_NEAR(begin_ms(0, 100'000), 1000, 1e-3);          // the most
  EXPECT_NEAR(begin_ms(512 << 20, 100'000), 3000, 1e-3);  // and two seconds' bytes
  EXPECT_NEAR(begin_ms(512 << 20, 1000), 500, 1e-3);
  EXPECT_NEAR(begin_ms(0, 1000, now_ + milliseconds(20)), 20, 1e-3);
  for (int i = 0; i < 50; ++i) calls_.computed(1000, milliseconds(1600));  // it has slowed down
  EXPECT_NEAR(begin_ms(0, 1000), 800, 1e-2);
}

TEST_F(Calls, PauseLongerAfterEveryStageThatRanOut) {
  for (int expected : {1, 2, 4, 8, 16, 32, 60, 60}) {
    ASSERT_GT(begin_ms(0, 1000), 0);
    end(StatusCode::deadline_exceeded);
    now_ += seconds(expected) - milliseconds(1);
    EXPECT_EQ(begin_ms(0, 1000), -1) << expected;
    now_ += milliseconds(1);
  }
  ASSERT_GT(begin_ms(0, 1000), 0);
  end(StatusCode::ok);
  ASSERT_GT(begin_ms(0, 1000), 0);
  end(StatusCode::deadline_exceeded);
  now_ += seconds(1);
  EXPECT_GT(begin_ms(0, 1000), 0);  // an answer in between: a short pause again
}

TEST_F(Calls, DoNotPauseForTheCallersDeadlineOrAQuickFailure) {
  ASSERT_GT(begin_ms(0, 1000, now_ + milliseconds(5)), 0);
  end(StatusCode::deadline_exceeded);
  EXPECT_GT(begin_ms(0, 1000), 0);
  for (StatusCode code : {StatusCode::unavailable, StatusCode::busy, StatusCode::not_found}) {
    end(code);
    EXPECT_GT(begin_ms(0, 1000), 0) << to_string(code);
  }
}

// ------------------------------------------------------------------ Generator

std::vector<Token> prompt_of(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Token> out(n);
  for (Token& t : out) t = static_cast<Token>(random() % 256);
  return out;
}

CodingOptions coding() {
  CodingOptions options;
  options.calibrate = false;
  return options;
}

GenerateOptions six_tokens() {
  GenerateOptions options;
  options.max_new_tokens = 6;
  options.keep_logits = true;
  options.stop_at_eos = false;
  options.deadline = deadline_in(seconds(120));
  return options;
}

// A MemoryClient that says when it is called.
class WatchedClient : public MemoryClient {
 public:
  std::function<void()> fetched = [] {}, stored = [] {};

  Result<FetchReply> fetch(const FetchRequest& request, const Until& until) override {
    fetched();
    return MemoryClient::fetch(request, until);
  }
  Result<ReserveReply> reserve(const ReserveRequest& request, const Until& until) override {
    stored();
    return MemoryClient::reserve(request, until);
  }
};

// The tiny model, and how many tokens its last sequences have given.
class CountingNetwork : public Network {
 public:
  explicit CountingNetwork(std::shared_ptr<const Model> model)
      : inner_(*make_network(std::move(model), 1)) {}
  uint64_t steps = 0;

  const ModelSpec& spec() const override { return inner_->spec(); }
  uint32_t vocab() const override { return inner_->vocab(); }
  uint32_t context() const override { return inner_->context(); }
  Status step(Token token, KvCache& cache, std::span<float> logits) override {
    ++steps;
    return inner_->step(token, cache, logits);
  }
  Status prefill(std::span<const Token> tokens, KvCache& cache, Deadline deadline) override {
    return inner_->prefill(tokens, cache, deadline);
  }

 private:
  std::unique_ptr<Network> inner_;
};

// Lengths at which the first token completes a block, and at which it doesn't.
TEST(EngineHangs, NothingIsStoredBeforeTheFirstToken) {
  for (size_t n : {100u, 256u, 257u, 512u}) {
    WatchedClient client;
    auto network = std::make_unique<CountingNetwork>(tiny_model());
    CountingNetwork& counting = *network;
    auto generator = Generator::open(std::move(network), client, coding(), soon());
    ASSERT_TRUE(generator.ok());
    std::vector<uint64_t> at;
    client.stored = [&] { at.push_back(counting.steps); };
    auto cold = (*generator)->generate(prompt_of(n, 1), six_tokens());
    ASSERT_TRUE(cold.ok());
    EXPECT_THAT(at, ::testing::ElementsAre(1, 6)) << n;  // the prompt, the answer
    EXPECT_EQ(cold->level, Durability::accepted);
    auto hit = (*generator)->generate(prompt_of(n, 1), six_tokens());
    ASSERT_TRUE(hit.ok());
    EXPECT_EQ(hit->reused_tokens, n - 1);
    EXPECT_EQ(hit->logits, cold->logits);
    EXPECT_EQ(at.size(), 3u) << n;  // what is there whole is not stored again
  }
}

// Rows that decode together: each prompt is stored after its own first token, before the next one
// is looked up.
TEST(EngineHangs, PromptsOfABatchFindWhatTheOnesBeforeStored) {
  MemoryClient client;
  auto generator = Generator::open(tiny_model(), client, coding(), 1, soon());
  ASSERT_TRUE(generator.ok());
  std::vector<std::vector<Token>> prompts;
  for (uint32_t i = 0; i < 4; ++i) {
    prompts.push_back(prompt_of(300, 5));
    for (Token t : prompt_of(20, 100 + i)) prompts.back().push_back(t);
  }
  auto results = (*generator)->generate_all(prompts, six_tokens(), 4);
  for (size_t i = 0; i < results.size(); ++i) {
    ASSERT_TRUE(results[i].ok());
    EXPECT_GE(results[i]->reused_tokens, i == 0 ? 0u : 300u) << i;
  }
}

// The service is stopped, not dead: its socket takes connections and requests, and never answers.
TEST(EngineHangs, AServiceThatHangsIsAMiss) {
  TempDir dir;
  const std::string path = dir.store() + ".socket";
  auto daemon = DaemonProcess::start({"--dir", dir.store(), "--socket", path, "--ram", "64MiB"});
  ASSERT_NE(daemon, nullptr);
  auto client = SocketClient::connect(path, "hangs", {});
  ASSERT_TRUE(client.ok()) << client.status().to_string();
  auto generator = Generator::open(tiny_model(), **client, coding(), 1, soon());
  ASSERT_TRUE(generator.ok()) << generator.status().to_string();
  auto prompt = prompt_of(400, 2);
  auto options = six_tokens();
  auto cold = (*generator)->generate(prompt, options);
  ASSERT_TRUE(cold.ok() && cold->cache_error.empty()) << cold->cache_error;

  ASSERT_EQ(::kill(daemon->pid(), SIGSTOP), 0);
  options.deadline = deadline_in(seconds(120));
  auto hung = (*generator)->generate(prompt, options);
  ASSERT_TRUE(hung.ok()) << hung.status().to_string();
  EXPECT_EQ(hung->reused_tokens, 0u);
  EXPECT_EQ(hung->logits, cold->logits);
  EXPECT_THAT(hung->cache_error, HasSubstr("deadline_exceeded"));
  options.wait_for = Durability::durable;  // nor does that wait for the service
  auto paused = (*generator)->generate(prompt, options);
  ASSERT_TRUE(paused.ok()) << paused.status().to_string();
  EXPECT_EQ(paused->logits, cold->logits);
  EXPECT_EQ(paused->level, Durability::none);
  EXPECT_THAT(paused->cache_error, HasSubstr("not asked for another"));

  ASSERT_EQ(::kill(daemon->pid(), SIGCONT), 0);
  options.wait_for = Durability::accepted;
  uint32_t reused = 0;
  for (Deadline end = deadline_in(seconds(60));
       reused == 0 && std::chrono::steady_clock::now() < end;) {
    options.deadline = deadline_in(seconds(120));
    auto again = (*generator)->generate(prompt, options);
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(again->logits, cold->logits);
    reused = again->reused_tokens;
  }
  EXPECT_EQ(reused, 399u);  // it is asked again
}

}  // namespace
}  // namespace kv
