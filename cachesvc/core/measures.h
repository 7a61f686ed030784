// Measures: how long the core's work takes, and how objects live: histograms that owners add to,
// and sums by namespace and model. Read by stats. Loop thread only.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <utility>

#include "cachesvc/core/histogram.h"
#include "proto/client.h"

namespace kv {

/// Hits and stores of one model of one namespace, and what its transforms took.
struct ModelUse {
  uint64_t fetches = 0, misses = 0, stores = 0;
  uint64_t hit_tokens_ram = 0, hit_tokens_ssd = 0, hit_tokens_remote = 0, miss_tokens = 0;
  uint64_t prefill_ms_saved = 0;
  uint64_t stream_bytes = 0, stream_promised_bytes = 0;  ///< codec/stream_bytes.h
};

/// Uses by namespace and model, as many as kMaxModelUses; those of all others have empty names.
class ModelUses {
 public:
  using Key = std::pair<std::string, std::string>;  ///< namespace, model
  static constexpr size_t kMaxModelUses = 1024;

  ModelUse& of(const std::string& ns, const std::string& model) {
    auto at = all_.find(Key(ns, model));
    if (at != all_.end()) return at->second;
    return all_.size() < kMaxModelUses ? all_[Key(ns, model)] : all_[Key()];
  }
  const std::map<Key, ModelUse>& all() const { return all_; }

 private:
  std::map<Key, ModelUse> all_;
};

struct Measures {
  static constexpr unsigned kMicroseconds = 4;  // times of work: 16 us to 67 s
  static constexpr unsigned kSeconds = 0;       // ages: 1 s to 48 days
  /// Fetches from their call to their answer, by the tier that it names.
  Histogram fetch[kTiers]{Histogram(kMicroseconds), Histogram(kMicroseconds),
                          Histogram(kMicroseconds), Histogram(kMicroseconds),
                          Histogram(kMicroseconds)};
  Histogram store{kMicroseconds};      ///< reserve to commit, the client's time in it
  Histogram promotion{kMicroseconds};  ///< one object, its wait in it
  // Waits of what got its turn.
  Histogram room_wait{kMicroseconds}, read_wait{kMicroseconds}, spill_wait{kMicroseconds};
  // Ages of objects that were stored since the start.
  Histogram lifetime{kSeconds};   ///< store to eviction from both tiers
  Histogram idle_ram{kSeconds};   ///< last use to eviction from RAM
  Histogram idle_ssd{kSeconds};   ///< last use to eviction from the SSD
  Histogram reuse_gap{kSeconds};  ///< between two uses of an object by fetches
  ModelUses models;

  static uint64_t microseconds(std::chrono::steady_clock::duration time) {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(time).count());
  }
};

}  // namespace kv
