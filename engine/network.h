// Network: what one architecture computes, behind one seam: the generator, batches and tests see
// only this.
//
// A network keeps weights and scratch memory of its own; everything of a sequence lives in the
// KvCache, so one network serves any number of sequences, one after the other. One thread at a time
// calls it; it may use threads of its own. Results are a function of the tokens and of what the
// cache holds, bit for bit, whatever the number of threads.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/kv_cache.h"
#include "proto/client.h"
#include "proto/model.h"

namespace kv {

/// One sequence's share of a step of several.
struct StepRow {
  Token token = 0;
  KvCache* cache = nullptr;
  std::span<float> logits;  ///< (vocab), or empty where nobody asks
  Status status;            ///< out: what step() would have returned
};
inline constexpr uint32_t kMaxBatchRows = 16;

/// The token of the highest logit, of equal ones the lowest id; NaN is never the highest.
Token best_token(std::span<const float> logits);

class Network {
 public:
  virtual ~Network() = default;

  /// Layers and parts as in the cache; the fingerprint covers all that changes a row.
  virtual const ModelSpec& spec() const = 0;
  virtual uint32_t vocab() const = 0;    ///< token ids are 0 … vocab - 1
  virtual uint32_t context() const = 0;  ///< most positions of one sequence
  /// True for the tokens that end an answer.
  virtual bool ends(Token) const { return false; }
  /// Ids of a text, for calibration. Returns: unsupported for a network without a tokenizer.
  virtual Result<std::vector<Token>> encode(std::string_view text) const;

  /// Computes `token` at position cache.tokens(), appends its rows and states to every part and
  /// advances by one. `logits`: (vocab), or empty where nobody asks. Own kernels, whose order of
  /// summation is fixed: the result does not depend on what is computed beside it. Returns:
  /// invalid_argument (context full, token outside the vocabulary, values beyond the raw dtype, a
  /// state of a wrong size), resource_exhausted (no memory); the cache is then unusable.
  virtual Status step(Token token, KvCache& cache, std::span<float> logits) = 0;
  /// step() of up to kMaxBatchRows sequences, of which no two have the same cache, all of one
  /// codec: each row's cache, logits and status are those of a step by itself, bit for bit,
  /// whatever rows stand beside it. A network may share work between rows; unless it does, they are
  /// computed one by one.
  virtual void step_rows(std::span<StepRow> rows);
  /// Computes tokens[cache.tokens() …) and advances to their end: rows of this call are attended to
  /// exactly, those before it as they are held. A network with carries or states advances to
  /// cache.advance_limit() at most at a time. Returns: as step; deadline_exceeded.
  virtual Status prefill(std::span<const Token> tokens, KvCache& cache, Deadline deadline) = 0;
  /// Has prefill() call `work` between parts of its own, where it may step other caches: rows that
  /// decode need not wait for a long prompt. Null: nothing. A network may have no such parts.
  void while_prefilling(std::function<void()> work) { between_ = std::move(work); }
  /// True: the states of a cache that was taken over fit: sizes, and what else can be seen.
  /// Returns: invalid_argument; the fetch is then a miss.
  virtual Status check(KvCache&) const { return {}; }
  /// As EachTask, on the network's own threads where it has some.
  virtual void each(uint32_t count, const std::function<void(uint32_t)>& task) const {
    for (uint32_t i = 0; i < count; ++i) task(i);
  }

 protected:
  void pause() const {
    if (between_) between_();
  }

 private:
  std::function<void()> between_;
};

}  // namespace kv
