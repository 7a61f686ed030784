// Keys' slots, and the answers that name nodes.
#include "cachesvc/remote/slots.h"

#include <algorithm>
#include <utility>

#include "proto/checksum.h"

namespace kv {
namespace {

std::optional<uint16_t> port_of(int64_t port) {
  if (port < 1 || port > 65535) return std::nullopt;
  return static_cast<uint16_t>(port);
}

// [host or null, port, id, …]
std::optional<NodeAddress> decode_node(const RespReply& node, const NodeAddress& asked) {
  if (node.type != RespType::array || node.items.size() < 2) return std::nullopt;
  const RespReply& host = node.items[0];
  if (host.type != RespType::bulk && host.type != RespType::null) return std::nullopt;
  if (host.text == "?" || host.text.size() > 255) return std::nullopt;  // unknown to who answered
  auto port = port_of(node.items[1].integer);
  if (node.items[1].type != RespType::integer || !port) return std::nullopt;
  return NodeAddress{host.text.empty() ? asked.host : host.text, *port};
}

}  // namespace

uint16_t key_slot(std::string_view key) {
  const size_t open = key.find('{');
  const size_t close = open == key.npos ? key.npos : key.find('}', open);
  if (close != key.npos && close > open + 1) key = key.substr(open + 1, close - open - 1);
  return static_cast<uint16_t>(crc16({reinterpret_cast<const uint8_t*>(key.data()), key.size()}) %
                               kSlots);
}

std::string to_string(const NodeAddress& address) {
  return address.host + ":" + std::to_string(address.port);
}

std::optional<NodeAddress> parse_node(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos || colon > 255) return std::nullopt;
  auto number = resp_number(text.substr(colon + 1));
  auto port = number ? port_of(*number) : std::nullopt;
  if (!port) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return NodeAddress{std::string(host), *port};
}

SlotMap SlotMap::single(NodeAddress server) {
  SlotMap map;
  map.shards_.push_back({std::move(server), {}});
  map.slots_.fill(0);
  return map;
}

Result<SlotMap> SlotMap::decode(const RespReply& reply, const NodeAddress& asked) {
  if (reply.type != RespType::array) return corruption("CLUSTER SLOTS: no array");
  SlotMap map;
  for (const RespReply& range : reply.items) {
    if (range.type != RespType::array || range.items.size() < 3) {
      return corruption("CLUSTER SLOTS: a range without a node");
    }
    const RespReply &first = range.items[0], &last = range.items[1];
    if (first.type != RespType::integer || last.type != RespType::integer || first.integer < 0 ||
        first.integer > last.integer || last.integer >= kSlots) {
      return corruption("CLUSTER SLOTS: a range beyond the slots");
    }
    auto master = decode_node(range.items[2], asked);
    if (!master) continue;
    Shard shard{std::move(*master), {}};
    for (size_t i = 3; i < range.items.size() && shard.replicas.size() < kMaxReplicas; ++i) {
      if (auto replica = decode_node(range.items[i], asked)) {
        shard.replicas.push_back(std::move(*replica));
      }
    }
    KV_ASSIGN_OR_RETURN(uint16_t index, map.add_shard(std::move(shard)));
    std::fill(map.slots_.begin() + first.integer, map.slots_.begin() + last.integer + 1, index);
  }
  return map;
}

// The index of the shard of that master.
Result<uint16_t> SlotMap::add_shard(Shard shard) {
  auto same = [&](const Shard& s) { return s.master == shard.master; };
  auto there = std::find_if(shards_.begin(), shards_.end(), same);
  const auto index = static_cast<uint16_t>(there - shards_.begin());
  if (there != shards_.end()) return index;
  if (shards_.size() == kMaxShards) return corruption("CLUSTER SLOTS: too many shards");
  shards_.push_back(std::move(shard));
  return index;
}

const Shard* SlotMap::shard_of(uint16_t slot) const {
  const uint16_t index = slots_[slot % kSlots];
  return index == kNoShard ? nullptr : &shards_[index];
}

void SlotMap::moved(uint16_t slot, const NodeAddress& master) {
  auto index = add_shard({master, {}});
  if (index.ok()) slots_[slot % kSlots] = *index;
}

std::optional<Redirect> parse_redirect(std::string_view error, const NodeAddress& asked) {
  const bool ask = error.starts_with("ASK ");
  if (!ask && !error.starts_with("MOVED ")) return std::nullopt;
  error.remove_prefix(ask ? 4 : 6);
  const size_t space = error.find(' ');
  if (space == error.npos) return std::nullopt;
  auto slot = resp_number(error.substr(0, space));
  auto to = parse_node(error.substr(space + 1));
  if (!slot || *slot < 0 || *slot >= kSlots || !to) return std::nullopt;
  if (to->host.empty()) to->host = asked.host;
  return Redirect{ask, static_cast<uint16_t>(*slot), std::move(*to)};
}

}  // namespace kv
