// index: a lookup of 32K tokens against one XXH3-128 pass over the same tokens, the rule's cost for
// it, and the cost of looking up, inserting and evicting at 10^3 and 10^6 blocks.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>

#include "index/eviction.h"
#include "index/prefix_tree.h"
#include "index/restorable.h"
#include "proto/checksum.h"

namespace kv {
namespace {

constexpr uint32_t kBlock = 256;
constexpr uint32_t kSequenceTokens = 32768;
constexpr uint32_t kSharedTokens = 2048;  // a system prompt that all sequences begin with
constexpr uint32_t kSequences = 1000;

struct Store {
  PrefixTree tree{kBlock};
  std::vector<std::vector<Token>> queries;

  Store() {
    std::mt19937_64 rng(1);
    std::vector<Token> tokens(kSequenceTokens);
    for (Token& t : tokens) t = static_cast<Token>(rng() % 128000);
    for (uint32_t s = 0; s < kSequences; ++s) {
      for (uint32_t i = kSharedTokens; i < kSequenceTokens; ++i) {
        tokens[i] = static_cast<Token>(rng() % 128000);
      }
      NodeId node = kRootNode;
      for (uint32_t first = 0; first < kSequenceTokens; first += kBlock) {
        node = tree.find_or_insert(node, std::span(tokens).subspan(first, kBlock), {})->node;
      }
      queries.push_back(tokens);
    }
  }
};
const Store& store() {
  static const Store s;
  return s;
}

/// `queries` of them in turn: 1 keeps tree and query in the cache, 1,000 come from memory.
void lookup_32k(benchmark::State& state) {
  const Store& s = store();
  size_t i = 0;
  for (auto _ : state) {
    auto match = s.tree.match(s.queries[i++ % static_cast<size_t>(state.range(0))], {});
    if (match->common != kSequenceTokens) state.SkipWithError("not a full match");
    benchmark::DoNotOptimize(match);
  }
  state.SetItemsProcessed(state.iterations() * kSequenceTokens);
}
BENCHMARK(lookup_32k)->Arg(1)->Arg(1000)->Unit(benchmark::kMicrosecond);

void xxh3_128_32k(benchmark::State& state) {
  const Store& s = store();
  size_t i = 0;
  for (auto _ : state) {
    const auto& q = s.queries[i++ % static_cast<size_t>(state.range(0))];
    auto hash = xxh3_128({reinterpret_cast<const uint8_t*>(q.data()), q.size() * sizeof(Token)});
    benchmark::DoNotOptimize(hash);
  }
  state.SetItemsProcessed(state.iterations() * kSequenceTokens);
}
BENCHMARK(xxh3_128_32k)->Arg(1)->Arg(1000)->Unit(benchmark::kMicrosecond);

/// The least that a look-up reads which takes no hash's word: the query's tokens and the stored
/// ones.
void yard_compare_32k(benchmark::State& state) {
  const Store& s = store();
  static const auto stored = s.queries;
  size_t i = 0;
  for (auto _ : state) {
    const size_t at = i++ % static_cast<size_t>(state.range(0));
    bool equal = std::equal(stored[at].begin(), stored[at].end(), s.queries[at].begin());
    if (!equal) state.SkipWithError("differs");
    benchmark::DoNotOptimize(equal);
  }
  state.SetItemsProcessed(state.iterations() * kSequenceTokens);
}
BENCHMARK(yard_compare_32k)->Arg(1)->Arg(1000)->Unit(benchmark::kMicrosecond);

/// A query of 1,024 tokens, one of all that are stored, in a tree of range(0) blocks of 16 tokens.
/// Look-ups of tokens that have just arrived, in a tree whose nodes lie where they were left.
void lookup_1k(benchmark::State& state) {
  constexpr uint32_t kSmallBlock = 16, kTokens = 1024;
  const auto sequences = static_cast<uint64_t>(state.range(0)) / (kTokens / kSmallBlock);
  std::vector<Token> query(kTokens);
  auto make_query = [&](uint64_t number) {
    std::minstd_rand rng(static_cast<uint32_t>(number + 1));
    for (Token& t : query) t = static_cast<Token>(rng() % 128000);
  };
  PrefixTree tree(kSmallBlock);
  for (uint64_t s = 0; s < sequences; ++s) {
    make_query(s);
    NodeId node = kRootNode;
    for (uint32_t first = 0; first < kTokens; first += kSmallBlock) {
      node = tree.find_or_insert(node, std::span(query).subspan(first, kSmallBlock), {})->node;
    }
  }
  std::mt19937_64 rng(4);
  for (auto _ : state) {
    make_query(rng() % sequences);
    const auto begin = std::chrono::steady_clock::now();
    auto match = tree.match(query, {});
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    state.SetIterationTime(took.count());
    if (match->common != kTokens) state.SkipWithError("not a full match");
    benchmark::DoNotOptimize(match);
  }
  state.counters["blocks"] = static_cast<double>(tree.size());
}
BENCHMARK(lookup_1k)->Arg(1000)->Arg(1000000)->UseManualTime()->Unit(benchmark::kMicrosecond);

/// The rule for a full model over 128 blocks, with the holdings made anew from the path.
void plan_restore_32k(benchmark::State& state) {
  std::vector<PartGroup> groups(1);
  for (auto _ : state) {
    std::vector<Holding> holdings;
    for (uint32_t first = 0; first < kSequenceTokens; first += kBlock) {
      Holding h;
      h.first = first;
      h.end = h.common = h.end_token = first + kBlock;
      holdings.push_back(h);
    }
    RestorableQuery query;
    query.query_tokens = query.common = kSequenceTokens;
    auto plan = plan_restore(groups, query, holdings);
    if (plan.tokens != kSequenceTokens - 1) state.SkipWithError("wrong n");
    benchmark::DoNotOptimize(plan);
  }
}
BENCHMARK(plan_restore_32k)->Unit(benchmark::kMicrosecond);

/// The part groups of a model of range(0) layers with 8 parts each, all of them different.
void part_groups_of(benchmark::State& state) {
  ModelSpec model{"m", Id{{1}}, {}};
  model.layers.resize(static_cast<size_t>(state.range(0)));
  uint32_t number = 0;
  for (auto& layer : model.layers) {
    layer.parts.resize(kMaxPartsPerLayer);
    for (PartSpec& part : layer.parts) part.window = ++number;
  }
  for (auto _ : state) {
    auto groups = part_groups(model);
    if (groups.size() != number) state.SkipWithError("not each part its own group");
    benchmark::DoNotOptimize(groups);
  }
}
BENCHMARK(part_groups_of)->Arg(16)->Arg(kMaxLayers)->Unit(benchmark::kMicrosecond);

/// One block in and one out of a tree of range(0) blocks (16 tokens each, chains of 100).
void tree_insert_erase(benchmark::State& state) {
  const auto blocks = static_cast<uint32_t>(state.range(0));
  constexpr uint32_t kSmallBlock = 16, kChain = 100;
  PrefixTree tree(kSmallBlock);
  std::mt19937_64 rng(2);
  std::vector<Token> tokens(kSmallBlock);
  std::vector<NodeId> ends;
  for (uint32_t i = 0; i < blocks / kChain; ++i) {
    NodeId node = kRootNode;
    for (uint32_t d = 0; d < kChain; ++d) {
      for (Token& t : tokens) t = static_cast<Token>(rng() % 128000);
      node = tree.find_or_insert(node, tokens, {})->node;
    }
    ends.push_back(node);
  }
  for (auto _ : state) {
    tokens[0] = static_cast<Token>(rng() % 128000);
    tree.erase(tree.find_or_insert(ends[rng() % ends.size()], tokens, {})->node);
  }
  state.counters["bytes_per_block"] =
      static_cast<double>(tree.memory_bytes()) / static_cast<double>(tree.size());
}
BENCHMARK(tree_insert_erase)->Arg(1000)->Arg(1000000);

/// One entry in, a path of 16 touched, one victim out, at range(0) entries in chains of 100.
void evict_insert(benchmark::State& state) {
  const auto entries = static_cast<EntryKey>(state.range(0));
  constexpr EntryKey kChain = 100, kPath = 16;
  EvictionOrder order;
  std::mt19937_64 rng(3);
  EntryKey next = 0;
  auto insert = [&] {
    EntryOptions o;
    o.parent = next % kChain == 0 ? kNoEntry : next - 1;
    o.charge_bytes = 1;
    order.insert(next++, o);
  };
  while (next < entries) insert();
  std::vector<EntryKey> path(kPath);
  for (auto _ : state) {
    insert();
    const EntryKey from = next - 1 - rng() % (entries - kPath);
    for (EntryKey i = 0; i < kPath; ++i) path[i] = from - i;
    order.touch_all(path);
    order.erase(order.next_victims(1, false).keys.at(0));
  }
  state.counters["bytes_per_entry"] =
      static_cast<double>(order.memory_bytes()) / static_cast<double>(order.size());
}
BENCHMARK(evict_insert)->Arg(1000)->Arg(1000000);

/// The memory that evict_insert touches at least: the counters of a path's 16 entries, a new entry,
/// a victim and its parent, and a hash table's places of these, at entries of the same size.
void yard_touch(benchmark::State& state) {
  struct alignas(16) Line {
    uint64_t counter = 0, rest[13] = {};
  };
  static_assert(sizeof(Line) == 112);
  const auto entries = static_cast<size_t>(state.range(0));
  constexpr size_t kPath = 16;
  std::vector<Line> lines(entries + 1);
  std::vector<uint64_t> table(entries + 1, 1);
  std::mt19937_64 rng(3);
  size_t next = 0;
  for (auto _ : state) {
    const size_t from = rng() % (entries - kPath);
    for (size_t i = 0; i < kPath; ++i) lines[from + i].counter += table[from + i];
    // As the oldest and the newest of an order do, they lie anywhere.
    const size_t others[] = {rng() % entries, rng() % entries, rng() % entries};
    for (size_t at : others) next += lines[at].counter += table[at];
    benchmark::DoNotOptimize(next);
  }
}
BENCHMARK(yard_touch)->Arg(1000)->Arg(1000000);

}  // namespace
}  // namespace kv

BENCHMARK_MAIN();
