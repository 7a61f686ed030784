// StoredPrompts: one model opened at a cache, as an engine uses it: what is stored of a sequence
// into a KvCache, and a KvCache's rows, carries and snapshots into the store.
//
// Another client may put another profile in force at any time. What is fetched under it is never
// decoded under the one before: the model is opened again, and sequences that were begun go on
// under the profile they began with, but are stored no more.
//
// Every failure is the caller's miss: nothing here changes what was computed. One thread at a time;
// the client may be shared.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/kv_cache.h"
#include "engine/network.h"
#include "proto/client.h"

namespace kv {

/// The coding that the engine wants. Only the first open of a model in a namespace decides;
/// later ones get the profile in force (OpenReply::profile).
struct CodingOptions {
  bool exact = false;  ///< raw planes in fp32: for comparisons with other implementations
  uint8_t k_bits = 4;  ///< 0 (raw fp16), 1, 2, 3, 4 or 8
  uint8_t v_bits = 4;
  uint32_t block_tokens = 256;
  /// coded: the prompt runs block by block on the codes of the blocks before, so that stored bytes
  /// and tokens are a function of the tokens alone. A profile in force with another mode is
  /// refused.
  PrefillMode prefill = PrefillMode::exact;
  /// Key means and gains from the engine's own text; not computed where a profile is in force.
  bool calibrate = true;
  std::string
      calibration_file;  ///< kept calibration: read if it fits, else made and written; may be empty
  /// A profile file (codec/profile_file.h), as `cachectl tune` writes: its bits, means and gains
  /// instead of k_bits, v_bits and a calibration; may be empty.
  std::string profile_file;
  bool replace = false;  ///< put this profile in force even if another one is
};

class StoredPrompts {
 public:
  /// `client` outlives it. Returns: invalid_argument, unsupported (profile in force that the engine
  /// cannot run, by name), what calibrate, read_profile_file and Client::open return.
  static Result<StoredPrompts> open(Network& network, Client& client, const CodingOptions& coding,
                                    Deadline deadline);

  /// Of the last open; fetch and refresh may open again.
  const OpenReply& opened() const { return opened_; }
  const Codec& codec() const { return *codec_; }
  /// The same after every open.
  bool coded_prefill() const { return opened_.profile->prefill == PrefillMode::coded; }
  /// True if no row is coded, and none is computed block by block.
  bool as_given() const {
    const Profile& p = *opened_.profile;
    return !coded_prefill() && p.requested_k_bits == 0 && p.requested_v_bits == 0;
  }
  /// An empty sequence under the profile of the last open.
  KvCache new_cache(uint32_t checkpoint_interval) const;
  /// The number of the first `tokens` tokens of a sequence like `cache` are stored: all, or with
  /// coded prefill the complete blocks'.
  uint32_t storable(const KvCache& cache, uint32_t tokens) const;

  /// True if a store has found another profile in force: new sequences are stored after refresh.
  bool stale() const { return stale_; }
  /// Opens the model again if stale(). Returns: what open
  /// returns; then nothing has changed.
  Status refresh(Deadline deadline);

  struct Hit {
    uint32_t tokens = 0;  ///< n; 0: `cache` holds what it held
    Tier tier = Tier::none;
    HitForm form = HitForm::none;
    std::string reason;  ///< the cache's own words: why no more, if more than n is shared
  };
  /// Puts the longest stored prefix of `tokens` less the last one in place of what `cache` holds,
  /// if it has `at_least` tokens and `network` takes its states. Where more tokens are shared than
  /// that, the cache keeps the checkpoint of the last block end among them. Opens the model again
  /// if another profile is in force; an empty `cache` is then one of that profile, hit or not.
  /// Returns: profile_changed (it changes faster than it can be opened).
  Result<Hit> fetch(std::span<const Token> tokens, const Network& network, uint32_t at_least,
                    KvCache& cache, Deadline deadline);

  struct Terms {
    std::span<const uint32_t>
        ends;  ///< named, ascending, storable; those after `tokens` aren't told
    Durability wait_for = Durability::accepted;
    Deadline calls;         ///< of the calls
    Deadline level;         ///< of a commit that waits for more than accepted
    double prefill_ms = 0;  ///< what computing the tokens costs; 0: not known
  };
  /// Stores the first `tokens` tokens of `cache`, which are storable: all that it holds, those at
  /// its mark or, with coded prefill, whole blocks. Where objects of these tokens are stored
  /// already, they stay, and perhaps another run computed them. Returns the commit's answer;
  /// profile_changed (since `cache` was begun: nothing is stored, refresh opens again).
  Result<CommitReply> store(const KvCache& cache, uint32_t tokens, const Terms& terms);

 private:
  explicit StoredPrompts(Client& client) : client_(&client) {}
  Status take(OpenReply opened, const ModelSpec& spec, PrefillMode prefill);
  Status open_again(Deadline deadline);
  Result<Hit> fetch_once(std::span<const Token> tokens, const Network& network, uint32_t at_least,
                         KvCache& cache, Deadline deadline) const;
  std::vector<Need> own_rows(const KvCache& cache, uint32_t tokens) const;
  std::vector<Need> puts_for(const KvCache& cache, uint32_t tokens,
                             std::span<const Need> needs) const;
  Status put_all(const KvCache& cache, uint32_t tokens, const ReserveReply& reserved,
                 Deadline deadline) const;

  Client* client_;
  OpenReply opened_;
  bool stale_ = false;  // another profile is in force
  std::shared_ptr<const Codec> codec_;
};

}  // namespace kv
