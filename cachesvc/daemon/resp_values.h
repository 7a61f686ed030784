// RespValues: a connection's values by key, in the namespace of its core session (FORMAT.md,
// "Values without tokens"). A value that can't be had is a miss. Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cachesvc/core/cache_core.h"
#include "cachesvc/daemon/resp_connection.h"
#include "cachesvc/daemon/resp_holds.h"

namespace kv {

/// The longest that a call of the core may take for a command.
inline constexpr Milliseconds kRespTimeout{10'000};

class RespValues {
 public:
  /// The end of a SET.
  enum class End : uint8_t {
    stored,
    dropped,  ///< nothing is stored under the key, an earlier value neither
    unknown,  ///< an earlier value may be there yet
  };
  struct Value {
    Bytes bytes;
    std::shared_ptr<const void> kept;  ///< its lease
  };

  RespValues(RespConnection& host, CacheCore& core, RespHolds& holds)
      : host_(host), core_(core), holds_(holds) {}
  RespValues(const RespValues&) = delete;  // calls point here
  RespValues& operator=(const RespValues&) = delete;

  void enter(uint64_t session) { session_ = session; }

  // Each calls `done` once, or never if the connection closes before. Keys have at most
  // kMaxKeyBytes.
  /// `promised`: EXISTS told of a value a moment ago.
  void get(const std::string& key,
           std::function<void(std::optional<Value> value, bool promised)> done);
  void exists(const std::string& key, std::function<void(bool)> done);
  /// True: there was a value; else why it may be there yet.
  void remove(const std::string& key, std::function<void(Result<bool>)> done);
  /// `state`: the head that write_keyed_head makes, and the value; `room`: its charges, if it has
  /// any. In place of an earlier value.
  void set(const std::string& key, Bytes state, std::shared_ptr<RoomCharges> room,
           std::function<void(End)> done);

 private:
  struct Set;
  using SetPtr = std::shared_ptr<Set>;
  struct Opened {
    uint32_t model = 0;
    Id profile{};
    uint32_t block_tokens = 0;
  };
  void with_model(std::function<void(const Status&)> then);
  QueryRequest query_of(const std::string& key) const;
  void fetch(const std::string& key, std::function<void(Result<FetchReply>)> then);
  void note(const Status& status);

  void reserve(const SetPtr& set);
  void store(const SetPtr& set, const ReserveReply& reserved);
  void commit(const SetPtr& set, uint64_t reservation);
  void compare(const SetPtr& set);
  void compare_some(const SetPtr& set, const Value& stored, size_t from);
  void replace(const SetPtr& set);
  void give_up(const SetPtr& set);

  RespConnection& host_;
  CacheCore& core_;
  RespHolds& holds_;
  uint64_t session_ = 0;
  std::optional<Opened> opened_;  ///< none: it was not opened yet, or the profile has changed
};

}  // namespace kv
