// The cost of recording a request (core/request_ring.h, core/misses.h), beside the fetch in process
// that it belongs to: 12 blocks of 256 tokens, all in RAM. RecordMiss: a prompt that parts from the
// stored one in its middle, with the namespace's other model asked for the same tokens.
#include <benchmark/benchmark.h>

#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

class Served {
 public:
  Served() : core_(small_options()) {
    core_.open_model(model_of({LayerSpec{{full_part()}}}, 8));  // the other model
    auto charge = core_.env->pool->try_charge(ChargeKind::model, 8u << 20);
    const ModelSpec spec = model_of({LayerSpec{{full_part()}}});
    auto coded = make_coded_model(spec, *make_profile(spec, 0, 256), *charge);
    core_.model = core_.models.put_in_force("test", core_.models.shared(std::move(*coded)), {});
    session_ = core_.connect();
    std::mt19937 rng(1);
    tokens = random_tokens(rng, size_t{12} * 256);
    core_.store(session_, tokens);
    missing = tokens;
    missing[6 * 256] ^= 1;
  }
  void fetch() { benchmark::DoNotOptimize(core_.fetch(session_, tokens)); }
  Hit plan_of(const std::vector<Token>& query) {
    PlanOptions options{{}, Clock::now()};
    options.limits.query_tokens = static_cast<uint32_t>(query.size());
    auto hit = plan(*core_.model->realm, {query, {}}, options);
    KV_CHECK(hit.ok());
    return std::move(*hit);
  }
  void record(const Query& query, const Hit& hit) {
    RequestRecord r;
    core_.misses.explain(*core_.model->realm, query, hit, hit.plan.tokens, Missing::nothing, r);
    split_tiers(*core_.model->realm, hit, r);
    r.at_ms = core_.env->wall_ms();
    core_.ring.add(r);
  }
  std::vector<Token> tokens, missing;

 private:
  CoreOwners core_;
  uint64_t session_ = 0;
};

void BM_FetchOfTwelveBlocks(benchmark::State& state) {
  Served served;
  for (auto _ : state) served.fetch();
}
BENCHMARK(BM_FetchOfTwelveBlocks)->Unit(benchmark::kMicrosecond);

void BM_RecordWhole(benchmark::State& state) {
  Served served;
  const Query query{served.tokens, {}};
  const Hit hit = served.plan_of(query.tokens);
  for (auto _ : state) served.record(query, hit);
}
BENCHMARK(BM_RecordWhole)->Unit(benchmark::kMicrosecond);

void BM_RecordMiss(benchmark::State& state) {
  Served served;
  const Query query{served.missing, {}};
  const Hit hit = served.plan_of(query.tokens);
  for (auto _ : state) served.record(query, hit);
}
BENCHMARK(BM_RecordMiss)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace kv

BENCHMARK_MAIN();
