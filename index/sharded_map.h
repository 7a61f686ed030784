// ShardedMap: a hash map that never rehashes all at once: entries are in many small maps, one of
// which grows at a time. A std::unordered_map of a million entries stops its thread for tens of
// milliseconds when it grows.
//
// Values stay where they are until they are erased. Thread safety is that of std::unordered_map.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>

#include "index/prefetch.h"

namespace kv {

template <typename Key, typename Value, typename Hash = std::hash<Key>>
class ShardedMap {
 public:
  /// Null: there is none.
  Value* find(const Key& key) {
    Shard& shard = shard_of(key);
    auto it = shard.find(key);
    return it == shard.end() ? nullptr : &it->second;
  }
  /// Has what find() will wait for on its way.
  void prefetch(const Key& key) {
    Shard& shard = shard_of(key);
    if (shard.empty()) return;
    const auto first = shard.cbegin(shard.bucket(key));
    if (first != shard.cend(shard.bucket(key))) prefetch_bytes(&*first, sizeof(*first));
  }
  const Value* find(const Key& key) const { return const_cast<ShardedMap*>(this)->find(key); }
  /// Made if there is none.
  Value& operator[](const Key& key) {
    auto [it, made] = shard_of(key).try_emplace(key);
    size_ += made;
    return it->second;
  }
  void erase(const Key& key) { size_ -= shard_of(key).erase(key); }
  size_t size() const { return size_; }
  /// Reserves capacity for `entries` more.
  void expect(size_t entries) {
    // Shards differ: the fullest of them has room too, but for bad luck.
    const size_t each = (size_ + entries) / kShards;
    for (Shard& shard : shards_) shard.reserve(each + each / 8);
  }
  size_t bucket_count() const {
    size_t buckets = 0;
    for (const Shard& shard : shards_) buckets += shard.bucket_count();
    return buckets;
  }
  /// Calls each(key, value); nothing may come or go meanwhile.
  template <typename Each>
  void for_each(Each&& each) {
    for (Shard& shard : shards_) {
      for (auto& [key, value] : shard) each(key, value);
    }
  }

 private:
  using Shard = std::unordered_map<Key, Value, Hash>;
  // Shards of a million entries have 16,000 each, which rehash in less than a millisecond.
  static constexpr int kShardBits = 6;
  static constexpr size_t kShards = size_t{1} << kShardBits;

  // Keys that count upwards and are their own hashes: 64 of them lie in one shard, in buckets side
  // by side, so that a path's cost a few waits for memory. The product's upper bits depend on all
  // bits of what it is made of.
  static constexpr int kRunBits = 6;
  Shard& shard_of(const Key& key) {
    constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;  // 2^64 / phi (Knuth, TAOCP 6.4)
    return shards_[((uint64_t{Hash{}(key)} >> kRunBits) * kGoldenRatio) >> (64 - kShardBits)];
  }

  std::array<Shard, kShards> shards_;
  size_t size_ = 0;
};

}  // namespace kv
