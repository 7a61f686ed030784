// Teacher: a text forced through a model while its stored rows are replaced by what some coding
// gives back, and how far the model's predictions move by that.
//
// Two ways of using a cache are imitated. *hit*: a prefix computed exactly, coded once, and the
// text after it computed on what the codes give back, with exact rows of its own. *whole*: all of
// the text computed on coded rows, either block by block as with coded prefill (the open block is
// exact), or with every row coded before anything attends to it, as llama.cpp does with a quantised
// cache. Attention runs in fp32 on the decoded rows; from the engine's own, which takes them from
// the codes, it differs by less than 5e-4 of its size (codec/TURBOQUANT.md, "Attention").
//
// For models as loaded from GGUF. Holds all rows of one text in fp32. One thread at a time; uses
// threads of its own.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/model.h"
#include "engine/prefill.h"
#include "engine/threads.h"

namespace kv {

/// Replaces rows of one side of one layer by what the cache gives back for them: (n, kv_heads,
/// head_dim), the first at position `first`.
using RowCoder =
    std::function<Status(uint32_t layer, Side side, uint32_t first, std::span<float> rows)>;

/// Rows of every layer: k[layer], v[layer] (tokens, kv_heads, head_dim).
struct LayerRows {
  std::vector<std::vector<float>> k, v;
};

/// One text as the exact model computes it.
struct ExactText {
  std::vector<Token> tokens;
  uint32_t prefix = 0;  ///< tokens that a hit restores; a multiple of kTeacherBlock, below the end
  LayerRows rows;       ///< of all tokens
  std::vector<float> hidden;                ///< (tokens, width): final hidden rows
  std::vector<uint32_t> sampled;            ///< positions behind the prefix whose queries are kept
  std::vector<std::vector<float>> queries;  ///< [layer]: (sampled, heads, head_dim)
};

/// The distance of a coded run's predictions from the exact ones', position by position.
struct Divergence {
  std::vector<float> kld;   ///< Kullback-Leibler divergence in nats, at least 0
  uint32_t agreements = 0;  ///< positions with the same best token
  uint32_t predicted = 0;   ///< positions that have a next token
  double exact_nll = 0;     ///< sum over those of -log of the next token's probability
  double coded_nll = 0;

  void append(const Divergence& more);  ///< later positions
};

/// Relative error of a layer's attention output on coded rows, for the exact run's queries: root of
/// the summed squared difference over the summed squared output.
struct AttentionError {
  double k = 0;  ///< keys coded alone
  double v = 0;  ///< values coded alone
  double both = 0;
};

inline constexpr uint32_t kTeacherBlock = 256;  ///< tokens of a block in *whole*
inline constexpr uint32_t kSampledQueries = 16;

/// Of logits themselves: runs[0] the exact run's, then those of coded ones, each (next.size(),
/// vocab). next[p]: the token behind position p, or -1. Returns one result per coded run.
std::vector<Divergence> compare_logits(std::span<const std::vector<float>> runs, uint32_t vocab,
                                       std::span<const Token> next);

class Teacher {
 public:
  /// `threads`: 1 … kMaxEngineThreads.
  Teacher(std::shared_ptr<const Model> model, uint32_t threads);

  /// Runs the text exactly. Returns: invalid_argument (length, context, vocabulary, prefix).
  Result<ExactText> exact(std::span<const Token> tokens, uint32_t prefix);

  /// The prefix's rows through `coder`, the others as they are. Returns: what `coder` returns.
  static Result<LayerRows> coded_prefix(const ExactText& text, const RowCoder& coder);
  /// Final hidden rows (tokens - prefix, width) behind a prefix of these rows.
  Result<std::vector<float>> hit(const ExactText& text, const LayerRows& prefix_rows);
  /// Final hidden rows (tokens - kTeacherBlock, width) of positions from kTeacherBlock on, blocks
  /// coded when they are complete.
  Result<std::vector<float>> whole_by_blocks(const ExactText& text, const RowCoder& coder);
  /// The same with every row coded before anything attends to it.
  Result<std::vector<float>> whole_by_rows(const ExactText& text, const RowCoder& coder);

  /// Of the final hidden rows of positions [first, tokens): one result per coded run.
  std::vector<Divergence> compare(const ExactText& text, uint32_t first,
                                  std::span<const std::vector<float>> coded);
  /// Per layer, over the sampled queries.
  Result<std::vector<AttentionError>> attention_errors(const ExactText& text,
                                                       const LayerRows& coded);

 private:
  Result<std::vector<float>> run(std::span<const Token> tokens, uint32_t first, PrefillRows& rows);
  std::vector<float> normed(std::span<const float> hidden) const;

  std::shared_ptr<const Model> model_;
  Threads threads_;
  Prefill prefill_;
  std::shared_ptr<const Codec> raw_;  // of a profile that codes nothing
};

}  // namespace kv
