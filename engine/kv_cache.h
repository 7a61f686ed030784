// KvCache: the running sequence of one generation, in the very form in which it is stored.
//
// Leading rows lie in complete blocks, coded under the profile; the rest, the open rows, is a tail:
// perhaps code runs taken over from a clipped block, then exact rows rounded to the raw dtype. A
// block that becomes complete is coded once, from its rounded rows, and attended to as codes from
// the next token on. So the same rows give the same bytes whether the engine computed them or
// fetched them. One thread at a time; rows() may be read by many meanwhile.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "codec/attention.h"
#include "codec/codec.h"
#include "proto/client.h"
#include "proto/identity.h"

namespace kv {

class KvCache {
 public:
  /// The profile and model are the codec's; every layer has one `full` part.
  KvCache(std::shared_ptr<const Codec> codec, Realm realm);
  KvCache(KvCache&&) = default;
  KvCache& operator=(KvCache&&) = default;

  /// Takes over a fetched prefix in place of everything here; `tokens` are the query's, at least
  /// prefix.tokens of them. Holds the lease until the next adopt or the end.
  /// Returns: corruption (a gap, a plane missing, a wrong shape); the cache is empty then.
  Status adopt(Lease lease, std::span<const Token> tokens);

  uint32_t tokens() const { return static_cast<uint32_t>(tokens_.size()); }
  const AttentionRows& rows(uint32_t layer) const { return rows_[layer]; }
  const Codec& codec() const { return *codec_; }

  /// Appends rows of one layer after its last: K and V (count, heads, dim) f32, rounded to the raw
  /// dtype here. They are attended to at once. Returns: invalid_argument (a value not finite or
  /// beyond the raw dtype); the sequence is then unusable.
  Status append(uint32_t layer, uint32_t count, const float* k, const float* v);
  /// Codes the layer's open rows that now fill blocks. Layers are sealed in order, each once
  /// between its appends and advance(). Returns: as append.
  Status seal(uint32_t layer);
  /// After all layers got and sealed the rows of `tokens`: they are part of the sequence.
  void advance(std::span<const Token> tokens);

  /// All rows of one side of one layer as (tokens(), heads, dim) f32, before any append.
  Status decode(uint32_t layer, Side side, float* out) const;

  /// Complete blocks, in order.
  const std::vector<ObjectPtr>& blocks() const { return blocks_; }
  /// The open rows as a tail; nullptr if there are none.
  Result<ObjectPtr> tail() const;
  /// The stored objects that this sequence was taken over from, if nothing was appended since.
  const std::vector<ObjectPtr>& fetched() const { return fetched_; }

 private:
  struct Open {                  // one side of the open rows
    Plane head;                  // leading rows taken over as they are; no runs if there are none
    std::vector<uint8_t> exact;  // rows after them, (rows, heads, dim) of the raw dtype
  };
  void clear();
  Status adopt_objects(const Prefix& prefix);
  Status open_with(uint32_t layer, const std::vector<const Object*>& objects, uint32_t end);
  Status show_open(uint32_t layer);
  uint32_t begin(uint32_t layer) const { return sealed_[layer] * block_tokens_; }
  uint32_t open_rows(uint32_t layer) const;
  Result<Plane> open_plane(uint32_t layer, Side side, uint32_t rows) const;
  Plane exact_plane(uint32_t layer, Side side, uint32_t rows) const;
  Object new_object(ObjectKind kind, uint32_t first, uint32_t end) const;

  std::shared_ptr<const Codec> codec_;
  Realm realm_;
  uint32_t block_tokens_;
  uint64_t row_bytes_ = 0;  // of one exact row, same for K and V
  Lease lease_;
  std::vector<Token> tokens_;
  std::vector<ObjectPtr> blocks_;
  std::vector<std::vector<Plane>> growing_;  // planes of blocks beyond blocks_, until advance()
  std::vector<ObjectPtr> fetched_;
  std::vector<std::vector<Open>> open_;  // [layer][k, v]
  std::vector<uint32_t> sealed_;         // [layer]: complete blocks
  std::vector<AttentionRows> rows_;      // [layer]
};

}  // namespace kv
