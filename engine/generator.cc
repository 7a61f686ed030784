// The flow of one generation: fetch, prefill, first token, commit, decode, commit. See generator.h.
#include "engine/generator.h"

#include <algorithm>

#include "engine/batch.h"
#include "engine/model_network.h"
#include "engine/prompt.h"
#include "proto/demand.h"

namespace kv {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kLongestWaitForLevel{1};

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

class Generator::Impl {
 public:
  Impl(std::unique_ptr<Network> network, StoredPrompts stored)
      : network_(std::move(network)), stored_(std::move(stored)) {}

  Result<GenerateResult> generate(std::span<const Token> prompt, const GenerateOptions& options);
  std::vector<Result<GenerateResult>> generate_all(std::span<const std::vector<Token>> prompts,
                                                   const GenerateOptions& options, uint32_t rows);

  const OpenReply& opened() const { return stored_.opened(); }
  const Network& network() const { return *network_; }

 private:
  class Decoding;
  // One generation's working values.
  struct Run {
    std::span<const Token> prompt;
    const GenerateOptions& options;
    GenerateResult result;
    Clock::time_point start = Clock::now(), first_done{};

    std::vector<uint32_t> ends{};  // those of the options that a cache can be stored at

    std::span<const Token> before_last() const { return prompt.first(prompt.size() - 1); }
    void note(const Status& status) {
      if (!status.ok() && result.cache_error.empty()) result.cache_error = status.to_string();
    }
  };
  Status check(std::span<const Token> prompt, const GenerateOptions& options) const;
  uint64_t fp16_bytes(uint64_t tokens) const {
    return tokens * fp16_bytes_per_token(network_->spec());
  }
  void look_up(Run& run, KvCache& cache);
  Result<StoredPrompts::Hit> look_up_until(Run& run, KvCache& cache, Deadline until);
  Status compute(Run& run, KvCache& cache);
  CommitReply store(Run& run, const KvCache& cache, uint32_t tokens, Durability wait_for);
  void store_prompt(Run& run, const KvCache& cache);
  void store_as_prompt(Run& run, const KvCache& cache);
  void describe(Run& run, const KvCache& cache) const;
  Result<KvCache> begin(Run& run);
  Result<bool> take(Run& run, Token token, std::span<const float> logits, const KvCache& cache);
  Result<GenerateResult> finish(Run& run, const KvCache& cache);

  std::unique_ptr<Network> network_;
  StoredPrompts stored_;
  CacheCalls calls_;
  Clock::duration beside_{0};  // of the prefill under way: steps of other rows
};

Status Generator::Impl::check(std::span<const Token> prompt, const GenerateOptions& options) const {
  if (prompt.empty()) return invalid_argument("prompt: no tokens");
  uint64_t most = uint64_t{prompt.size()} + options.max_new_tokens;
  if (most > network_->context()) {
    return invalid_argument("prompt of " + std::to_string(prompt.size()) + " tokens + " +
                            std::to_string(options.max_new_tokens) +
                            " new ones over the model's context " +
                            std::to_string(network_->context()));
  }
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < 0 || static_cast<uint32_t>(prompt[i]) >= network_->vocab()) {
      return invalid_argument("prompt: id " + std::to_string(prompt[i]) + " at " +
                              std::to_string(i) + " outside the vocabulary");
    }
  }
  const auto& ends = options.ends;
  bool ascend = std::is_sorted(ends.begin(), ends.end(), std::less_equal<>());
  if (!ascend || ends.size() > kMaxNamedEnds ||
      (!ends.empty() && (ends.front() == 0 || ends.back() > prompt.size()))) {
    return invalid_argument("ends: expected at most " + std::to_string(kMaxNamedEnds) +
                            " ascending numbers from 1 to the prompt's " +
                            std::to_string(prompt.size()) + " tokens");
  }
  return {};
}

// An empty cache under the profile in force, or what is stored of the prompt's first N-1 tokens.
void Generator::Impl::look_up(Run& run, KvCache& cache) {
  const GenerateOptions& o = run.options;
  if (!o.use_lookup && !(o.commit && stored_.stale())) return;
  size_t tokens = run.prompt.size();
  auto until = calls_.begin(o.cache_waits, fp16_bytes(tokens), tokens, o.deadline);
  if (!until.ok()) return run.note(until.status());
  auto hit = look_up_until(run, cache, *until);
  calls_.ended(hit.status());
  run.note(hit.status());
  if (!hit.ok()) return;
  run.result.reused_tokens = hit->tokens;
  run.result.tier = hit->tier;
  run.result.form = hit->form;
  run.result.reason = hit->reason;
}

Result<StoredPrompts::Hit> Generator::Impl::look_up_until(Run& run, KvCache& cache,
                                                          Deadline until) {
  KV_RETURN_IF_ERROR(stored_.refresh(until));
  cache = stored_.new_cache(run.options.checkpoint_interval);
  if (!run.options.use_lookup) return StoredPrompts::Hit{};
  return stored_.fetch(run.prompt, *network_, 1, cache, until);
}

// The rest of the prompt's first N-1 tokens.
Status Generator::Impl::compute(Run& run, KvCache& cache) {
  auto start = Clock::now();
  size_t missing = run.before_last().size() - cache.tokens();
  beside_ = {};
  KV_RETURN_IF_ERROR(compute_prompt(*network_, run.before_last(), cache, run.options.deadline));
  calls_.computed(missing, Clock::now() - start - beside_);
  return {};
}

// Stores the first `tokens` tokens of `cache`. Returns the commit's answer.
CommitReply Generator::Impl::store(Run& run, const KvCache& cache, uint32_t tokens,
                                   Durability wait_for) {
  const GenerateOptions& o = run.options;
  auto until = calls_.begin(o.cache_waits, fp16_bytes(tokens), tokens, o.deadline);
  Result<CommitReply> done = until.status();
  if (until.ok()) {
    Deadline longest = std::min(o.deadline, deadline_in(kLongestWaitForLevel));
    done = stored_.store(cache, tokens,
                         {run.ends, wait_for, *until, longest, calls_.ms_to_compute(tokens)});
    calls_.ended(done.status());
  }
  run.note(done.status());
  return done.ok() ? std::move(*done) : CommitReply();
}

// The first commit: what `cache` held of the prompt's first N-1 tokens.
void Generator::Impl::store_prompt(Run& run, const KvCache& cache) {
  GenerateResult& r = run.result;
  auto start = Clock::now();
  auto tokens = stored_.storable(cache, static_cast<uint32_t>(run.before_last().size()));
  if (tokens == 0 || !run.options.commit) return;
  bool whole_hit = r.reused_tokens == tokens;
  if (whole_hit && run.options.wait_for <= Durability::accepted) {
    r.level = Durability::accepted;
  } else {
    CommitReply done = store(run, cache, tokens, run.options.wait_for);
    r.level = done.level;
    r.ends = std::move(done.ends);
  }
  r.store_ms = ms_since(start);
}

void Generator::Impl::describe(Run& run, const KvCache& cache) const {
  GenerateResult& r = run.result;
  r.prompt_objects = cache.names();
  if (stored_.coded_prefill()) {
    std::erase_if(r.prompt_objects, [](const auto& n) { return n.kind == ObjectKind::tail; });
  }
  for (const ObjectPtr& block : cache.blocks()) r.block_bytes += block->payload_bytes();
  r.stored_bytes = cache.payload_bytes();
  r.fp16_bytes = fp16_rows_bytes(network_->spec(), cache.tokens());
}

// Everything before the last prompt token: its rows, as they are stored.
Result<KvCache> Generator::Impl::begin(Run& run) {
  KV_RETURN_IF_ERROR(check(run.prompt, run.options));
  GenerateResult& r = run.result;
  r.prompt_tokens = static_cast<uint32_t>(run.prompt.size());
  KvCache cache = stored_.new_cache(run.options.checkpoint_interval);
  look_up(run, cache);
  r.fetch_ms = ms_since(run.start);
  for (uint32_t end : run.options.ends) {
    end = stored_.storable(cache, end);
    if (end == 0 || (!run.ends.empty() && run.ends.back() == end)) continue;
    run.ends.push_back(end);
    cache.keep_end(end);
  }
  KV_RETURN_IF_ERROR(compute(run, cache));
  r.prefill_ms = ms_since(run.start) - r.fetch_ms;
  describe(run, cache);
  if (run.options.commit) cache.mark();
  if (run.options.max_new_tokens == 0) store_prompt(run, cache);
  if (Clock::now() < run.options.deadline) return cache;
  return Status(StatusCode::deadline_exceeded, "prompt: done, no time for a token");
}

// The token that a step gave, and its logits where they are kept; after the first one the prompt is
// stored. Returns whether another one is to follow.
Result<bool> Generator::Impl::take(Run& run, Token token, std::span<const float> logits,
                                   const KvCache& cache) {
  GenerateResult& r = run.result;
  r.tokens.push_back(token);
  if (run.options.keep_logits) r.logits.insert(r.logits.end(), logits.begin(), logits.end());
  if (r.tokens.size() == 1) {
    r.ttft_ms = ms_since(run.start);
    store_prompt(run, cache);
    run.first_done = Clock::now();
  } else {
    r.decode_ms_per_token = ms_since(run.first_done) / static_cast<double>(r.tokens.size() - 1);
  }
  if (run.options.stop_at_eos && network_->ends(token)) return false;
  if (r.tokens.size() == run.options.max_new_tokens) return false;
  if (Clock::now() < run.options.deadline) return true;
  return Status(StatusCode::deadline_exceeded,
                "decode: after " + std::to_string(r.tokens.size()) + " tokens");
}

// The second commit of what is stored as given: rows of the answer as a prompt has them, so that a
// hit on them gives a cold run's logits. What was stored of the prompt is taken from there.
void Generator::Impl::store_as_prompt(Run& run, const KvCache& cache) {
  if (!run.result.cache_error.empty()) return;  // all would be computed again
  std::vector<Token> tokens(cache.sequence().begin(), cache.sequence().end());
  tokens.push_back(run.result.tokens.back());
  GenerateOptions again = run.options;
  again.max_new_tokens = 0;
  again.use_lookup = true;
  again.wait_for = Durability::accepted;
  auto stored = generate(tokens, again);
  run.note(stored.status());
  if (stored.ok() && run.result.cache_error.empty()) run.result.cache_error = stored->cache_error;
}

// After the last token: the second commit.
Result<GenerateResult> Generator::Impl::finish(Run& run, const KvCache& cache) {
  if (!cache.valid()) {  // the lease's memory went while it was read: as if it had been a miss
    GenerateOptions again = run.options;
    again.use_lookup = again.commit = false;
    return generate(run.prompt, again);
  }
  uint32_t tokens = stored_.storable(cache, cache.tokens());
  bool answered = cache.tokens() > run.prompt.size() && tokens > 0;
  if (!run.options.commit || !run.options.commit_answer || !answered) return std::move(run.result);
  if (stored_.as_given()) {
    store_as_prompt(run, cache);
  } else {
    store(run, cache, tokens, Durability::accepted);
  }
  return std::move(run.result);
}

Result<GenerateResult> Generator::Impl::generate(std::span<const Token> prompt,
                                                 const GenerateOptions& options) {
  Run run{prompt, options, {}};
  KV_ASSIGN_OR_RETURN(KvCache cache, begin(run));
  std::vector<float> logits(network_->vocab());
  Token token = prompt.back();
  for (bool more = options.max_new_tokens > 0; more; token = run.result.tokens.back()) {
    KV_RETURN_IF_ERROR(network_->step(token, cache, logits));
    token = best_token(logits);
    KV_RETURN_IF_ERROR(settle_block(*network_, cache, options.deadline));
    KV_ASSIGN_OR_RETURN(more, take(run, token, logits, cache));
  }
  return finish(run, cache);
}

// Rows that decode together, those of one generate_all().
class Generator::Impl::Decoding {
 public:
  Decoding(Impl& impl, const GenerateOptions& options)
      : impl_(impl), options_(options), batch_(*impl.network_) {}

  size_t size() const { return rows_.size(); }
  void join(size_t index, Run run, KvCache cache) {
    const Token last = run.prompt.back();
    auto row = batch_.join(std::make_unique<Batch::Row>(std::move(cache), last));
    KV_CHECK(row.ok());
    rows_.push_back(std::make_unique<One>(One{index, std::move(run), *row, nullptr, {}}));
  }
  /// A token for each row that goes on.
  void step() {
    const auto start = Clock::now();
    stepping_ = true;
    batch_.step(options_.deadline);
    for (const auto& one : rows_) {
      if (!one->left) take(*one);
    }
    stepping_ = false;
    ended_ = Clock::now();
    took_ = ended_ - start;
  }
  /// While another prompt is computed: half of the time is its own.
  void step_between() {
    if (stepping_ || batch_.rows().empty() || Clock::now() - ended_ < took_) return;
    step();
    impl_.beside_ += took_;
  }
  /// Ends rows that have all their tokens.
  void collect(std::vector<Result<GenerateResult>>& out) {
    std::erase_if(rows_, [&](const auto& one) {
      if (!one->left) return false;
      out[one->index] = one->status.ok() ? impl_.finish(one->run, one->left->cache) : one->status;
      return true;
    });
  }

 private:
  struct One {
    size_t index;
    Run run;
    Batch::Row* row;
    std::unique_ptr<Batch::Row> left;  // it has all its tokens, or failed
    Status status;
  };
  void take(One& one) {
    Batch::Row& row = *one.row;
    Result<bool> more = row.status.ok()
                            ? impl_.take(one.run, best_token(row.logits), row.logits, row.cache)
                            : Result<bool>(row.status);
    if (more.ok() && *more) {
      row.token = one.run.result.tokens.back();
      return;
    }
    one.status = more.status();
    one.left = batch_.leave(one.row);
  }

  Impl& impl_;
  const GenerateOptions& options_;
  Batch batch_;
  std::vector<std::unique_ptr<One>> rows_;
  bool stepping_ = false;  // a step settles blocks, which is a prefill too
  Clock::time_point ended_{};
  Clock::duration took_{0};
};

std::vector<Result<GenerateResult>> Generator::Impl::generate_all(
    std::span<const std::vector<Token>> prompts, const GenerateOptions& options, uint32_t rows) {
  std::vector<Result<GenerateResult>> out(prompts.size(),
                                          Status(StatusCode::internal, "not begun"));
  Decoding decoding(*this, options);
  for (size_t next = 0; next < prompts.size() || decoding.size() > 0;) {
    if (next < prompts.size() && decoding.size() < rows) {  // a row is free
      Run run{prompts[next], options, {}};
      network_->while_prefilling([&] { decoding.step_between(); });
      auto cache = begin(run);
      network_->while_prefilling(nullptr);
      if (!cache.ok() || options.max_new_tokens == 0) {
        out[next] = cache.ok() ? finish(run, *cache) : cache.status();
      } else {
        decoding.join(next, std::move(run), std::move(*cache));
      }
      ++next;
    }
    decoding.step();
    decoding.collect(out);
  }
  return out;
}

Generator::Generator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Generator::~Generator() = default;

Result<std::unique_ptr<Generator>> Generator::open(std::unique_ptr<Network> network, Client& client,
                                                   const CodingOptions& coding, Deadline deadline) {
  KV_ASSIGN_OR_RETURN(StoredPrompts stored,
                      StoredPrompts::open(*network, client, coding, deadline));
  auto impl = std::make_unique<Impl>(std::move(network), std::move(stored));
  return std::unique_ptr<Generator>(new Generator(std::move(impl)));
}

Result<std::unique_ptr<Generator>> Generator::open(std::shared_ptr<const Model> model,
                                                   Client& client, const CodingOptions& coding,
                                                   uint32_t threads, Deadline deadline) {
  KV_ASSIGN_OR_RETURN(auto network, make_network(std::move(model), threads));
  return open(std::move(network), client, coding, deadline);
}

Status Generator::warm_up() {
  constexpr Token kTokens = 33;  // a prefill in bands, and a step
  std::vector<Token> prompt(kTokens);
  for (Token t = 0; t < kTokens; ++t) prompt[static_cast<size_t>(t)] = t;
  GenerateOptions options;
  options.max_new_tokens = 1;
  options.use_lookup = options.commit = options.stop_at_eos = false;
  return generate(prompt, options).status();
}

Result<GenerateResult> Generator::generate(std::span<const Token> prompt,
                                           const GenerateOptions& options) {
  return impl_->generate(prompt, options);
}

std::vector<Result<GenerateResult>> Generator::generate_all(
    std::span<const std::vector<Token>> prompts, const GenerateOptions& options, uint32_t rows) {
  return impl_->generate_all(prompts, options, std::clamp(rows, 1u, kMaxBatchRows));
}

const OpenReply& Generator::opened() const { return impl_->opened(); }
const Network& Generator::network() const { return impl_->network(); }

}  // namespace kv
