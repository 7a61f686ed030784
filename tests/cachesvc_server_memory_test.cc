// The service's socket without memory: allocation N of its threads fails, alone or with more after
// it, for N = 1 until a whole conversation passes without a failure. Whatever the client asked is
// answered, busy or right, or its connection closed, never left without an answer; the service goes
// on and serves the next client.
//
// KV_MEMORY_STRIDE=1 tries every N.
#include <algorithm>
#include <cstdlib>
#include <thread>

#include "cachesvc/daemon/server.h"
#include "cachesvc/loop/workers.h"
#include "proto/socket_client.h"
#include "tests/support/cachesvc_oracle.h"
#include "tests/support/failing_new.h"

namespace kv {
namespace {

using Sequence = std::vector<Token>;

const char* const kNamespace = "a namespace of more than fifteen bytes";

int64_t stride() {
  if (const char* own = std::getenv("KV_MEMORY_STRIDE")) return std::max(1, std::atoi(own));
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 151;
#else
  return 11;
#endif
}

// The service in this process, on threads that FailingNew watches.
class Service {
 public:
  Service(const CacheOptions& options, const std::string& socket, ServerOptions own = {})
      : workers_(2) {
    auto core = CacheCore::create(options, io_.get_executor(), workers_.get_executor());
    EXPECT_TRUE(core.ok()) << core.status().to_string();
    core_ = std::move(*core);
    own.socket = socket;
    server_ = std::make_unique<Server>(io_, *core_, own);
    EXPECT_TRUE(server_->listen().ok());
    loop_ = std::thread([this] { run_loop(io_); });
  }
  ~Service() {
    io_.stop();
    loop_.join();
    server_.reset();
    core_.reset();
    workers_.join();
  }
  Service(const Service&) = delete;  // owns threads
  Service& operator=(const Service&) = delete;

 private:
  boost::asio::io_context io_{1};
  Workers workers_;
  std::unique_ptr<CacheCore> core_;
  std::unique_ptr<Server> server_;
  std::thread loop_;
};

class ServerMemory : public ::testing::Test {
 protected:
  void SetUp() override { FailingNew::watched = false; }
  void TearDown() override {
    FailingNew::disarm();
    FailingNew::watched = true;
  }
  std::string socket() const { return dir_.store() + "-run/cachesvc.sock"; }

  // Connects, opens, stores, fetches, looks and erases: the first status that is not ok.
  Status converse(const Sequence& tokens) {
    KV_ASSIGN_OR_RETURN(auto client, SocketClient::connect(socket(), kNamespace, {}));
    ModelSpec model = model_of({LayerSpec{{full_part()}}, LayerSpec{{window_part(6, 2)}}});
    OpenRequest open;
    open.model = model;
    KV_ASSIGN_OR_RETURN(OpenReply opened, client->open(open, soon()));
    ReserveRequest reserve{opened.model, opened.realm.profile, {tokens, {}}};
    KV_ASSIGN_OR_RETURN(ReserveReply reserved, client->reserve(reserve, soon()));
    for (const Need& need : reserved.needs) {
      KV_RETURN_IF_ERROR(
          client->put(make_put(model, 16, tokens, need, reserved.reservation), soon()));
    }
    KV_RETURN_IF_ERROR(client->commit(reserved.reservation, Durability::accepted, soon()).status());
    FetchRequest fetch;
    fetch.model = opened.model;
    fetch.query.tokens = tokens;
    fetch.query.tokens.push_back(1);
    KV_ASSIGN_OR_RETURN(FetchReply reply, client->fetch(fetch, soon()));
    KV_ASSIGN_OR_RETURN(auto codec, Codec::create(model, opened.profile));
    ReplyCheck(model, *codec, prefix_hashes(tokens)).expect(reply, fetch.form);
    if (reply.tokens != tokens.size()) return {StatusCode::busy, "a shorter hit"};
    KV_RETURN_IF_ERROR(client->stats(soon()).status());
    KV_RETURN_IF_ERROR(client->lookup(opened.model, fetch.query, soon()).status());
    return client->erase(opened.model, {}, soon()).status();
  }

  TempDir dir_;
  std::mt19937 rng_{23};
};

TEST_F(ServerMemory, TheClientIsAnsweredOrItsConnectionClosedAndTheNextIsServed) {
  CacheOptions options = small_options();
  options.ram_budget_bytes = 8u << 20;
  Service service(options, socket());
  const Sequence tokens = random_tokens(rng_, 40);
  ASSERT_TRUE(converse(tokens).ok());
  for (int64_t more : {0, 3, 50}) {
    int64_t n = 1, failed = 0;
    for (bool any = true; any; n += stride()) {
      SCOPED_TRACE("allocation " + std::to_string(n) + " and " + std::to_string(more) + " more");
      FailingNew::arm(n, more);
      Status status = converse(tokens);
      FailingNew::disarm();
      any = FailingNew::failures() > 0;
      failed += !status.ok();
      bool expected = status.ok() || status.code() == StatusCode::busy ||
                      status.code() == StatusCode::unavailable ||
                      status.code() == StatusCode::not_found;
      ASSERT_TRUE(expected) << status.to_string();
      Status after = converse(tokens);
      ASSERT_TRUE(after.ok()) << after.to_string() << ", after " << status.to_string();
    }
    std::cout << more << " more: " << n << " allocations, " << failed << " times not served\n";
    EXPECT_GT(failed, 0);
  }
}

// Each stays open, so that each takes what no connection before it has left behind.
TEST_F(ServerMemory, AConnectionThatFindsNoMemoryIsClosedAndTheNextIsAccepted) {
  CacheOptions options = small_options();
  options.max_sessions = 1'000;
  ServerOptions own;
  own.max_connections = 1'000;
  Service service(options, socket(), own);
  std::vector<std::unique_ptr<SocketClient>> open;
  int64_t failed = 0;
  for (int64_t n = 1;; ++n) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    FailingNew::arm(n, 0);
    auto first = SocketClient::connect(socket(), kNamespace, {});
    FailingNew::disarm();
    bool passed = FailingNew::failures() == 0;
    failed += !first.ok();
    if (first.ok()) open.push_back(std::move(*first));
    auto next = SocketClient::connect(socket(), kNamespace, {});
    ASSERT_TRUE(next.ok()) << next.status().to_string();
    open.push_back(std::move(*next));
    if (passed) break;
  }
  EXPECT_GT(failed, 0);
}

}  // namespace
}  // namespace kv
