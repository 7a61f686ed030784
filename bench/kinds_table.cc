// Which lengths of a conversation can be restored, and what that costs, for every kind of model.
//
// A conversation of 4,096 tokens in 8 turns (384 tokens of prompt, 128 of answer; each turn is
// committed twice, before the prompt's last token and at the answer's end) is stored in the real
// cache, in RAM, 4 bits, blocks of 256 tokens; then every length is looked up. Beside it "exact or
// nothing": each of the 16 commits as a whole cache of its own in fp16, served at its own length.
// Prints a Markdown table. Bytes are those of planes and states; values are zeros.
#include <cstdio>
#include <string>
#include <vector>

#include "cachesvc/tiered_cache.h"
#include "index/restorable.h"

namespace kv {
namespace {

constexpr uint32_t kTurns = 8, kTurn = 512, kAnswer = 128, kTokens = kTurns * kTurn;

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

Bytes zeros(uint64_t n) { return Bytes::owning(std::vector<uint8_t>(n)); }

PutRequest make_put(const ModelSpec& model, const Kind& kind, uint32_t block, const Need& need,
                    uint64_t reservation) {
  PutRequest put;
  put.reservation = reservation;
  Object& o = put.object;
  o.name.kind = need.kind;
  o.first_token = need.block_index * block;
  auto groups = part_groups(model);
  auto add_rows = [&](PartGroup::Member m, const PartSpec& spec, uint32_t first, uint32_t end) {
    for (const SideSpec& side : sides_of(spec)) {
      Plane p{m.layer, m.part, side.side, DType::f16, 0, side.heads, side.dim, first, {}, {}};
      p.runs = {{RunForm::exact, end - first}};
      p.bytes = zeros(plane_bytes(p));
      o.planes.push_back(std::move(p));
    }
  };
  if (need.kind == ObjectKind::supplement) {
    o.name.group = need.group;
    o.name.first_row = need.first_row;
    o.name.end_row = need.end_row;
  } else if (need.kind == ObjectKind::snapshot) {
    o.name.end_row = need.end_row;
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    const PartSpec& spec = groups[g].spec;
    for (auto m : groups[g].members) {
      if (need.kind == ObjectKind::supplement) {
        if (g != need.group) continue;
        if (need.first_row < need.end_row) {
          add_rows(m, spec, need.first_row, need.end_row);
        } else {
          o.states.push_back({m.layer, m.part, zeros(carry_bytes(spec, need.end_row))});
        }
      } else if (need.kind == ObjectKind::snapshot) {
        if (!spec.has_rows()) o.states.push_back({m.layer, m.part, zeros(kind.state_bytes)});
      } else if (spec.has_rows() && spec.rows_in_block()) {
        uint32_t rate = spec.kind == PartKind::pooled ? spec.rate : 1;
        uint32_t first = need.first_row / rate, end = need.end_row / rate;
        if (first < end) add_rows(m, spec, first, end);
      }
    }
  }
  return put;
}

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

struct Measured {
  uint32_t lengths = 0;
  uint64_t bytes = 0;
};

Result<Measured> measure(const ModelSpec& model, const Kind& kind, uint32_t interval,
                         const std::vector<uint32_t>& ends) {
  CacheOptions options;
  options.ram_budget_bytes = 3ull << 30;
  options.block_end_interval = interval;
  KV_ASSIGN_OR_RETURN(auto cache, TieredCache::create(options, "table"));
  OpenRequest open;
  open.model = model;
  KV_ASSIGN_OR_RETURN(OpenReply opened, cache->open(open, soon()));
  std::vector<Token> tokens(kTokens);
  for (uint32_t i = 0; i < kTokens; ++i) tokens[i] = static_cast<Token>(i);
  for (uint32_t n : ends) {
    Query query{{tokens.begin(), tokens.begin() + n}, {}};
    KV_ASSIGN_OR_RETURN(ReserveReply r,
                        cache->reserve({opened.model, opened.realm.profile, query}, soon()));
    for (const Need& need : r.needs) {
      auto put = make_put(model, kind, opened.profile->block_tokens, need, r.reservation);
      KV_RETURN_IF_ERROR(cache->put(std::move(put), soon()));
    }
    KV_ASSIGN_OR_RETURN(CommitReply done,
                        cache->commit(r.reservation, Durability::accepted, soon()));
    (void)done;
  }
  Measured out;
  for (uint32_t n = 1; n <= kTokens; ++n) {
    Query query{{tokens.begin(), tokens.begin() + n}, {}};
    query.tokens.push_back(-1);
    KV_ASSIGN_OR_RETURN(LookupReply reply, cache->lookup({opened.model, query}, soon()));
    out.lengths += reply.tokens == n;
  }
  KV_ASSIGN_OR_RETURN(StatsReply stats, cache->stats(soon()));
  for (const auto& [name, value] : stats.values) {
    if (name == "ram_stored_bytes") out.bytes = value;
  }
  return out;
}

int run() {
  std::vector<uint32_t> ends;
  for (uint32_t turn = 1; turn <= kTurns; ++turn) {
    ends.push_back(turn * kTurn - kAnswer - 1);
    ends.push_back(turn * kTurn);
  }
  std::puts("| model | block ends kept | restorable lengths | MiB | exact or nothing | MiB |");
  std::puts("|---|---|---|---|---|---|");
  for (const Kind& kind : kinds()) {
    ModelSpec model;
    model.name = kind.name;
    model.fingerprint.bytes[0] = 1;
    model.layers = kind.layers;
    uint64_t whole = 0;
    for (uint32_t n : ends) whole += whole_bytes(model, kind, n);
    for (uint32_t interval : {0u, 4u, 1u}) {
      auto measured = measure(model, kind, interval, ends);
      if (!measured.ok()) {
        std::fprintf(stderr, "kinds_table: %s: %s\n", kind.name.c_str(),
                     measured.status().to_string().c_str());
        return 1;
      }
      std::string kept = interval == 0   ? "its own ends"
                         : interval == 1 ? "all"
                                         : "every " + std::to_string(interval);
      std::printf("| %s | %s | %u (%.1f %%) | %.1f | %zu (%.1f %%) | %.1f |\n", kind.name.c_str(),
                  kept.c_str(), measured->lengths, 100.0 * measured->lengths / kTokens,
                  static_cast<double>(measured->bytes) / (1 << 20), ends.size(),
                  100.0 * static_cast<double>(ends.size()) / kTokens,
                  static_cast<double>(whole) / (1 << 20));
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace kv

int main() { return kv::run(); }
