// KvCache: the running sequence of one generation, in the very form in which it is stored.
//
// A layer has zero or more parts of any kind. Rows of complete blocks are coded once, when the
// block becomes complete, and attended to as codes from the next token on; the open rows behind
// them are exact, rounded to the raw dtype (part_rows.h). So the same rows give the same bytes
// whether the engine computed them or fetched them. Carries of pooled parts and the bytes of state
// and opaque parts belong to exactly the position tokens(); the cache keeps copies of them at block
// ends and checkpoints.
//
// One step of a network, or one stretch of its prefill:
//   for every layer: append its rows, update its states; seal(layer) for every layer; advance()
// One thread at a time; views may be read by many meanwhile.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "engine/part_rows.h"
#include "proto/client.h"
#include "proto/identity.h"

namespace kv {

/// Checkpoints at as many block ends as take no more bytes than the blocks and one of them, apart
/// by a power of two of blocks: so those of a longer sequence are among a shorter one's.
inline constexpr uint32_t kCheckpointsByPrice = UINT32_MAX;

class KvCache {
 public:
  /// The profile and model are the codec's. `checkpoint_interval`: every so many tokens the states
  /// of checkpoint parts are kept for a store; 0: never; or kCheckpointsByPrice.
  KvCache(std::shared_ptr<const Codec> codec, Realm realm, uint32_t checkpoint_interval = 0);
  KvCache(KvCache&&) = default;
  KvCache& operator=(KvCache&&) = default;

  /// Takes over a fetched prefix in place of everything here; `tokens` are the query's, at least
  /// prefix.tokens of them. Holds the lease until the next restore() or the end. `each`: over
  /// parts, whose streams are decoded; null: one after the other. Returns: profile_changed (an
  /// object of another profile than realm().profile: its codes mean other values), corruption
  /// (another namespace or model, rows missing or of other tokens, a wrong shape, a value or scale
  /// that is not finite), not_found (no carry or snapshot at exactly prefix.tokens); the cache is
  /// empty then.
  Status restore(Lease lease, std::span<const Token> tokens, const EachTask& each = nullptr);
  /// Asked after the last read: false if the lease's memory was taken back meanwhile.
  bool valid() const { return lease_.valid(); }

  /// Carries and states at this position, if it is after tokens(), are kept for a store too.
  void keep_end(uint32_t position) { ends_.insert(position); }

  uint32_t tokens() const { return static_cast<uint32_t>(tokens_.size()); }
  std::span<const Token> sequence() const { return tokens_; }
  /// Length of the prefix that was taken over.
  uint32_t restored_tokens() const { return lease_.prefix().tokens; }
  const Codec& codec() const { return *codec_; }
  /// The realm whose objects may be taken over, and whose these are.
  const Realm& realm() const { return realm_; }
  uint32_t checkpoint_interval() const { return checkpoint_interval_; }
  uint32_t block_tokens() const { return block_tokens_; }

  // ---- what a network reads

  /// Rows of a part with separate K and V (full, window, chunk): all that the next token may see,
  /// perhaps more. Limit each query by RowLimit{end, first, keep}; the result does not depend on
  /// how many older rows are still in it.
  const AttentionRows& rows(uint32_t layer, uint32_t part) const;
  /// Rows of a part with one storage (latent, pooled, window with v_dim 0), in f32. Valid until the
  /// next change of the cache.
  ValueRows values(uint32_t layer, uint32_t part) const;
  /// Rows of one side as (rows, heads, dim) f32. Returns: invalid_argument if one isn't held; those
  /// that a cache of tokens() holds (proto/demand.h) always are.
  Status decode(uint32_t layer, uint32_t part, Side side, RowRange rows, float* out) const;

  // ---- what a network writes

  /// Appends rows after the part's last: K and V (count, heads, dim) f32, rounded to the raw dtype
  /// here. They are attended to at once. Returns: invalid_argument (a value not finite or beyond
  /// the raw dtype); the sequence is then unusable.
  Status append(uint32_t layer, uint32_t part, uint32_t count, const float* k, const float* v);
  /// The same for a part with one storage: (count, heads, k_dim). Pooled: complete groups only.
  Status append_rows(uint32_t layer, uint32_t part, uint32_t count, const float* rows);
  /// The carry of a pooled part, or the bytes of a state or opaque part, at tokens(); updated in
  /// place by the step that ends with advance(). Empty at the start, and where no carry is demanded
  /// (proto/demand.h) perhaps empty after a fetch.
  std::vector<uint8_t>& state(uint32_t layer, uint32_t part);
  /// Codes the layer's open rows that now fill blocks. Each layer once between its appends and
  /// advance(). `each`: over sides of blocks; null: one after the other. Returns: as append.
  Status seal(uint32_t layer, const EachTask& each = nullptr);
  /// After all layers got and sealed the rows of `tokens`: they are part of the sequence. Must not
  /// go beyond advance_limit().
  void advance(std::span<const Token> tokens);
  /// The end of the next advance() at most, in tokens from the start: for models with carries,
  /// states or opaque parts the next block end, checkpoint or kept end, so that their bytes there
  /// can be kept; else no limit.
  uint32_t advance_limit() const;

  // ---- what is stored

  /// Complete blocks, in order.
  const std::vector<ObjectPtr>& blocks() const { return blocks_; }
  /// A store of the first tokens() tokens, as they are now, stays possible while later ones follow:
  /// until the next mark, restore() or rewind before here. In place of an earlier mark.
  void mark();
  /// The tokens after the last complete block of the first `tokens`, which are all, those at the
  /// mark or whole blocks, as a tail; nullptr if there are none.
  Result<ObjectPtr> tail(uint32_t tokens) const;
  /// What answers a need of a store of the first `tokens` tokens, as of tail(); nullptr if it is
  /// not held (rows out of a window, a carry or snapshot of a position that was not kept).
  Result<ObjectPtr> object(const Need& need, uint32_t tokens) const;
  /// Positions at which checkpoints were kept since restore(), ascending.
  std::vector<uint32_t> checkpoints() const;
  /// Names of the blocks and the tail that this sequence was taken over from, if nothing was
  /// appended since; else of its own.
  std::vector<ObjectName> names() const;
  /// Payload bytes of all that a cache of tokens() holds, as it lies here.
  uint64_t payload_bytes() const;
  /// Back to `position`, a block end at or after the restored prefix; for models with checkpoint
  /// parts one of the two newest. Returns: invalid_argument where its states were not kept.
  Status rewind(uint32_t position);

 private:
  struct Part {
    std::optional<PartRows> rows;    // all but state and opaque
    bool has_state = false;          // pooled, state, opaque
    std::vector<uint8_t> state;      // at tokens()
    std::map<uint32_t, Bytes> kept;  // by position
  };
  struct Piece;  // rows of one stored plane that a fetch may use
  void clear();
  Status restore_all(const Prefix& prefix, std::span<const Token> tokens, const EachTask& each);
  Status restore_blocks(const Prefix& prefix);
  Status restore_rows(const Prefix& prefix, const EachTask& each);
  Status restore_part(uint32_t layer, uint32_t part, std::vector<Piece>& pieces, uint32_t n);
  Status restore_states(const Prefix& prefix);
  void keep_states();
  void thin_checkpoints();
  bool checkpoint_wanted(uint32_t position) const;
  Object new_object(ObjectKind kind, uint32_t first, uint32_t end) const;
  std::shared_ptr<Object> new_block(size_t index) const;
  Result<ObjectPtr> supplement(const Need& need, uint32_t tokens) const;
  ObjectPtr snapshot(uint32_t position) const;
  Result<Plane> cut(const Part& part, Side side, RowRange rows, uint32_t tokens) const;
  std::optional<Bytes> state_at(const Part& part, uint32_t position) const;
  const Part& part(uint32_t layer, uint32_t part) const;
  PartRows& rows_of(uint32_t layer, uint32_t part);
  template <typename Visit>
  void each_part(Visit&& call) const;

  std::shared_ptr<const Codec> codec_;
  Realm realm_;
  uint32_t block_tokens_;
  uint32_t checkpoint_interval_;
  uint32_t checkpoints_every_;  // the interval, or what its price allows so far; 0: none
  std::set<uint32_t> ends_;
  uint32_t marked_ = 0;      // tokens() at the last mark(); 0: none
  bool has_states_ = false;  // some part has carries, state or opaque bytes
  std::vector<PartGroup> groups_;
  Lease lease_;
  std::vector<Token> tokens_;
  std::vector<ObjectPtr> blocks_;
  std::vector<ObjectPtr> fetched_;
  std::vector<std::vector<Part>> parts_;  // [layer][part]
};

}  // namespace kv
