// CoreOwners: the owners of the core on contexts that the test pumps. For unit tests of one owner
// with those below it; what they come to together, tests of CacheCore say (cachesvc_stepped.h).
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <optional>

#include "cachesvc/core/index_bytes.h"
#include "cachesvc/core/owners.h"
#include "tests/support/cachesvc_testing.h"

namespace kv {

/// Contexts of the owners' loop, workers and disk.
struct PumpedContexts {
  boost::asio::io_context loop_, workers_, disk_;
};

class CoreOwners : PumpedContexts, public Owners {
 public:
  /// With an SSD tier where the options name a directory; its files are known. Nobody looks again
  /// when something has moved but the test, with go_on().
  explicit CoreOwners(const CacheOptions& options)
      : Owners(std::make_shared<Env>(
            options, loop_.get_executor(), workers_.get_executor(), disk_.get_executor(),
            RamPool::create(options.ram_budget_bytes,
                            static_cast<uint64_t>(static_cast<double>(options.ram_budget_bytes) *
                                                  options.staging_fraction),
                            options.segments ? Backing::segments : Backing::anonymous))) {
    env->begin([this] { ++progress; }, [this] { room.pump(); }, [this] { no_memory = true; });
    env->pool->on_release([wake = env->room_wake()] { wake->ask(); });
    const Status opened = reconciler.open();
    EXPECT_TRUE(opened.ok()) << opened.to_string();
    run();
  }
  ~CoreOwners() {
    close("the test ends");
    hangs = workers_hang = false;
    run();
  }
  CoreOwners(const CoreOwners&) = delete;  // owners point to each other
  CoreOwners& operator=(const CoreOwners&) = delete;

  /// All that is ready, timers that are due among them; a disk that hangs runs nothing. What the
  /// owners keep agrees after each round.
  void run() {
    size_t ran = 1;
    while (ran > 0) {
      ran = poll(loop_) + (workers_hang ? 0 : poll(workers_)) + (hangs ? 0 : poll(disk_));
      check_invariants();
    }
  }
  /// The workers alone: their results wait for the loop.
  void run_workers() { poll(workers_); }
  void run_for(Milliseconds time) {
    const auto end = Clock::now() + time;
    while (Clock::now() < end) {
      run();
      loop_.restart();
      loop_.run_one_for(Milliseconds(1));
    }
    run();
  }

  /// The realm of a plain model whose records are on the SSD.
  RealmState& open_model(const ModelSpec& spec = plain_model()) {
    auto profile = make_profile(spec, 0);  // rows as they were given
    auto charge = env->pool->try_charge(ChargeKind::model, 8u << 20);
    EXPECT_TRUE(charge.has_value());
    auto coded = make_coded_model(spec, *profile, *charge);
    EXPECT_TRUE(coded.ok()) << coded.status().to_string();
    model = models.put_in_force("test", models.shared(std::move(*coded)), {});
    if (lane) model_records.write(*model);
    run();
    return *model->realm;
  }
  /// A block of random exact rows in RAM, as a commit leaves it: child of `parent`, or a root.
  Record& give_block(RealmState& realm, const Record* parent = nullptr) {
    const uint32_t block = realm.block_tokens();
    Object object;
    object.first_token = parent ? realm.tree.end_token(parent->node) : 0;
    object.parent = parent ? parent->name.id : Id{};
    object.tokens = random_tokens(rng_, block);
    object.name.kind = ObjectKind::block;
    stamp(object, realm.realm);
    const ModelSpec& spec = *realm.model;
    uint64_t payload_bytes = 0;
    for (uint16_t l = 0; l < spec.layers.size(); ++l) {
      for (const SideSpec& side : sides_of(spec.layers[l].parts[0])) {
        Plane p;
        p.layer = l;
        p.side = side.side;
        p.heads = side.heads;
        p.dim = side.dim;
        p.first_row = object.first_token;
        p.runs = {{RunForm::exact, block}};
        p.dtype = realm.profile->raw_dtype;
        payload_bytes += plane_bytes(p);
        object.planes.push_back(std::move(p));
      }
    }
    Charge stored;
    auto buffer = buffer_in_pool(payload_bytes, *env->pool, stored, object.ns);
    EXPECT_TRUE(buffer.ok()) << buffer.status().to_string();
    for (size_t i = 0; i < buffer->size(); ++i) buffer->data()[i] = static_cast<uint8_t>(i % 5);
    EXPECT_TRUE(attach_payload(object, std::move(*buffer).freeze()).ok());
    auto shared = std::make_shared<const Object>(std::move(object));
    RamObject ram{shared, payload_sum(*shared)};
    auto index_charge =
        env->pool->try_charge(ChargeKind::index, index_bytes(shared->name.kind, shared->tokens));
    EXPECT_TRUE(index_charge.has_value());
    Record* record = index.add(realm, *shared, std::move(*index_charge));
    KV_CHECK(record != nullptr);
    records.given(*record, ram);
    return *record;
  }

 private:
  static size_t poll(boost::asio::io_context& context) {
    context.restart();
    return context.poll();
  }
  std::mt19937 rng_{1};

 public:
  bool hangs = false;         ///< the disk: no job of it runs
  bool workers_hang = false;  ///< so for the workers
  bool no_memory = false;
  int progress = 0;                   ///< times that something has moved
  std::shared_ptr<ModelState> model;  ///< of open_model()

  /// A session that has opened the model of open_model() as its handle 1.
  uint64_t connect(const std::string& ns = "test") {
    const uint64_t id = *calls.connect(ns);
    calls.opened(id, model);
    return id;
  }
  /// Runs as CacheCore does: whoever waits looks again after each progress.
  void run_all() {
    for (int before = -1; before != progress;) {
      before = progress;
      go_on();
      run();
    }
  }
  /// The answer of a call that `start(done)` begins, by run_all(); nullopt: it still waits.
  template <typename T, typename Start>
  std::optional<T> call(Start start) {
    auto out = std::make_shared<std::optional<T>>();
    start([out](T value) { out->emplace(std::move(value)); });
    run_all();
    return std::move(*out);
  }
  Result<ReserveReply> reserve(uint64_t session, const std::vector<Token>& tokens) {
    const ReserveRequest request{1, model->realm->realm.profile, {tokens, {}}};
    auto reply = call<Result<ReserveReply>>(
        [&](auto done) { reservations.reserve(session, request, soon(), done); });
    return reply ? std::move(*reply) : Result<ReserveReply>(Status(StatusCode::busy, "waits"));
  }
  /// Puts all that a reservation lacks, but the last `but` objects.
  void put(uint64_t session, const std::vector<Token>& tokens, const ReserveReply& reserved,
           size_t but = 0) {
    for (size_t i = 0; i + but < reserved.needs.size(); ++i) {
      auto put = make_put(*model->realm->model, model->realm->block_tokens(), tokens,
                          reserved.needs[i], reserved.reservation);
      auto status = call<Status>(
          [&](auto done) { puts.put(session, std::move(put), nullptr, soon(), done); });
      EXPECT_TRUE(status && status->ok());
    }
  }
  void store(uint64_t session, const std::vector<Token>& tokens,
             Durability level = Durability::accepted) {
    auto reserved = reserve(session, tokens);
    ASSERT_TRUE(reserved.ok()) << reserved.status().to_string();
    put(session, tokens, *reserved);
    commit(session, *reserved, level);
  }
  void commit(uint64_t session, const ReserveReply& reserved,
              Durability level = Durability::accepted) {
    auto reply = std::make_shared<std::optional<Result<CommitReply>>>();
    commits.commit(session, reserved.reservation, level, soon(),
                   [reply](Result<CommitReply> r) { reply->emplace(std::move(r)); });
    for (run_all(); !*reply && !hangs; go_on()) run_for(Milliseconds(1));  // a sync has its time
    ASSERT_TRUE(*reply && (*reply)->ok());
    ASSERT_GE((**reply)->level, level);
  }
  std::optional<Result<FetchReply>> fetch(uint64_t session, const std::vector<Token>& tokens) {
    FetchRequest request;
    request.model = 1;
    request.query.tokens = tokens;
    return call<Result<FetchReply>>(
        [&](auto done) { fetches.fetch(session, request, soon(), done); });
  }
};

}  // namespace kv
