// Tokens that each kind of cache gives back, and their bytes: the real engine over the real cache,
// in RAM, 4 bits, blocks of 256 tokens, with a network whose rows and states are zeros of the right
// sizes.
//
// 1. A conversation of 4,096 tokens in 8 turns (384 tokens of prompt, 128 of answer; each turn is
//    committed twice, before the prompt's last token and at the answer's end): how many lengths are
//    served then, beside "exact or nothing", each of the 16 commits as a whole cache of its own in
//    fp16.
// 2. A system prompt of 1,500 tokens and ten questions of 60, each with an answer of 100 tokens:
// what
//    the second, third and tenth reuse, and the bytes of all of it, with no ends but the entries'
//    own, with ends by price (the default), and with the end of the system prompt named.
// Prints two Markdown tables.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "cachesvc/tiered_cache.h"
#include "engine/generator.h"
#include "proto/demand.h"

namespace kv {
namespace {

constexpr uint32_t kTurns = 8, kTurn = 512, kAnswer = 128, kTokens = kTurns * kTurn;
constexpr uint32_t kSystem = 1500, kQuestion = 60, kReply = 100, kQuestions = 10;

Deadline soon() { return deadline_in(std::chrono::seconds(60)); }

PartSpec rows(PartKind kind, uint32_t heads, uint32_t k_dim, uint32_t v_dim) {
  PartSpec p;
  p.kind = kind;
  p.heads = heads;
  p.k_dim = k_dim;
  p.v_dim = v_dim;
  return p;
}
PartSpec window(PartSpec p, uint32_t size, uint32_t keep = 0) {
  p.kind = PartKind::window;
  p.window = size;
  p.keep = keep;
  return p;
}
PartSpec chunk(PartSpec p, uint32_t size) {
  p.kind = PartKind::chunk;
  p.chunk = size;
  return p;
}
PartSpec pooled(uint32_t dim, uint32_t rate, bool overlap) {
  PartSpec p = rows(PartKind::pooled, 1, dim, 0);
  p.rate = rate;
  p.overlap = overlap;
  return p;
}

struct Kind {
  std::string name;
  std::vector<LayerSpec> layers;
  uint64_t state_bytes = 0;  // of one state part
};

std::vector<Kind> kinds() {
  std::vector<Kind> out;
  auto repeat = [](size_t n, auto layer) {
    std::vector<LayerSpec> layers;
    for (size_t i = 0; i < n; ++i) layers.push_back(LayerSpec{layer(i)});
    return layers;
  };
  using Parts = std::vector<PartSpec>;
  PartSpec small = rows(PartKind::full, 3, 64, 64), gemma = rows(PartKind::full, 1, 256, 256);
  PartSpec llama = rows(PartKind::full, 8, 128, 128);
  out.push_back({"full (SmolLM2-135M)", repeat(30, [&](size_t) { return Parts{small}; })});
  out.push_back({"window 512 + full (Gemma-3-270M)", repeat(18, [&](size_t i) {
                   return Parts{i % 6 == 5 ? gemma : window(gemma, 512)};
                 })});
  out.push_back({"window 1,020 with 4 sinks (SmolLM2's shape)",
                 repeat(30, [&](size_t) { return Parts{window(small, 1020, 4)}; })});
  out.push_back({"chunk 1,024 + full (8 heads of 128, 16 layers)", repeat(16, [&](size_t i) {
                   return Parts{i % 4 == 3 ? llama : chunk(llama, 1024)};
                 })});
  out.push_back({"latent (DeepSeek-V3)",
                 repeat(61, [&](size_t) { return Parts{rows(PartKind::latent, 1, 576, 0)}; })});
  out.push_back({"window 128 + pooled 128 and 4 (DeepSeek-V4)", repeat(43, [&](size_t i) {
                   Parts parts{window(rows(PartKind::full, 1, 512, 0), 128)};
                   if (i >= 2 && i % 2 == 0) parts.push_back(pooled(512, 128, false));
                   if (i >= 2 && i % 2 == 1) {
                     parts.push_back(pooled(512, 4, true));
                     parts.push_back(pooled(128, 4, true));
                   }
                   return parts;
                 })});
  Kind hybrid{"state + full (12 states of 256 KiB, 4 x 2 heads of 128)",
              repeat(16,
                     [&](size_t i) {
                       PartSpec state;
                       state.kind = PartKind::state;
                       state.dtype = DType::f32;
                       return Parts{i % 4 == 3 ? rows(PartKind::full, 2, 128, 128) : state};
                     }),
              256u << 10};
  out.push_back(hybrid);
  return out;
}

// What an engine exports for a carry at n: models with a compressor, in fp16.
uint64_t carry_bytes(const PartSpec& p, uint32_t n) {
  uint64_t inputs = (p.overlap ? 4 : 2) * uint64_t{n % p.rate} * p.k_dim;
  uint64_t previous = p.overlap && n >= p.rate ? 2ull * p.rate * p.k_dim : 0;
  return 2 * (inputs + previous);
}

class Zeros : public Network {
 public:
  Zeros(ModelSpec spec, uint64_t state_bytes) : spec_(std::move(spec)), state_bytes_(state_bytes) {}
  const ModelSpec& spec() const override { return spec_; }
  uint32_t vocab() const override { return 1u << 20; }
  uint32_t context() const override { return kMaxTokens; }

  Status step(Token token, KvCache& cache, std::span<float> logits) override {
    if (!logits.empty()) std::fill(logits.begin(), logits.end(), 0.0f);
    return stretch({&token, 1}, cache);
  }
  Status prefill(std::span<const Token> tokens, KvCache& cache, Deadline) override {
    while (cache.tokens() < tokens.size()) {
      const auto end =
          std::min<size_t>({tokens.size(), cache.advance_limit(), cache.tokens() + 256});
      KV_RETURN_IF_ERROR(stretch(tokens.subspan(cache.tokens(), end - cache.tokens()), cache));
    }
    return {};
  }

 private:
  Status stretch(std::span<const Token> tokens, KvCache& cache) {
    const uint32_t end = cache.tokens() + static_cast<uint32_t>(tokens.size());
    for (uint32_t l = 0; l < spec_.layers.size(); ++l) {
      for (uint32_t p = 0; p < spec_.layers[l].parts.size(); ++p) {
        KV_RETURN_IF_ERROR(part(l, p, cache, end));
      }
      KV_RETURN_IF_ERROR(cache.seal(l));
    }
    cache.advance(tokens);
    return {};
  }
  Status part(uint32_t l, uint32_t p, KvCache& cache, uint32_t end) {
    const PartSpec& spec = spec_.layers[l].parts[p];
    const bool pooled = spec.kind == PartKind::pooled;
    if (!spec.has_rows()) cache.state(l, p).assign(state_bytes_, 0);
    if (pooled) cache.state(l, p).assign(demands_carry(spec, end) ? carry_bytes(spec, end) : 0, 0);
    if (!spec.has_rows()) return {};
    const uint32_t rate = pooled ? spec.rate : 1, rows = end / rate - cache.tokens() / rate;
    const size_t width = size_t{spec.heads} * std::max(spec.k_dim, spec.v_dim);
    zeros_.resize(std::max(zeros_.size(), rows * width));
    if (spec.v_dim > 0) return cache.append(l, p, rows, zeros_.data(), zeros_.data());
    return rows == 0 ? Status() : cache.append_rows(l, p, rows, zeros_.data());
  }

  const ModelSpec spec_;
  const uint64_t state_bytes_;
  std::vector<float> zeros_;
};

// A whole cache of n tokens in fp16.
uint64_t whole_bytes(const ModelSpec& model, const Kind& kind, uint32_t n) {
  uint64_t bytes = 0;
  for (const LayerSpec& layer : model.layers) {
    for (const PartSpec& p : layer.parts) {
      for (const RowRange& r : demanded_rows(p, n)) {
        for (const SideSpec& s : sides_of(p)) {
          bytes += uint64_t{r.end - r.first} * s.heads * s.dim * 2;
        }
      }
      if (demands_carry(p, n)) bytes += carry_bytes(p, n);
      if (demands_snapshot(p, n)) bytes += kind.state_bytes;
    }
  }
  return bytes;
}

struct Way {
  const char* name;
  uint32_t block_end_interval, checkpoint_interval;
  bool named;
};
constexpr Way kWays[] = {{"entries' own ends", 0, 0, false},
                         {"by price", kEndsByPrice, kCheckpointsByPrice, false},
                         {"named", 0, 0, true}};

// The engine in front of a cache.
struct Bench {
  std::unique_ptr<TieredCache> cache;
  std::unique_ptr<Generator> generator;
  GenerateOptions options;

  static Result<Bench> open(const ModelSpec& model, const Kind& kind, const Way& way) {
    CacheOptions cache;
    cache.ram_budget_bytes = 4ull << 30;
    cache.block_end_interval = way.block_end_interval;
    Bench b;
    KV_ASSIGN_OR_RETURN(b.cache, TieredCache::create(cache, "table"));
    CodingOptions coding;
    coding.calibrate = false;
    auto network = std::make_unique<Zeros>(model, kind.state_bytes);
    KV_ASSIGN_OR_RETURN(b.generator, Generator::open(std::move(network), *b.cache, coding, soon()));
    b.options.checkpoint_interval = way.checkpoint_interval;
    b.options.cache_waits.least = std::chrono::minutes(1);
    b.options.stop_at_eos = false;
    return b;
  }
  Result<uint32_t> ask(const std::vector<Token>& prompt, uint32_t answer) {
    options.max_new_tokens = answer;
    KV_ASSIGN_OR_RETURN(auto result, generator->generate(prompt, options));
    if (!result.cache_error.empty()) return Status(StatusCode::internal, result.cache_error);
    return result.reused_tokens;
  }
  Result<double> mebibytes() {
    KV_ASSIGN_OR_RETURN(StatsReply stats, cache->stats(soon()));
    for (const auto& [name, value] : stats.values) {
      if (name == "ram_stored_bytes") return static_cast<double>(value) / (1 << 20);
    }
    return 0.0;
  }
};

// 1. Lengths served of a conversation.
Status conversation(const ModelSpec& model, const Kind& kind, const Way& way) {
  KV_ASSIGN_OR_RETURN(Bench b, Bench::open(model, kind, way));
  std::vector<Token> tokens;
  double whole = 0;
  for (uint32_t turn = 1; turn <= kTurns; ++turn) {
    for (uint32_t i = 0; i < kTurn - kAnswer; ++i) tokens.push_back(static_cast<Token>(1 + i));
    KV_RETURN_IF_ERROR(b.ask(tokens, kAnswer + 1).status());
    tokens.resize(turn * kTurn, 0);  // the answer
    for (uint32_t n : {turn * kTurn - kAnswer - 1, turn * kTurn}) {
      whole += static_cast<double>(whole_bytes(model, kind, n)) / (1 << 20);
    }
  }
  uint32_t lengths = 0;
  for (uint32_t n = 1; n <= kTokens; ++n) {
    Query query{{tokens.begin(), tokens.begin() + n}, {}};
    query.tokens.push_back(-1);
    KV_ASSIGN_OR_RETURN(LookupReply reply,
                        b.cache->lookup({b.generator->opened().model, query}, soon()));
    lengths += reply.tokens == n;
  }
  KV_ASSIGN_OR_RETURN(double stored, b.mebibytes());
  std::printf("| %s | %s | %u | %.1f | %u: %.0f |\n", kind.name.c_str(), way.name, lengths, stored,
              2 * kTurns, whole);
  return {};
}

// 2. Questions on one system prompt.
Status questions(const ModelSpec& model, const Kind& kind, const Way& way) {
  KV_ASSIGN_OR_RETURN(Bench b, Bench::open(model, kind, way));
  if (way.named) b.options.ends = {kSystem};
  std::vector<uint32_t> reused;
  double first = 0;
  for (uint32_t q = 1; q <= kQuestions; ++q) {
    std::vector<Token> prompt;
    for (uint32_t i = 0; i < kSystem; ++i) prompt.push_back(static_cast<Token>(1 + i));
    for (uint32_t i = 0; i < kQuestion; ++i) prompt.push_back(static_cast<Token>(10'000 * q + i));
    KV_ASSIGN_OR_RETURN(uint32_t n, b.ask(prompt, kReply));
    reused.push_back(n);
    if (q > 1) continue;
    KV_ASSIGN_OR_RETURN(first, b.mebibytes());
  }
  KV_ASSIGN_OR_RETURN(double all, b.mebibytes());
  std::printf("| %s | %s | %u | %u | %u | %.1f | %.1f |\n", kind.name.c_str(), way.name, reused[1],
              reused[2], reused[9], first, all);
  return {};
}

int run() {
  for (bool asks : {true, false}) {
    std::puts(asks ? "| model | ends | second reuses | third | tenth | MiB after the first | after "
                     "ten |\n|---|---|---|---|---|---|---|"
                   : "\n| model | ends | lengths served | MiB | exact or nothing: lengths: MiB |\n"
                     "|---|---|---|---|---|");
    for (const Kind& kind : kinds()) {
      ModelSpec model;
      model.name = kind.name;
      model.fingerprint.bytes[0] = 1;
      model.layers = kind.layers;
      for (const Way& way : kWays) {
        if (!asks && way.named) continue;
        Status done = asks ? questions(model, kind, way) : conversation(model, kind, way);
        if (!done.ok()) {
          std::fprintf(stderr, "kinds_table: %s: %s\n", kind.name.c_str(),
                       done.to_string().c_str());
          return 1;
        }
        std::fflush(stdout);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace kv

int main() { return kv::run(); }
