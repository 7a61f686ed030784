// Generator: greedy generation through a cache: what is attended to is what is stored.
//
// The prompt's first N-1 tokens are fetched or computed exactly, and held in their stored form; the
// last prompt token and all later ones are computed on that form with kernels whose order of
// summation is fixed. So a hit at N-1 gives the tokens and logits of the run that stored it, bit
// for bit; with coded prefill (prompt.h) a hit of any length gives any cold run's. Blocks that
// another run had stored, and this one could not use (a shorter hit on windows, chunks or states),
// stay the other's: then the hit differs as one on a shorter prefix does.
//
// Nothing is stored before the first token is there. A cache call that fails, or takes longer than
// GenerateOptions::cache_waits, is a miss: generation goes on. One thread at a time per Generator;
// its network's worker threads live as long as it does. `Client` and what it returns may be shared.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/cache_calls.h"
#include "engine/model.h"
#include "engine/network.h"
#include "engine/stored_prompts.h"
#include "proto/client.h"

namespace kv {

struct GenerateOptions {
  uint32_t max_new_tokens = 64;
  bool use_lookup = true;     ///< false: a cold run; what is stored is not asked for
  bool commit = true;         ///< store prompt and, at the end, prompt + answer
  bool commit_answer = true;  ///< the second of the two commits
  /// Of the first commit, after the first token. More than accepted: waits for it until `deadline`,
  /// at most a minute.
  Durability wait_for = Durability::accepted;
  CacheWaits cache_waits;  ///< of the look-up, and of each of the two commits
  /// Every so many tokens the states of checkpoint parts are stored too; 0: only before the last
  /// prompt token, at named ends and at the end.
  uint32_t checkpoint_interval = kCheckpointsByPrice;
  /// Ends in the prompt, in tokens, ascending, at most kMaxNamedEnds, from which later prompts are
  /// to go on whatever kind of cache the model has: of its system prompt, of each turn. With coded
  /// prefill the block ends before them.
  std::vector<uint32_t> ends{};
  bool keep_logits = false;
  bool stop_at_eos = true;
  Deadline deadline = Deadline::max();  ///< checked between layers and tokens
};

struct GenerateResult {
  std::vector<Token> tokens;  ///< generated ids; with stop_at_eos the eos is the last
  std::vector<float> logits;  ///< (tokens.size(), vocab) if keep_logits
  uint32_t prompt_tokens = 0;
  uint32_t reused_tokens = 0;  ///< n of the fetch
  Tier tier = Tier::none;
  HitForm form = HitForm::none;
  std::string reason;  ///< of a hit shorter than what is stored of the prompt, or of a miss
  double ttft_ms = 0;  ///< ids in hand -> first generated id
  double fetch_ms = 0, prefill_ms = 0;  ///< shares of ttft_ms
  double store_ms = 0;                  ///< of the first commit, between the first two tokens
  double decode_ms_per_token = 0;       ///< of the tokens after the first, without store_ms
  /// Blocks and tail of the prompt's first N-1 tokens (with coded prefill: blocks), by name.
  std::vector<ObjectName> prompt_objects;
  uint64_t stored_bytes = 0;            ///< payload bytes that a cache of these N-1 tokens holds
  uint64_t block_bytes = 0;             ///< of its complete blocks only, without supplements
  uint64_t fp16_bytes = 0;              ///< of the rows that it holds, in fp16
  Durability level = Durability::none;  ///< reached by the first commit
  std::vector<NamedEnd> ends;  ///< what became of them, by the first commit if there was one
  std::string cache_error;     ///< the first failed cache call, if any; generation went on
};

class Generator {
 public:
  /// Opens the network's model at the cache. `client` outlives the generator.
  /// Returns: invalid_argument, unsupported (profile in force that the engine cannot run, by name),
  /// and what Client::open returns: without an open model there is no profile to compute under.
  static Result<std::unique_ptr<Generator>> open(std::unique_ptr<Network> network, Client& client,
                                                 const CodingOptions& coding, Deadline deadline);
  /// The same with the network of `model`, on `threads` (1 … 64) threads.
  static Result<std::unique_ptr<Generator>> open(std::shared_ptr<const Model> model, Client& client,
                                                 const CodingOptions& coding, uint32_t threads,
                                                 Deadline deadline);
  ~Generator();
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  /// Computes a few tokens that nobody asked for, as servers do when they start: a process's first
  /// use of weights, threads and buffers takes tens of milliseconds. Nothing is fetched or stored.
  /// Returns: as generate.
  Status warm_up();

  /// Returns: invalid_argument (empty prompt, id outside the vocabulary, prompt + max_new_tokens
  /// over the model's context), deadline_exceeded (also for an overrun inside prefill).
  Result<GenerateResult> generate(std::span<const Token> prompt, const GenerateOptions& options);

  /// generate() of every prompt, in order of `prompts`; up to `rows` (at most kMaxBatchRows) of
  /// them decode together: one joins per step, when it is computed, while the others go on for half
  /// of the time, and leaves when it ends. Each gets the tokens and logits of generate() with what
  /// was stored when it began, bit for bit; of the times, `ttft_ms`, `prefill_ms` and
  /// `decode_ms_per_token` hold what was done for the rows beside it.
  std::vector<Result<GenerateResult>> generate_all(std::span<const std::vector<Token>> prompts,
                                                   const GenerateOptions& options,
                                                   uint32_t rows = kMaxBatchRows);

  const OpenReply& opened() const;
  const Network& network() const;

 private:
  class Impl;
  explicit Generator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kv
