// Slots of a Redis cluster: which of 16,384 a key lies in, and which nodes serve it. REMOTE.md,
// "Nodes".
//
// A SlotMap is made of the answer to CLUSTER SLOTS, which is not trusted: numbers are checked,
// shards and replicas bounded. Plain values, any thread.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/resp_reply.h"
#include "proto/status.h"

namespace kv {

inline constexpr uint32_t kSlots = 16384;
inline constexpr size_t kMaxShards = 1024;
inline constexpr size_t kMaxReplicas = 8;  ///< of a shard; further ones are not asked

/// CRC16 (XMODEM) of the key modulo kSlots; of what stands between its first { and the next },
/// where that is not empty.
uint16_t key_slot(std::string_view key);

struct NodeAddress {
  std::string host;
  uint16_t port = 0;
  auto operator<=>(const NodeAddress&) const = default;
};
std::string to_string(const NodeAddress& address);  ///< "host:port"
/// "host:port", or nothing. An IPv6 address stands in brackets, or bare as Redis writes it.
std::optional<NodeAddress> parse_node(std::string_view text);

struct Shard {
  NodeAddress master;
  std::vector<NodeAddress> replicas;
};

class SlotMap {
 public:
  /// No slot is served.
  SlotMap() { slots_.fill(kNoShard); }
  /// All slots are served by one server.
  static SlotMap single(NodeAddress server);
  /// `asked`: who answered; its host stands where the answer names none. Returns: corruption.
  static Result<SlotMap> decode(const RespReply& reply, const NodeAddress& asked);

  /// Null: nobody serves it.
  const Shard* shard_of(uint16_t slot) const;
  /// MOVED: the slot is served by this master.
  void moved(uint16_t slot, const NodeAddress& master);
  const std::vector<Shard>& shards() const { return shards_; }

 private:
  static constexpr uint16_t kNoShard = 0xffff;
  Result<uint16_t> add_shard(Shard shard);

  std::vector<Shard> shards_;
  std::array<uint16_t, kSlots> slots_;
};

/// MOVED or ASK: where the command goes.
struct Redirect {
  bool ask = false;  ///< only this command
  uint16_t slot = 0;
  NodeAddress to;
};
/// `error`: an error reply's text; `asked` as in SlotMap::decode. Nothing: it is no redirect.
std::optional<Redirect> parse_redirect(std::string_view error, const NodeAddress& asked);

}  // namespace kv
