// Parts of every kind through the real cache: stored, fetched from RAM and after a restart from
// SSD, at every length; what is decoded then is what the storing run decoded, bit for bit. Coded
// prefill: stored bytes and tokens are a function of the tokens alone.
#include <gmock/gmock.h>

#include <functional>

#include "engine/generator.h"
#include "engine/prompt.h"
#include "tests/support/cachesvc_testing.h"
#include "tests/support/engine_stored_rows.h"
#include "tests/support/engine_synthetic_network.h"

namespace kv {
namespace {

constexpr uint32_t kPartsBlock = 16;

struct Shape {
  const char* name;
  std::vector<LayerSpec> layers;
};
PartSpec float_state(SnapshotPlace place) {  // what the synthetic network's states are
  PartSpec p = state_part(place);
  p.dtype = DType::f32;
  return p;
}
PartSpec one_storage(PartKind kind, uint32_t window) {
  PartSpec p = pooled_part(0, false);
  p.kind = kind;
  p.window = window;
  return p;
}
std::vector<Shape> shapes() {
  auto checkpoint = float_state(SnapshotPlace::checkpoint);
  auto block_end = float_state(SnapshotPlace::block_end);
  PartSpec opaque = checkpoint;
  opaque.kind = PartKind::opaque;
  return {
      {"full", {LayerSpec{{full_part()}}, LayerSpec{}, LayerSpec{{full_part(1, 64)}}}},
      {"window and full", {LayerSpec{{window_part(21, 0)}}, LayerSpec{{full_part()}}}},
      {"only a window with sinks", {LayerSpec{{window_part(10, 3)}}}},
      {"window of one", {LayerSpec{{window_part(1, 0)}}, LayerSpec{{full_part()}}}},
      {"window with many sinks", {LayerSpec{{window_part(7, 20)}}}},
      {"chunk", {LayerSpec{{full_part()}}, LayerSpec{{chunk_part(24)}}}},
      {"latent", {LayerSpec{{one_storage(PartKind::latent, 0)}}}},
      {"window of one storage", {LayerSpec{{one_storage(PartKind::window, 12)}}}},
      {"pooled", {LayerSpec{{pooled_part(4, false)}}}},
      {"window, pooled with overlap",
       {LayerSpec{{one_storage(PartKind::window, 12), pooled_part(8, true), pooled_part(4, true)}},
        LayerSpec{{one_storage(PartKind::window, 12), pooled_part(16, false)}}}},
      {"state at checkpoints", {LayerSpec{{checkpoint}}, LayerSpec{{full_part()}}}},
      {"state at block ends", {LayerSpec{{block_end}}, LayerSpec{{full_part()}}}},
      {"all of it",
       {LayerSpec{{window_part(6, 2), pooled_part(4, true), checkpoint}}, LayerSpec{{full_part()}},
        LayerSpec{{chunk_part(8), opaque}}, LayerSpec{{block_end}}}},
  };
}

std::vector<Token> random_prompt(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  return random_tokens(rng, n, SyntheticNetwork::kVocab);
}

CodingOptions coding_of(uint8_t bits, PrefillMode mode = PrefillMode::exact) {
  CodingOptions o;
  o.k_bits = o.v_bits = bits;
  o.block_tokens = kPartsBlock;
  o.calibrate = false;
  o.prefill = mode;
  return o;
}

std::unique_ptr<Generator> open_generator(Client& client, const ModelSpec& model,
                                          const CodingOptions& coding) {
  auto made = Generator::open(std::make_unique<SyntheticNetwork>(model), client, coding, soon());
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return std::move(*made);
}

GenerateOptions answer(uint32_t tokens) {
  GenerateOptions o;
  o.cache_waits.least = std::chrono::minutes(1);
  o.max_new_tokens = tokens;
  o.keep_logits = true;
  o.wait_for = Durability::accepted;
  return o;
}

GenerateResult run_parts(Generator& g, const std::vector<Token>& prompt,
                         const GenerateOptions& options) {
  auto result = g.generate(prompt, options);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  if (!result.ok()) return {};
  EXPECT_EQ(result->cache_error, "");
  return std::move(*result);
}

bool has_checkpoints(const ModelSpec& model) {
  for (const PartGroup& g : part_groups(model)) {
    if (!g.spec.has_rows() && g.spec.snapshot == SnapshotPlace::checkpoint) return true;
  }
  return false;
}

// The lengths that a store of n tokens serves, from the demands' definition: rows that the demands
// of n, n - 1 and the newest block end have, carries at n and at the newest block end, states at
// checkpoints and block ends.
uint32_t longest_served(const ModelSpec& model, uint32_t stored, uint32_t most, uint32_t interval) {
  auto servable = [&](uint32_t n) {
    uint32_t block_end = stored / kPartsBlock * kPartsBlock;
    for (const PartGroup& g : part_groups(model)) {
      if (demands_carry(g.spec, n) && n != stored && n != block_end) return false;
      if (demands_snapshot(g.spec, n)) {
        bool ends = g.spec.snapshot == SnapshotPlace::block_end;
        uint32_t every = ends ? kPartsBlock : interval;
        if (n != stored && (every == 0 || n % every != 0)) return false;
      }
      if (!g.spec.has_rows() || g.spec.rows_in_block()) continue;
      for (RowRange r : demanded_rows(g.spec, n)) {
        for (uint32_t row = r.first; row < r.end; ++row) {
          bool held = false;
          for (uint32_t at : {stored, stored - 1, block_end}) {
            for (RowRange h : demanded_rows(g.spec, at)) held |= h.first <= row && row < h.end;
          }
          if (!held) return false;
        }
      }
    }
    return true;
  };
  while (most > 0 && !servable(most)) --most;
  return most;
}

// A run that steps through `tokens`, and stores them all when it has gone one token further, as a
// generation does: logits after each token.
std::vector<std::vector<float>> store_run(StoredPrompts& stored, SyntheticNetwork& network,
                                          std::span<const Token> tokens, uint32_t interval,
                                          Durability level) {
  KvCache cache = stored.new_cache(interval);
  std::vector<std::vector<float>> logits;
  for (Token t : tokens) {
    logits.emplace_back(SyntheticNetwork::kVocab);
    EXPECT_TRUE(network.step(t, cache, logits.back()).ok());
  }
  cache.mark();
  EXPECT_TRUE(network.step(tokens.back(), cache, {}).ok());
  auto done =
      stored.store(cache, static_cast<uint32_t>(tokens.size()), {{}, level, soon(), soon()});
  EXPECT_TRUE(done.ok()) << done.status().to_string();
  if (done.ok()) {
    EXPECT_EQ(done->level, level);
  }
  return logits;
}

// Every query that is a prefix of what was stored and one token more.
void expect_every_length(Client& client, const ModelSpec& model, uint8_t bits,
                         const std::vector<Token>& tokens, uint32_t interval,
                         const std::vector<std::vector<float>>& logits) {
  SyntheticNetwork network(model);
  auto stored = StoredPrompts::open(network, client, coding_of(bits), soon());
  ASSERT_TRUE(stored.ok()) << stored.status().to_string();
  auto end = static_cast<uint32_t>(tokens.size());
  for (uint32_t n = 1; n <= end; ++n) {
    std::vector<Token> query(tokens.begin(), tokens.begin() + n);
    query.push_back(n < end ? tokens[n] : 1);
    KvCache cache = stored->new_cache(interval);
    auto hit = stored->fetch(query, network, 1, cache, soon());
    ASSERT_TRUE(hit.ok()) << hit.status().to_string();
    ASSERT_EQ(hit->tokens, longest_served(model, end, n, interval)) << "query of " << n << " + 1";
    ASSERT_EQ(cache.tokens(), hit->tokens);
    // What follows is bit for bit the storing run's where the rows' form is: always with raw rows,
    // with codes at block ends and at the tail's end.
    bool same_form = bits == 0 || hit->tokens % kPartsBlock == 0 || hit->tokens == end;
    std::vector<float> own(SyntheticNetwork::kVocab);
    uint32_t stop = std::min(end, hit->tokens + 3);
    for (uint32_t at = hit->tokens; at < stop; ++at) {
      ASSERT_TRUE(network.step(tokens[at], cache, own).ok());
      if (same_form) {
        ASSERT_EQ(own, logits[at]) << "token " << at << " after " << hit->tokens;
      } else {
        for (size_t i = 0; i < own.size(); ++i) ASSERT_NEAR(own[i], logits[at][i], 1.0);
      }
    }
  }
}

TEST(EngineParts, EveryServedLengthGoesOnAsTheStoringRunDid) {
  for (const Shape& shape : shapes()) {
    ModelSpec model = model_of(shape.layers);
    for (uint8_t bits : {uint8_t{0}, uint8_t{4}}) {
      for (uint32_t length : {7u, 48u, 101u}) {
        for (uint32_t interval : {0u, 20u}) {
          if (interval > 0 && (!has_checkpoints(model) || length < 48)) continue;
          SCOPED_TRACE(std::string(shape.name) + " bits " + std::to_string(bits) + " length " +
                       std::to_string(length) + " interval " + std::to_string(interval));
          TempDir dir;
          auto tokens = random_prompt(length, length);
          std::vector<std::vector<float>> logits;
          {
            auto cache = open_cache(small_options(dir.store()));
            SyntheticNetwork network(model);
            auto stored = StoredPrompts::open(network, *cache, coding_of(bits), soon());
            ASSERT_TRUE(stored.ok()) << stored.status().to_string();
            logits = store_run(*stored, network, tokens, interval, Durability::spilled);
            expect_every_length(*cache, model, bits, tokens, interval, logits);
          }
          if (testing::Test::HasFailure()) return;
          auto cache = open_cache(small_options(dir.store()));  // from SSD
          expect_every_length(*cache, model, bits, tokens, interval, logits);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(EngineParts, TheSamePromptGivesTheSameTokensColdFromRamAndFromSsd) {
  for (const Shape& shape : shapes()) {
    ModelSpec model = model_of(shape.layers);
    for (uint8_t bits : {uint8_t{0}, uint8_t{4}}) {
      for (size_t length : {2u, 18u, 70u}) {
        SCOPED_TRACE(std::string(shape.name) + " bits " + std::to_string(bits) + " length " +
                     std::to_string(length));
        TempDir dir;
        auto prompt = random_prompt(length, 3);
        GenerateResult cold, warm;
        auto options = answer(20);
        options.wait_for = Durability::spilled;
        {
          auto cache = open_cache(small_options(dir.store()));
          auto generator = open_generator(*cache, model, coding_of(bits));
          cold = run_parts(*generator, prompt, options);
          EXPECT_EQ(cold.reused_tokens, 0u);
          warm = run_parts(*generator, prompt, options);
        }
        auto cache = open_cache(small_options(dir.store()));
        auto generator = open_generator(*cache, model, coding_of(bits));
        auto promoted = run_parts(*generator, prompt, options);
        for (const GenerateResult* r : {&warm, &promoted}) {
          EXPECT_EQ(r->reused_tokens, length - 1);
          EXPECT_EQ(r->tokens, cold.tokens);
          EXPECT_EQ(r->logits, cold.logits);
          EXPECT_EQ(r->stored_bytes, cold.stored_bytes);
        }
        EXPECT_EQ(promoted.tier, Tier::ssd);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

// With nothing coded a hit on an answer gives a cold run's logits too, though its rows were
// computed one by one first.
TEST(EngineParts, LosslessHitsOnAnswersGiveTheColdRunsLogits) {
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(shape.name);
    auto cache = open_cache(small_options()), empty = open_cache(small_options());
    ModelSpec model = model_of(shape.layers);
    auto generator = open_generator(*cache, model, coding_of(0));
    auto turn = random_prompt(45, 4);
    auto first = run_parts(*generator, turn, answer(25));
    turn.insert(turn.end(), first.tokens.begin(), first.tokens.end());
    for (Token t : random_prompt(9, 5)) turn.push_back(t);
    auto hit = run_parts(*generator, turn, answer(10));
    auto cold = run_parts(*open_generator(*empty, model, coding_of(0)), turn, answer(10));
    EXPECT_EQ(hit.reused_tokens, 69u) << hit.reason;
    EXPECT_EQ(hit.tokens, cold.tokens);
    EXPECT_EQ(hit.logits, cold.logits);
  }
}

// Ends in the prompt that can't be: refused before anything is computed.
TEST(EngineParts, EndsAreAscendingAndInThePrompt) {
  auto cache = open_cache(small_options());
  auto generator = open_generator(*cache, plain_model(), coding_of(4));
  auto options = answer(1);
  const std::vector<uint32_t> many(kMaxNamedEnds + 1, 3);
  for (const auto& ends : {std::vector<uint32_t>{0}, {31}, {5, 5}, {9, 5}, many}) {
    options.ends = ends;
    auto result = generator->generate(random_prompt(30, 1), options);
    EXPECT_EQ(result.status().code(), StatusCode::invalid_argument);
  }
  options.ends = {30};
  EXPECT_TRUE(generator->generate(random_prompt(30, 1), options).ok());
}

// An entry holds coded the rows that a shorter one, which leaves it early, has exact at its end:
// the shorter one keeps its own.
TEST(EngineParts, APromptThatLeavesAnotherEarlyHitsItself) {
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(shape.name);
    auto cache = open_cache(small_options());
    auto generator = open_generator(*cache, model_of(shape.layers), coding_of(4));
    auto longer = random_prompt(60, 8);
    run_parts(*generator, longer, answer(3));
    for (size_t shared : {3u, 10u, 15u}) {  // less than a block
      std::vector<Token> prompt(longer.begin(), longer.begin() + static_cast<ptrdiff_t>(shared));
      prompt.push_back((longer[shared] + 1) % SyntheticNetwork::kVocab);
      for (Token t : random_prompt(5, static_cast<uint32_t>(shared))) prompt.push_back(t);
      auto first = run_parts(*generator, prompt, answer(5));
      auto again = run_parts(*generator, prompt, answer(5));
      EXPECT_EQ(first.cache_error, "");
      EXPECT_EQ(again.reused_tokens, prompt.size() - 1);
      EXPECT_EQ(again.logits, first.logits) << shared;
    }
  }
}

// How much of a prompt's blocks the prompts before it have.
uint32_t shared_blocks(const std::vector<std::vector<Token>>& prompts, size_t index) {
  size_t most = 0;
  for (size_t i = 0; i < index; ++i) {
    const auto &a = prompts[i], &b = prompts[index];
    const size_t both = std::min(a.size(), b.size());
    const auto end = std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(both), b.begin());
    most = std::max<size_t>(most, end.first - a.begin());
  }
  return static_cast<uint32_t>(most) / kPartsBlock * kPartsBlock;
}

// Turns of a conversation and a branch of it go on from what earlier ones stored; asked again, each
// gives the tokens of its first time, but for blocks that it had to compute anew for want of a
// state: the stored ones stay.
TEST(EngineParts, ConversationsAndBranchesHitThemselves) {
  for (const Shape& shape : shapes()) {
    for (uint8_t bits : {uint8_t{0}, uint8_t{4}}) {
      SCOPED_TRACE(std::string(shape.name) + " bits " + std::to_string(bits));
      ModelSpec model = model_of(shape.layers);
      auto cache = open_cache(small_options());
      auto generator = open_generator(*cache, model, coding_of(bits));
      std::vector<std::vector<Token>> prompts;
      auto turn = random_prompt(27, 8);
      for (int i = 0; i < 4; ++i) {
        prompts.push_back(turn);
        auto branch = turn;
        branch.back() = (branch.back() + 1) % SyntheticNetwork::kVocab;
        prompts.push_back(branch);
        for (Token t : random_prompt(5 + 9 * i, i)) turn.push_back(t);
      }
      for (size_t i = 0; i < prompts.size(); ++i) {
        const auto& prompt = prompts[i];
        auto first = run_parts(*generator, prompt, answer(9));
        auto again = run_parts(*generator, prompt, answer(9));
        EXPECT_EQ(again.reused_tokens, prompt.size() - 1);
        const bool anew = first.reused_tokens < shared_blocks(prompts, i);
        EXPECT_TRUE(!anew || shape.name != std::string("full"));
        if (anew) continue;
        EXPECT_EQ(again.tokens, first.tokens) << prompt.size();
        EXPECT_EQ(again.logits, first.logits) << prompt.size();
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

std::vector<std::vector<uint8_t>> copied_bytes(const Prefix& prefix) {
  std::vector<std::vector<uint8_t>> out;
  auto copy = [&](const Bytes& bytes) {
    out.emplace_back(bytes.span().begin(), bytes.span().end());
  };
  for (const FetchedObject& f : prefix.objects) {
    for (const Plane& p : f.object->planes) copy(p.bytes);
    for (const StateBlob& s : f.object->states) copy(s.bytes);
  }
  return out;
}

// Sequences that took a part of a stored one over and went on with other tokens, beyond its end.
TEST(EngineParts, ATrimmedCopyThatGrowsLeavesTheStoredBytes) {
  for (const Shape& shape : shapes()) {
    for (uint8_t bits : {uint8_t{0}, uint8_t{4}}) {
      SCOPED_TRACE(std::string(shape.name) + " bits " + std::to_string(bits));
      ModelSpec model = model_of(shape.layers);
      auto cache = open_cache(small_options());
      SyntheticNetwork network(model);
      auto stored = StoredPrompts::open(network, *cache, coding_of(bits), soon());
      ASSERT_TRUE(stored.ok()) << stored.status().to_string();
      auto tokens = random_prompt(70, 4);
      store_run(*stored, network, tokens, 0, Durability::accepted);
      FetchRequest whole;
      whole.model = stored->opened().model;
      whole.query.tokens = plus_one(tokens);
      auto kept = cache->fetch(whole, soon());
      ASSERT_TRUE(kept.ok());
      ASSERT_EQ(kept->tokens, tokens.size());
      auto before = copied_bytes(kept->lease.prefix());
      for (uint32_t n : {64u, 69u, 70u}) {
        std::vector<Token> query(tokens.begin(), tokens.begin() + n);
        KvCache copy = stored->new_cache(0);
        auto hit = stored->fetch(plus_one(query), network, 1, copy, soon());
        ASSERT_TRUE(hit.ok()) << hit.status().to_string();
        EXPECT_TRUE(n < 70 || hit->tokens == 70) << hit->tokens;
        for (Token t : random_prompt(100 - copy.tokens(), 9)) {
          ASSERT_TRUE(network.step(t, copy, {}).ok());
        }
        EXPECT_EQ(copied_bytes(kept->lease.prefix()), before) << "copy of " << hit->tokens;
      }
      auto again = cache->fetch(whole, soon());
      ASSERT_TRUE(again.ok());
      EXPECT_EQ(copied_bytes(again->lease.prefix()), before);
    }
  }
}

TEST(EngineParts, CodedPrefillIsAFunctionOfTheTokensAlone) {
  std::mt19937 rng(20);
  for (const Shape& shape : shapes()) {
    ModelSpec model = model_of(shape.layers);
    CodingOptions coding = coding_of(4, PrefillMode::coded);
    auto prompt = random_prompt(150, 7);
    auto whole_cache = open_cache(small_options());
    auto whole = open_generator(*whole_cache, model, coding);
    auto cold = run_parts(*whole, prompt, answer(24));
    auto all = prompt;
    all.insert(all.end(), cold.tokens.begin(), cold.tokens.end());
    auto expected = stored_rows(*whole_cache, whole->opened(), all);
    for (int round = 0; round < 20; ++round) {
      size_t cut = 1 + rng() % (prompt.size() + 10);
      SCOPED_TRACE(std::string(shape.name) + " cut at " + std::to_string(cut));
      auto cache = open_cache(small_options());
      auto generator = open_generator(*cache, model, coding);
      auto first = prompt;
      first.resize(cut, 5);
      run_parts(*generator, first, answer(24));
      auto hit = run_parts(*generator, prompt, answer(24));
      EXPECT_EQ(hit.reused_tokens % kPartsBlock, 0u);
      if (std::string(shape.name) == "full") {
        EXPECT_EQ(hit.reused_tokens, std::min(cut, prompt.size() - 1) / kPartsBlock * kPartsBlock);
      }
      EXPECT_EQ(hit.tokens, cold.tokens);
      EXPECT_EQ(hit.logits, cold.logits);
      EXPECT_EQ(hit.prompt_objects, cold.prompt_objects);
      expect_equal_bytes(model, expected, stored_rows(*cache, generator->opened(), all));
      if (testing::Test::HasFailure()) return;
    }
  }
}

// A second turn goes on from the block that the first one's answer completed.
TEST(EngineParts, CodedPrefillRecomputesBlocksOfGeneratedTokens) {
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(shape.name);
    ModelSpec model = model_of(shape.layers);
    CodingOptions coding = coding_of(4, PrefillMode::coded);
    auto cache = open_cache(small_options());
    auto generator = open_generator(*cache, model, coding);
    auto turn = random_prompt(40, 5);
    auto first = run_parts(*generator, turn, answer(30));
    turn.insert(turn.end(), first.tokens.begin(), first.tokens.end());
    for (Token t : random_prompt(9, 6)) turn.push_back(t);
    auto second = run_parts(*generator, turn, answer(12));
    EXPECT_EQ(second.reused_tokens, 64u);  // 69 were computed, 32 of them before the answer
    auto empty = open_cache(small_options());
    auto other = open_generator(*empty, model, coding);
    auto cold = run_parts(*other, turn, answer(12));
    EXPECT_EQ(cold.reused_tokens, 0u);
    EXPECT_EQ(second.tokens, cold.tokens);
    EXPECT_EQ(second.logits, cold.logits);
    expect_equal_bytes(model, stored_rows(*cache, generator->opened(), turn),
                       stored_rows(*empty, other->opened(), turn));
    if (testing::Test::HasFailure()) return;
  }
}

TEST(EngineParts, AnotherPrefillModeThanInForceIsRefusedByName) {
  auto cache = open_cache(small_options());
  ModelSpec model = plain_model();
  open_generator(*cache, model, coding_of(4, PrefillMode::coded));
  auto other =
      Generator::open(std::make_unique<SyntheticNetwork>(model), *cache, coding_of(4), soon());
  EXPECT_EQ(other.status().code(), StatusCode::unsupported);
  EXPECT_THAT(other.status().message(), ::testing::HasSubstr("prefill = coded"));
}

// This network has no tokenizer: whoever calibrates it fails.
TEST(EngineParts, OnlyANewModelIsCalibrated) {
  for (PrefillMode mode : {PrefillMode::exact, PrefillMode::coded}) {
    auto cache = open_cache(small_options());
    SyntheticNetwork network(plain_model());
    CodingOptions calibrated = coding_of(4, mode);
    calibrated.calibrate = true;
    auto code = [&](const CodingOptions& coding) {
      return StoredPrompts::open(network, *cache, coding, soon()).status().code();
    };
    EXPECT_EQ(code(calibrated), StatusCode::unsupported);
    auto first = StoredPrompts::open(network, *cache, coding_of(2, mode), soon());
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(first->opened().profile->requested_k_bits, 2) << "nothing was put in force before";
    auto known = StoredPrompts::open(network, *cache, calibrated, soon());
    ASSERT_TRUE(known.ok()) << known.status().to_string();
    EXPECT_EQ(known->opened().realm, first->opened().realm);
    calibrated.replace = true;
    EXPECT_EQ(code(calibrated), StatusCode::unsupported);
  }
}

// A conversation of a hybrid resumes from where its last answer ended, another one that shares a
// part of it from the longest checkpoint.
TEST(EngineParts, HybridsResumeFromTheLongestCheckpoint) {
  ModelSpec model =
      model_of({LayerSpec{{float_state(SnapshotPlace::checkpoint)}}, LayerSpec{{full_part()}}});
  for (uint32_t interval : {0u, 30u}) {
    auto cache = open_cache(small_options());
    auto generator = open_generator(*cache, model, coding_of(4));
    auto options = answer(10);
    options.checkpoint_interval = interval;
    auto turn = random_prompt(100, 1);
    auto first = run_parts(*generator, turn, options);
    auto branch = turn;
    branch[75] = (branch[75] + 1) % 64;
    auto other = run_parts(*generator, branch, options);
    EXPECT_EQ(other.reused_tokens, interval == 0 ? 0u : 60u);
    // Where the second prompt left the first one it kept a checkpoint for a third.
    auto third = turn;
    third[70] = (third[70] + 1) % 64;
    EXPECT_EQ(run_parts(*generator, third, options).reused_tokens, 64u);
    turn.insert(turn.end(), first.tokens.begin(), first.tokens.end());
    turn.push_back(3);
    EXPECT_EQ(run_parts(*generator, turn, options).reused_tokens, 109u);
    // With coded prefill checkpoints lie at block ends.
    auto coded_cache = open_cache(small_options());
    auto coded = open_generator(*coded_cache, model, coding_of(4, PrefillMode::coded));
    run_parts(*coded, turn, options);
    EXPECT_EQ(run_parts(*coded, branch, options).reused_tokens, interval == 0 ? 0u : 64u);
  }
}

// A carry or snapshot of another position, rows of other tokens: a miss, and nothing is kept.
TEST(EngineParts, WhatDoesNotFitIsRefused) {
  ModelSpec model = model_of({LayerSpec{{full_part(), float_state(SnapshotPlace::checkpoint)}},
                              LayerSpec{{window_part(10, 2), pooled_part(8, true)}}});
  SyntheticNetwork network(model);
  auto cache = open_cache(small_options());
  auto stored = StoredPrompts::open(network, *cache, coding_of(4), soon());
  ASSERT_TRUE(stored.ok());
  auto tokens = random_prompt(45, 2);
  store_run(*stored, network, tokens, 0, Durability::accepted);
  tokens.push_back(1);
  FetchRequest request;
  request.model = stored->opened().model;
  request.query.tokens = tokens;
  auto reply = cache->fetch(request, soon());
  ASSERT_TRUE(reply.ok());
  ASSERT_EQ(reply->tokens, 45u);
  const Prefix good = reply->lease.prefix();
  auto restore = [&](const std::function<void(Prefix&)>& change, std::span<const Token> query) {
    Prefix prefix = good;
    change(prefix);
    KvCache taken = stored->new_cache(0);
    Status status = taken.restore(Lease(std::move(prefix), nullptr), query);
    EXPECT_EQ(taken.tokens(), status.ok() ? 45u : 0u);
    return status.code();
  };
  EXPECT_EQ(restore([](Prefix&) {}, tokens), StatusCode::ok);
  for (size_t i = 0; i < good.objects.size(); ++i) {
    auto without = [&](Prefix& p) { p.objects.erase(p.objects.begin() + static_cast<long>(i)); };
    EXPECT_NE(restore(without, tokens), StatusCode::ok) << "object " << i;
    auto clipped = [&](Prefix& p) {
      p.objects[i].end_token = std::min(p.objects[i].end_token, 44u);
    };
    if (good.objects[i].end_token == 45) {
      EXPECT_NE(restore(clipped, tokens), StatusCode::ok) << "object " << i;
    }
  }
  auto shifted = [&](ObjectKind kind) {
    return [kind](Prefix& p) {
      for (FetchedObject& f : p.objects) {
        if (f.object->name.kind != kind || f.object->states.empty()) continue;
        Object o = *f.object;
        if (kind == ObjectKind::snapshot)
          o.tokens.pop_back();
        else
          o.name.first_row = o.name.end_row = 44;
        f.object = std::make_shared<const Object>(std::move(o));
      }
    };
  };
  EXPECT_EQ(restore(shifted(ObjectKind::snapshot), tokens), StatusCode::not_found);
  EXPECT_EQ(restore(shifted(ObjectKind::supplement), tokens), StatusCode::not_found);
  auto wrong = tokens;
  wrong[20] = (wrong[20] + 1) % 64;
  EXPECT_EQ(restore([](Prefix&) {}, wrong), StatusCode::corruption);
  KvCache taken = stored->new_cache(0);
  ASSERT_TRUE(taken.restore(Lease(good, nullptr), tokens).ok());
  taken.state(0, 1).pop_back();
  EXPECT_EQ(network.check(taken).code(), StatusCode::invalid_argument);
}

}  // namespace
}  // namespace kv
