// A tiny model of the engine in front of the real cache: runs, stores, restores and goes on.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>

#include "cachesvc/ram_object.h"
#include "codec/plan.h"
#include "engine/network.h"
#include "tests/support/cachesvc_testing.h"
#include "tests/tiny/tiny_model.h"

namespace kv {

inline constexpr uint32_t kTinyPrompt = 600, kTinySteps = 64;
inline constexpr uint32_t kTinyLongest = kTinyPrompt - 1;  ///< at least one token is computed

/// tests/golden/engine/tiny_NAME.txt: what transformers computed.
struct TinyGolden {
  uint64_t seed = 0;
  std::vector<Token> greedy;                      ///< the 64 tokens after the prompt
  std::vector<Token> best;                        ///< argmax at each prompt position
  std::vector<uint32_t> ids;                      ///< whose logits are given
  std::map<uint32_t, std::vector<float>> logits;  ///< by position
  std::vector<Token> tokens;                      ///< prompt, then greedy

  explicit TinyGolden(const std::string& name) {
    std::ifstream in(std::string(KV_GOLDEN_DIR) + "/engine/tiny_" + name + ".txt");
    std::string line, word;
    while (std::getline(in, line)) {
      std::istringstream fields(line);
      fields >> word;
      auto all = [&](auto& out) {
        for (double v; fields >> v;) out.push_back(static_cast<Token>(v));
      };
      if (word == "#") continue;
      if (word == "seed")
        fields >> seed;
      else if (word == "greedy")
        all(greedy);
      else if (word == "best")
        all(best);
      else if (word == "ids")
        all(ids);
      else
        for (float v; fields >> v;) logits[static_cast<uint32_t>(std::stoul(word))].push_back(v);
    }
    EXPECT_EQ(greedy.size(), kTinySteps) << name;
    tokens = tiny::Formula(seed).prompt(kTinyPrompt);
    tokens.insert(tokens.end(), greedy.begin(), greedy.end());
  }
};

/// What came of computing from some position to the end.
struct TinyRun {
  std::vector<Token> tokens;  ///< 64 greedy ones
  std::vector<float> last;    ///< logits of the last step
};

class TinyBench {
 public:
  /// `bits` 0: exact mode, raw planes in fp32; kTransformWord: transforms.
  TinyBench(const std::string& name, uint8_t bits, std::unique_ptr<TieredCache> cache)
      : golden(name), cache_(std::move(cache)) {
    auto made = tiny::make_tiny(name, golden.seed);
    KV_CHECK(made.ok());
    network = std::move(*made);
    CodingSettings settings;
    const bool transforms = bits == kTransformWord;
    settings.k_bits = settings.v_bits = transforms ? 0 : bits;
    settings.raw_dtype = bits == 0 ? DType::f32 : DType::f16;
    settings.block_tokens = 128;
    auto profile = plain_profile(network->spec(), settings);
    KV_CHECK(profile.ok());
    if (transforms) *profile = with_transforms(*profile, network->spec());
    OpenRequest request;
    request.model = network->spec();
    request.profile = std::make_shared<const Profile>(*profile);
    auto reply = cache_->open(request, soon());
    EXPECT_TRUE(reply.ok()) << reply.status().to_string();
    opened = *reply;
    codec = *Codec::create(request.model, opened.profile);
  }

  TinyGolden golden;
  std::unique_ptr<Network> network;
  OpenReply opened;
  std::shared_ptr<const Codec> codec;

  KvCache empty() const { return KvCache(codec, opened.realm); }
  TieredCache& cache() { return *cache_; }
  /// Whether nothing is coded or rounded, whatever was asked for.
  bool all_raw() const {
    if (opened.profile->raw_dtype == DType::f32 && opened.profile->requested_k_bits == 0) {
      return true;
    }
    for (const CodingReport& r : opened.parts) {  // parts of one storage keep their own dtype
      const PartSpec& part = codec->model().layers[r.layer].parts[r.part];
      if (part.v_dim > 0) return false;
    }
    return true;
  }
  std::vector<Token> prompt() const {
    return {golden.tokens.begin(), golden.tokens.begin() + kTinyPrompt};
  }

  /// Steps from sequence.tokens(), below the prompt's length, through the prompt and 64 greedy
  /// steps. `visit(position, logits)` sees every step's.
  template <typename Visit>
  TinyRun finish(KvCache& sequence, Visit&& visit) {
    TinyRun run;
    run.last.resize(network->vocab());
    Token next = 0;
    while (sequence.tokens() + 1 < golden.tokens.size()) {
      uint32_t at = sequence.tokens();
      Token token = at < kTinyPrompt ? golden.tokens[at] : next;
      Status s = network->step(token, sequence, run.last);
      EXPECT_TRUE(s.ok()) << s.to_string();
      if (!s.ok()) break;
      next =
          static_cast<Token>(std::max_element(run.last.begin(), run.last.end()) - run.last.begin());
      if (at + 1 >= kTinyPrompt) run.tokens.push_back(next);
      visit(at, run.last);
    }
    return run;
  }
  TinyRun finish(KvCache& sequence) {
    return finish(sequence, [](uint32_t, const std::vector<float>&) {});
  }

  /// Stores what `sequence` holds, all that is welcome too. The objects put are kept in `put`.
  void store(const KvCache& sequence, Durability wait_for = Durability::accepted) {
    ReserveRequest request;
    request.model = opened.model;
    request.profile = opened.realm.profile;
    auto first = golden.tokens.begin();
    request.query.tokens.assign(first, first + sequence.tokens());
    auto reserved = cache_->reserve(request, soon());
    ASSERT_TRUE(reserved.ok()) << reserved.status().to_string();
    for (const Need& need : reserved->needs) {
      auto object = sequence.object(need, sequence.tokens());
      ASSERT_TRUE(object.ok()) << object.status().to_string();
      ASSERT_TRUE(*object || !need.required) << to_string(need.kind) << " " << need.end_row;
      if (!*object) continue;
      Status s = cache_->put({reserved->reservation, **object, {}}, soon());
      ASSERT_TRUE(s.ok()) << s.to_string();
      put.push_back(*object);
    }
    auto commit = cache_->commit(reserved->reservation, wait_for, soon());
    ASSERT_TRUE(commit.ok()) << commit.status().to_string();
    EXPECT_EQ(commit->level, wait_for);
  }
  std::vector<ObjectPtr> put;

  /// The longest stored prefix of the prompt of at most `most` tokens.
  FetchReply fetch(uint32_t most) {
    FetchRequest request;
    request.model = opened.model;
    request.query.tokens = prompt();  // a repeat of what was stored: its bits depend on no tier
    request.query.tokens.resize(std::min<size_t>(request.query.tokens.size(), size_t{most} + 1));
    request.max_tokens = most;
    auto reply = cache_->fetch(request, soon());
    EXPECT_TRUE(reply.ok()) << reply.status().to_string();
    return reply.ok() ? std::move(*reply) : FetchReply();
  }
  /// Takes `reply` over and computes the rest: what `cold` computed, bit for bit.
  void expect_resumes(FetchReply reply, const TinyRun& cold) {
    uint32_t n = reply.tokens;
    KvCache sequence = empty();
    Status s = sequence.restore(std::move(reply.lease), prompt());
    EXPECT_TRUE(s.ok()) << s.to_string();
    s = network->check(sequence);
    EXPECT_TRUE(s.ok()) << s.to_string();
    TinyRun run = finish(sequence);
    EXPECT_EQ(run.tokens, cold.tokens) << n;
    EXPECT_EQ(run.last, cold.last) << n;
  }
  /// By brute force over what was put: whether a cache of exactly n tokens is there.
  bool restorable(uint32_t n) const {
    std::set<std::tuple<uint32_t, uint32_t, uint32_t>> rows, states;  // (layer, part, row or n)
    for (const ObjectPtr& o : put) {
      for (const Plane& p : o->planes) {
        for (uint32_t r = p.first_row; r < p.end_row(); ++r) rows.insert({p.layer, p.part, r});
      }
      uint32_t at = o->name.kind == ObjectKind::supplement ? o->name.end_row : o->end_token();
      for (const StateBlob& s : o->states) states.insert({s.layer, s.part, at});
    }
    for (uint32_t l = 0; l < network->spec().layers.size(); ++l) {
      const auto& parts = network->spec().layers[l].parts;
      for (uint32_t p = 0; p < parts.size(); ++p) {
        for (const RowRange& r : demanded_rows(parts[p], n)) {
          for (uint32_t row = r.first; row < r.end; ++row) {
            if (rows.count({l, p, row}) == 0) return false;
          }
        }
        bool state = demands_carry(parts[p], n) || demands_snapshot(parts[p], n);
        if (state && states.count({l, p, n}) == 0) return false;
      }
    }
    return true;
  }

 private:
  std::unique_ptr<TieredCache> cache_;
};

inline CacheOptions tiny_options(const std::string& ssd_dir) {
  CacheOptions o;
  o.ram_budget_bytes = 1ull << 30;
  o.ssd_dir = ssd_dir;
  o.ssd_limit_bytes = 4ull << 30;
  o.ssd_min_free_bytes = 0;
  o.block_end_interval = 0;  // lengths are then those of entries' own ends
  return o;
}

/// Every prefix whose length `stride` divides, and the longest, is stored while a cold run computes
/// it; each is then restored from RAM and, after a restart, from the SSD: the same bytes. Those
/// that `ram_stride` and `ssd_stride` divide go on as that run.
inline void expect_restores_everywhere(const std::string& name, uint8_t bits, uint32_t stride,
                                       uint32_t ram_stride = 1, uint32_t ssd_stride = 1) {
  TempDir dir;
  auto options = tiny_options(dir.store());
  auto stored = [&](uint32_t n) { return n % stride == 0 || n == kTinyLongest; };
  TinyRun cold;
  std::map<uint32_t, std::vector<Xxh128>> in_ram;  // by length: sums of the objects' payloads
  auto expect_all = [&](TinyBench& bench, bool from_ssd) {
    for (uint32_t n = 1; n <= kTinyLongest && !testing::Test::HasFailure(); ++n) {
      if (!stored(n)) continue;
      FetchReply reply = bench.fetch(n);
      ASSERT_EQ(reply.tokens, n) << reply.reason;
      EXPECT_EQ(reply.tier != Tier::ram, from_ssd) << n;
      std::vector<Xxh128> sums;
      for (const auto& o : reply.lease.prefix().objects) sums.push_back(payload_sum(*o.object));
      EXPECT_EQ(in_ram.try_emplace(n, sums).first->second, sums) << n;
      if (n % (from_ssd ? ssd_stride : ram_stride) != 0 && n != kTinyLongest) continue;
      bench.expect_resumes(std::move(reply), cold);
    }
  };
  {
    TinyBench bench(name, bits, open_cache(options));
    KvCache sequence = bench.empty();
    cold = bench.finish(sequence, [&](uint32_t at, const std::vector<float>&) {
      if (at < kTinyLongest && stored(at + 1)) bench.store(sequence);
    });
    if (bench.all_raw()) {  // also where codes were asked for and the parts are never coded
      EXPECT_EQ(cold.tokens, bench.golden.greedy);
    }
    expect_all(bench, false);
    Status drained = bench.cache().drain(soon());
    ASSERT_TRUE(drained.ok()) << drained.to_string();
  }
  TinyBench reopened(name, bits, open_cache(options));
  expect_all(reopened, true);
}

/// One store of the prompt: exactly the lengths that its rows, carries and states allow are served,
/// from RAM and, after a restart, from the SSD; every `stride`th of them, the first and the last
/// ones go on as the run that stored them.
inline void expect_one_store_serves(const std::string& name, uint32_t stride) {
  TempDir dir;
  auto options = tiny_options(dir.store());
  std::vector<uint32_t> lengths;  // that are restorable
  TinyRun cold;
  auto expect_all = [&](TinyBench& bench, bool from_ssd) {
    size_t next = 0;
    uint32_t served = 0;
    for (uint32_t n = 1; n <= kTinyLongest && !testing::Test::HasFailure(); ++n) {
      bool fits = next < lengths.size() && lengths[next] == n;
      if (fits) served = n, ++next;
      FetchReply reply = bench.fetch(n);
      ASSERT_EQ(reply.tokens, served) << "at most " << n << ": " << reply.reason;
      if (fits && (next < 9 || next % stride == 0 || n + 5 > kTinyLongest)) {
        bench.expect_resumes(std::move(reply), cold);
      }
    }
    EXPECT_EQ(served, kTinyLongest) << (from_ssd ? "from SSD" : "from RAM");
  };
  {
    TinyBench bench(name, 0, open_cache(options));
    KvCache sequence = bench.empty();
    auto prompt = std::span(bench.golden.tokens).first(kTinyLongest);
    ASSERT_TRUE(bench.network->prefill(prompt, sequence, soon()).ok());
    bench.store(sequence);
    for (uint32_t n = 1; n <= kTinyLongest; ++n) {
      if (bench.restorable(n)) lengths.push_back(n);
    }
    cold = bench.finish(sequence);
    EXPECT_EQ(cold.tokens, bench.golden.greedy);
    expect_all(bench, false);
    Status drained = bench.cache().drain(soon());
    ASSERT_TRUE(drained.ok()) << drained.to_string();
  }
  TinyBench reopened(name, 0, open_cache(options));
  expect_all(reopened, true);
}

}  // namespace kv
