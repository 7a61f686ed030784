// Calls handed to the tier's thread.
#include "cachesvc/remote/redis_tier.h"

#include <boost/asio/post.hpp>
#include <future>
#include <utility>

namespace kv {
namespace {

constexpr auto kStatePatience = std::chrono::seconds(1);  // the thread may open a large value

}  // namespace

RedisTier::RedisTier(RedisOptions nodes, RemoteTierOptions options)
    : guard_(boost::asio::make_work_guard(io_)),
      cluster_(io_, std::move(nodes)),
      tier_(cluster_, std::move(options)),
      thread_([this] { io_.run(); }) {}

template <typename Step>
void RedisTier::post(Step step) {
  boost::asio::post(io_, std::move(step));
}

void RedisTier::find(std::vector<RemoteName> names, Clock::time_point deadline,
                     std::function<void(std::vector<RemoteFound>)> done) {
  post([this, names = std::move(names), deadline, done = std::move(done)]() mutable {
    tier_.find(std::move(names), deadline, std::move(done));
  });
}

void RedisTier::list(std::vector<RemoteList> lists, Clock::time_point deadline,
                     std::function<void(std::vector<RemoteListed>)> done) {
  post([this, lists = std::move(lists), deadline, done = std::move(done)]() mutable {
    tier_.list(std::move(lists), deadline, std::move(done));
  });
}

void RedisTier::get(const RemoteFound& found, Clock::time_point deadline,
                    std::function<void(Result<FileImage>)> done) {
  post([this, found, deadline, done = std::move(done)]() mutable {
    tier_.get(found, deadline, std::move(done));
  });
}

void RedisTier::put(FileImage image, const RemoteName& name, Clock::time_point deadline,
                    std::function<void(Result<RemotePut>)> done) {
  post([this, image = std::move(image), name, deadline, done = std::move(done)]() mutable {
    tier_.put(image, name, deadline, std::move(done));
  });
}

void RedisTier::agree(const RemoteSpace& space, const Id& fingerprint,
                      std::shared_ptr<const Profile> own, Clock::time_point deadline,
                      std::function<void(Result<RemoteProfile>)> done) {
  post(
      [this, space, fingerprint, own = std::move(own), deadline, done = std::move(done)]() mutable {
        tier_.agree(space, fingerprint, std::move(own), deadline, std::move(done));
      });
}

void RedisTier::erase(std::vector<RemoteName> names, Clock::time_point deadline,
                      std::function<void(RemoteErased)> done) {
  post([this, names = std::move(names), deadline, done = std::move(done)]() mutable {
    tier_.erase(std::move(names), deadline, std::move(done));
  });
}

void RedisTier::erase_all(const RemoteSpace& space, Clock::time_point deadline,
                          std::function<void(RemoteErased)> done) {
  post([this, space, deadline, done = std::move(done)]() mutable {
    tier_.erase_all(space, deadline, std::move(done));
  });
}

SharedTierState RedisTier::state() {
  if (closed_) return {};
  auto promise = std::make_shared<std::promise<SharedTierState>>();
  auto answer = promise->get_future();
  post([this, promise] { promise->set_value(state_now()); });
  if (answer.wait_for(kStatePatience) != std::future_status::ready) return {};
  return answer.get();
}

SharedTierState RedisTier::state_now() const {
  SharedTierState state{tier_.counts(), tier_.bytes_in_flight(), 0, 0, {}};
  for (const RedisNodeState& node : cluster_.nodes()) {
    ++state.nodes;
    if (node.breaker == BreakerState::closed) continue;
    ++state.nodes_lost;
    state.last_error = to_string(node.address) + ": " + node.last_error;
  }
  return state;
}

void RedisTier::close() {
  if (closed_.exchange(true)) return;
  post([this] { cluster_.close(); });
  guard_.reset();
  thread_.join();
}

}  // namespace kv
