// Stepped: a CacheCore whose loop, workers and disk are contexts that the test pumps, so each order
// of events is chosen, not hoped for. And what tests ask of a store's directory.
#pragma once

#include <boost/asio/io_context.hpp>
#include <fstream>

#include "tests/support/cachesvc_testing.h"

namespace kv {

/// A Client whose every call pumps all contexts until it is answered.
class Stepped final : public Client {
 public:
  explicit Stepped(const CacheOptions& options) {
    auto made = CacheCore::create(options, loop.get_executor(), workers.get_executor(),
                                  disk.get_executor());
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    core = std::move(*made);
    session = *core->connect("test");
  }
  ~Stepped() override {
    core.reset();
    hangs = false;
    run();
  }
  /// Handlers of the loop that are ready, and no job.
  void run_loop() {
    loop.restart();
    loop.poll();
  }
  void run_workers() {
    workers.restart();
    workers.poll();
    disk.restart();
    if (!hangs) disk.poll();
  }
  bool run_once() {
    loop.restart();
    workers.restart();
    disk.restart();
    const bool ran = loop.poll() + workers.poll() + (hangs ? 0 : disk.poll()) > 0;
    if (core && checks) core->check_invariants();
    return ran;
  }
  /// Until nothing is ready: without end where a timer comes due again before its work is done.
  void run() {
    while (run_once()) {
    }
  }
  /// Called inside a job of the disk, from its files: that job has begun, and returns only when
  /// `done()`; loop and workers go on meanwhile.
  template <typename Done>
  void meanwhile(Done done) {
    while (!done()) {
      loop.restart();
      workers.restart();
      if (loop.poll() + workers.poll() == 0) loop.run_one();
    }
  }
  template <typename T, typename Start>
  T call(Start start) {
    std::optional<T> out;
    start([&out](T value) { out.emplace(std::move(value)); });
    while (!out) {
      if (!run_once()) loop.run_one();  // only a timer is left
    }
    return std::move(*out);
  }
  Result<OpenReply> open(const OpenRequest& r, const Until& d) override {
    return call<Result<OpenReply>>([&](auto done) { core->open(session, r, d.deadline, done); });
  }
  Result<LookupReply> lookup(const QueryRequest& r, const Until& d) override {
    return call<Result<LookupReply>>(
        [&](auto done) { core->lookup(session, r, d.deadline, done); });
  }
  Result<ReserveReply> reserve(const ReserveRequest& r, const Until& d) override {
    return call<Result<ReserveReply>>(
        [&](auto done) { core->reserve(session, r, d.deadline, done); });
  }
  Status put(PutRequest r, const Until& d) override {
    return call<Status>(
        [&](auto done) { core->put(session, std::move(r), nullptr, d.deadline, done); });
  }
  Result<CommitReply> commit(uint64_t id, Durability level, const Until& d) override {
    return call<Result<CommitReply>>(
        [&](auto done) { core->commit(session, id, level, d.deadline, done); });
  }
  Status abort(uint64_t id, const Until& d) override {
    return call<Status>([&](auto done) { core->abort(session, id, d.deadline, done); });
  }
  Result<FetchReply> fetch(const FetchRequest& r, const Until& d) override {
    return call<Result<FetchReply>>([&](auto done) { core->fetch(session, r, d.deadline, done); });
  }
  Result<LookupReply> prefetch(const PrefetchRequest& r, const Until& d) override {
    return call<Result<LookupReply>>(
        [&](auto done) { core->prefetch(session, r, d.deadline, done); });
  }
  Result<DemoteReply> demote(const DemoteRequest& r, const Until& d) override {
    return call<Result<DemoteReply>>(
        [&](auto done) { core->demote(session, r, d.deadline, done); });
  }
  Result<RetainReply> retain(const RetainRequest& r, const Until& d) override {
    return call<Result<RetainReply>>(
        [&](auto done) { core->retain(session, r, d.deadline, done); });
  }
  Result<ExpireReply> expire(const ExpireRequest& r, const Until& d) override {
    return call<Result<ExpireReply>>(
        [&](auto done) { core->expire(session, r, d.deadline, done); });
  }
  Result<HoldReply> hold(const HoldRequest& r, const Until& d) override {
    return call<Result<HoldReply>>([&](auto done) { core->hold(session, r, d.deadline, done); });
  }
  Result<Milliseconds> renew(uint64_t hold, Milliseconds time, const Until& d) override {
    return call<Result<Milliseconds>>(
        [&](auto done) { core->renew(session, hold, time, d.deadline, done); });
  }
  Status release(uint64_t hold, const Until& d) override {
    return call<Status>([&](auto done) { core->release(session, hold, d.deadline, done); });
  }
  Result<uint64_t> erase(uint32_t m, const Query& q, const Until& d) override {
    return call<Result<uint64_t>>([&](auto done) { core->erase(session, m, q, d.deadline, done); });
  }
  Result<uint64_t> erase_entry(const QueryRequest& r, const Until& d) override {
    return call<Result<uint64_t>>(
        [&](auto done) { core->erase_entry(session, r, d.deadline, done); });
  }
  Result<WhyReply> why(const WhyRequest& r, const Until& d) override {
    return call<Result<WhyReply>>([&](auto done) { core->why(session, r, d.deadline, done); });
  }
  Result<StatsReply> stats(const Until& d) override {
    return call<Result<StatsReply>>([&](auto done) { core->stats(session, d.deadline, done); });
  }

  boost::asio::io_context loop, workers, disk;
  bool hangs = false;  ///< the disk: no job of it runs
  bool checks = true;  ///< the core's invariants after each round
  std::unique_ptr<CacheCore> core;
  uint64_t session = 0;
};

/// True if these tokens lie in any file of the directory, the catalog and its log included.
inline bool on_disk(const std::string& directory, const std::vector<Token>& tokens) {
  std::string wanted(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(Token));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::string bytes(std::istreambuf_iterator<char>(in), {});
    if (bytes.find(wanted) != std::string::npos) return true;
  }
  return false;
}

}  // namespace kv
