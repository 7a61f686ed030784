// RedisTier: a SharedTier in a Redis or Valkey cluster, with a thread of its own, which waits for
// the network, and verifies and opens values. REMOTE.md.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <thread>

#include "cachesvc/remote/tier.h"

namespace kv {

class RedisTier final : public SharedTier {
 public:
  /// Asks nobody yet. Throws std::system_error: no thread.
  RedisTier(RedisOptions nodes, RemoteTierOptions options);
  ~RedisTier() override { close(); }
  RedisTier(const RedisTier&) = delete;  // handlers point here
  RedisTier& operator=(const RedisTier&) = delete;

  void find(std::vector<RemoteName> names, Clock::time_point deadline,
            std::function<void(std::vector<RemoteFound>)> done) override;
  void list(std::vector<RemoteList> lists, Clock::time_point deadline,
            std::function<void(std::vector<RemoteListed>)> done) override;
  void get(const RemoteFound& found, Clock::time_point deadline,
           std::function<void(Result<FileImage>)> done) override;
  void put(FileImage image, const RemoteName& name, Clock::time_point deadline,
           std::function<void(Result<RemotePut>)> done) override;
  void agree(const RemoteSpace& space, const Id& fingerprint, std::shared_ptr<const Profile> own,
             Clock::time_point deadline, std::function<void(Result<RemoteProfile>)> done) override;
  void erase(std::vector<RemoteName> names, Clock::time_point deadline,
             std::function<void(RemoteErased)> done) override;
  void erase_all(const RemoteSpace& space, Clock::time_point deadline,
                 std::function<void(RemoteErased)> done) override;
  SharedTierState state() override;
  void close() override;

 private:
  SharedTierState state_now() const;
  template <typename Step>
  void post(Step step);

  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_;
  RedisCluster cluster_;
  RemoteTier tier_;
  std::atomic<bool> closed_{false};
  std::thread thread_;  // last: it uses all of these
};

}  // namespace kv
