// A recorded hour of conversations replayed on a fleet that shares a tier: who hits what, what its
// links carry, how even its shards are, and what one lost shard costs. REMOTE.md, "On paper".
//
//   trace_fleet TRACE.jsonl [NODES...]       the trace: lines of {timestamp, input_length,
//   hash_ids}
//
// The product's own code decides where a block lies (remote_tag_depth, remote_key, key_slot), what
// a machine drops (EvictionOrder), and whether the tier is asked (kRemoteMinTokens); the engine is
// its allkeys-lru, exact, of shards of equal size. Every machine has the same load: 120 requests
// each, as the trace has for 100. Fewer machines take its first part; for more it is repeated, with
// its own conversations and the same system prompt. What is stored is shared at once.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "cachesvc/cache_options.h"
#include "cachesvc/remote/names.h"
#include "cachesvc/remote/slots.h"
#include "index/eviction.h"
#include "proto/checksum.h"

namespace kv {
namespace {

constexpr uint32_t kBlockTokens = 256, kTraceBlockTokens = 512;
constexpr uint32_t kRequestsPerNode = 120;
constexpr size_t kNodeBlocks = 1'000'000 / kBlockTokens;  // a machine has a million tokens,
constexpr size_t kShardBlocks = 10 * kNodeBlocks;         // a shard ten millions,
constexpr size_t kNodesPerShard = 10;                     // so the tier as much as all machines
constexpr uint64_t kBlockBytes = 256 * 9'011;             // SmolLM2 with tq84: 8.8 KiB a token
constexpr double kMinute = 60'000;                        // of the trace's milliseconds
constexpr uint32_t kNone = UINT32_MAX;

struct Request {
  double ms = 0;
  uint64_t conversation = 0;
  std::vector<uint32_t> blocks;  // of Blocks
};

/// All blocks of the trace, each named by all tokens up to its end; with their slots.
class Blocks {
 public:
  uint32_t of(uint64_t name, size_t depth, uint32_t tag) {
    auto [at, is_new] = index_.try_emplace(name, static_cast<uint32_t>(slots_.size()));
    if (is_new) slots_.push_back(tag == kNone ? slot(name, depth) : slots_[tag]);
    return at->second;
  }
  size_t size() const { return slots_.size(); }
  size_t shard(uint32_t block, size_t shards) const { return slots_[block] * shards / kSlots; }

 private:
  // Slot of a block that is the tag of the next ones.
  static uint16_t slot(uint64_t name, size_t depth) {
    ByteWriter bytes;
    bytes.u64(name);
    bytes.u64(depth);
    const Id id = sha256(bytes.span());
    return key_slot(remote_key({remote_space("fleet"), {ObjectKind::block, id, 0, 0, 0}, id}));
  }
  std::unordered_map<uint64_t, uint32_t> index_;
  std::vector<uint16_t> slots_;
};

std::vector<Request> read_trace(const char* path, size_t nodes, Blocks& blocks) {
  const size_t wanted = nodes * kRequestsPerNode;
  std::vector<nlohmann::json> lines;
  std::ifstream in(path);
  for (std::string line; lines.size() < wanted && std::getline(in, line);) {
    lines.push_back(nlohmann::json::parse(line));
  }
  std::vector<Request> trace;
  for (size_t copy = 0; trace.size() < wanted && !lines.empty(); ++copy) {
    for (const auto& line : lines) {
      if (trace.size() == wanted) break;
      const auto& ids = line.at("hash_ids");
      Request r;
      r.ms = line.at("timestamp").get<double>() + 7'000 * static_cast<double>(copy);
      const size_t whole = line.at("input_length").get<size_t>() / kBlockTokens;
      for (size_t d = 0; d < whole; ++d) {
        const uint64_t id = ids.at(d * kBlockTokens / kTraceBlockTokens).get<uint64_t>();
        // The first one is everybody's system prompt.
        const uint64_t name = (id == 0 ? 0 : copy << 48) + 2 * id + d % 2;
        const size_t tag = remote_tag_depth(d);
        r.blocks.push_back(blocks.of(name, d, tag == d ? kNone : r.blocks[tag]));
      }
      r.conversation = (copy << 32) + (ids.size() > 1 ? ids[1].get<uint64_t>() : 0);
      trace.push_back(std::move(r));
    }
  }
  std::stable_sort(trace.begin(), trace.end(),
                   [](const Request& a, const Request& b) { return a.ms < b.ms; });
  return trace;
}

/// Shards that keep what was used last.
class Shards {
 public:
  Shards(size_t shards, size_t blocks)
      : used_(shards), links_(blocks + shards), there_(blocks), first_(blocks) {
    for (size_t s = 0; s < shards; ++s) {
      links_[first_ + s] = {static_cast<uint32_t>(first_ + s), static_cast<uint32_t>(first_ + s)};
    }
  }
  bool has(uint32_t block) const { return there_[block]; }
  void use(uint32_t block, size_t shard) {
    if (there_[block]) {
      unlink(block);
    } else {
      there_[block] = true;
      if (++used_[shard] > kShardBlocks) drop(links_[first_ + shard].before, shard);
    }
    const auto head = static_cast<uint32_t>(first_ + shard);
    links_[block] = {head, links_[head].after};
    links_[links_[head].after].before = block;
    links_[head].after = block;
  }
  void lose(size_t shard) {
    const auto head = static_cast<uint32_t>(first_ + shard);
    while (links_[head].after != head) drop(links_[head].after, shard);
  }

 private:
  struct Link {
    uint32_t before = 0, after = 0;
  };
  void unlink(uint32_t block) {
    links_[links_[block].before].after = links_[block].after;
    links_[links_[block].after].before = links_[block].before;
  }
  void drop(uint32_t block, size_t shard) {
    unlink(block);
    there_[block] = false;
    --used_[shard];
  }
  std::vector<size_t> used_;
  std::vector<Link> links_;  // a ring for each shard, behind the blocks its head
  std::vector<bool> there_;
  const size_t first_;
};

/// Bytes of a link, and those of its busiest minute.
struct Wire {
  double all = 0, now = 0, most = 0, minute = -1;
  void move(double bytes, double ms) {
    const double its = static_cast<double>(static_cast<int64_t>(ms / kMinute));
    if (its != minute) now = 0;
    minute = its;
    all += bytes;
    most = std::max(most, now += bytes);
  }
  double busiest_mbit() const { return most * 8 / 60 / 1e6; }
};

struct Setting {
  size_t nodes = 0, shards = 0;
  bool sticky = true;  // a conversation stays on its machine, as a router would have it
  bool shared = true;
  bool lose = false;  // the shard that is read most comes back empty in the middle
  size_t lost = 0;
};
struct Outcome {
  double asked = 0, local = 0, remote = 0;  // blocks
  double questions = 0, question_shards = 0;
  std::vector<Wire> nodes, shards;
};

class Fleet {
 public:
  Fleet(const Setting& setting, const Blocks& blocks)
      : setting_(setting), blocks_(blocks), tier_(setting.shards, blocks.size()) {
    local_.resize(setting.nodes);
    out_.nodes.resize(setting.nodes);
    out_.shards.resize(setting.shards);
  }
  void lose() { tier_.lose(setting_.lost); }
  void serve(const Request& r, size_t node) {
    EvictionOrder& order = local_[node];
    const std::vector<uint32_t>& path = r.blocks;
    size_t here = 0;
    while (here < path.size() && order.resident(path[here])) ++here;
    std::vector<EntryKey> keys(path.begin(), path.end());
    order.touch_all(std::span(keys).first(here));
    size_t there = here;
    if (setting_.shared && (path.size() - here) * kBlockTokens >= kRemoteMinTokens) {
      ask(path, here);
      while (there < path.size() && tier_.has(path[there])) move(path[there++], node, r.ms);
    }
    for (size_t i = there; setting_.shared && i < path.size(); ++i) {
      if (!tier_.has(path[i])) move(path[i], node, r.ms);
    }
    out_.asked += static_cast<double>(path.size());
    out_.local += static_cast<double>(here);
    out_.remote += static_cast<double>(there - here);
    keep(order, keys, here);
  }
  Outcome take() { return std::move(out_); }

 private:
  // A question touches all that is there of it, as a GETRANGE does.
  void ask(const std::vector<uint32_t>& path, size_t from) {
    std::set<size_t> asked;
    ++out_.questions;
    for (size_t i = from; i < path.size(); ++i) {
      const size_t shard = blocks_.shard(path[i], setting_.shards);
      asked.insert(shard);
      if (tier_.has(path[i])) tier_.use(path[i], shard);
    }
    out_.question_shards += static_cast<double>(asked.size());
  }
  void move(uint32_t block, size_t node, double ms) {
    const size_t shard = blocks_.shard(block, setting_.shards);
    tier_.use(block, shard);
    out_.nodes[node].move(kBlockBytes, ms);
    out_.shards[shard].move(kBlockBytes, ms);
  }
  static void keep(EvictionOrder& order, const std::vector<EntryKey>& keys, size_t from) {
    for (size_t i = from; i < keys.size(); ++i) {
      EntryOptions options;
      options.parent = i == 0 ? kNoEntry : keys[i - 1];
      options.charge_bytes = 1;
      order.insert(keys[i], options);
    }
    while (order.size() > kNodeBlocks) {
      const auto victims = order.next_victims(order.size() - kNodeBlocks, true);
      if (victims.keys.empty()) break;
      for (EntryKey key : victims.keys) order.erase(key);
    }
  }
  const Setting setting_;
  const Blocks& blocks_;
  Shards tier_;
  std::vector<EvictionOrder> local_;
  Outcome out_;
};

Outcome replay(const std::vector<Request>& trace, const Blocks& blocks, const Setting& setting) {
  Fleet fleet(setting, blocks);
  for (size_t i = 0; i < trace.size(); ++i) {
    if (setting.lose && i == trace.size() / 2) fleet.lose();
    const uint64_t which = (setting.sticky ? trace[i].conversation : i) * 0x9e3779b97f4a7c15u;
    fleet.serve(trace[i], (which >> 32) % setting.nodes);
  }
  return fleet.take();
}

const Wire& busiest(const std::vector<Wire>& wires) {
  return *std::max_element(wires.begin(), wires.end(),
                           [](const Wire& a, const Wire& b) { return a.all < b.all; });
}
double mean_bytes(const std::vector<Wire>& wires) {
  double sum = 0;
  for (const Wire& w : wires) sum += w.all;
  return sum / static_cast<double>(wires.size());
}
double busiest_minute(const std::vector<Wire>& wires) {
  double most = 0;
  for (const Wire& w : wires) most = std::max(most, w.busiest_mbit());
  return most;
}

void print_row(const std::vector<Request>& trace, const Blocks& blocks, size_t nodes, bool sticky) {
  Setting setting{nodes, std::max<size_t>(3, nodes / kNodesPerShard), sticky, true, false, 0};
  Setting alone = setting;
  alone.shared = false;
  const Outcome without = replay(trace, blocks, alone);
  const Outcome with = replay(trace, blocks, setting);
  setting.lose = true;
  setting.lost = static_cast<size_t>(&busiest(with.shards) - with.shards.data());
  const Outcome lost = replay(trace, blocks, setting);
  const double hits = with.local + with.remote;
  std::printf(
      "| %zu | %zu | %s | %.1f %% | %.1f %% + %.1f %% | %.2f GB, %.0f Mbit/s | "
      "%.0f Mbit/s, %.2fx | %.1f | %.2f %% |\n",
      nodes, setting.shards, sticky ? "stays" : "anywhere", 100 * without.local / without.asked,
      100 * with.local / with.asked, 100 * with.remote / with.asked, mean_bytes(with.nodes) / 1e9,
      busiest_minute(with.nodes), busiest_minute(with.shards),
      busiest(with.shards).all / mean_bytes(with.shards),
      with.question_shards / std::max(1.0, with.questions),
      100 * (hits - lost.local - lost.remote) / with.asked);
}

}  // namespace
}  // namespace kv

int main(int count, char** words) {
  if (count < 2) {
    std::fprintf(stderr, "usage: trace_fleet TRACE.jsonl [NODES...]\n");
    return 2;
  }
  std::vector<size_t> fleets = {10, 100, 1000};
  if (count > 2) fleets.clear();
  for (int i = 2; i < count; ++i)
    fleets.push_back(std::max(1ul, std::strtoul(words[i], nullptr, 10)));
  std::puts(
      "| machines | shards | a conversation | alone: hits | shared: local + tier | a machine's "
      "link: all, busiest minute | busiest shard: minute, bytes over the mean | shards a "
      "question | lost shard: hits less |");
  std::puts("|---|---|---|---|---|---|---|---|---|");
  for (size_t nodes : fleets) {
    kv::Blocks blocks;
    const auto trace = kv::read_trace(words[1], nodes, blocks);
    if (trace.empty()) {
      std::fprintf(stderr, "%s: no requests\n", words[1]);
      return 1;
    }
    for (bool sticky : {true, false}) kv::print_row(trace, blocks, nodes, sticky);
  }
}
