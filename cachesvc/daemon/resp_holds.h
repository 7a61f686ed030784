// RespHolds: what EXISTS found is promised for a while: it is held, so that the GET after it hits.
// One promise for each key, of all connections together, as a client may ask on one and read on
// another; a GET or a removal ends it.
//
// Bounded: kMaxRespHolds, beyond which nothing new is promised, as the first chunks of a prompt are
// asked for first and are worth most; and the namespace's share of held bytes, beyond which a
// promise is kept only as long as nothing is evicted. Loop thread only.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <vector>

#include "cachesvc/core/cache_core.h"
#include "proto/plane.h"

namespace kv {

inline constexpr size_t kMaxRespHolds = 1000;  ///< of max_holds of a namespace, 1,024
inline constexpr Milliseconds kRespHoldTime{30'000};

class RespHolds {
 public:
  explicit RespHolds(CacheCore& core) : core_(core) {}
  RespHolds(const RespHolds&) = delete;  // calls point here
  RespHolds& operator=(const RespHolds&) = delete;

  /// Looks a key up by its query, and promises what is found. `done`: whether there is a value.
  void find(uint64_t session, const QueryRequest& query, Deadline deadline,
            std::function<void(Result<bool>)> done);
  /// Ends the promise of the key with these tokens in its query. True if there was one.
  bool end(uint64_t session, const std::vector<Token>& tokens, Deadline deadline);

 private:
  using Clock = std::chrono::steady_clock;
  using Key = std::vector<Token>;
  struct Promise {
    uint64_t hold;  ///< its number; 0: none could be had
    Clock::time_point until;
    std::list<Key>::iterator place;
  };
  using Promises = std::map<Key, Promise>;
  void promise(uint64_t session, const Key& key, uint64_t hold, Deadline deadline);
  void forget(Promises::iterator promise);
  void release(uint64_t session, uint64_t hold, Deadline deadline);

  CacheCore& core_;
  Promises promises_;
  std::list<Key> by_end_;  // the first that ends first
};

}  // namespace kv
