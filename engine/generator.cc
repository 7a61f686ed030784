// The flow of one generation: fetch, prefill, commit, take over, decode, commit. See generator.h.
#include "engine/generator.h"

#include <algorithm>

#include "codec/codec.h"
#include "codec/plan.h"
#include "engine/calibration.h"
#include "engine/model_network.h"

namespace kv {
namespace {

using Clock = std::chrono::steady_clock;

// Remainders up to this length are computed token by token: a padded chunk costs as much as
// some 60.
constexpr uint32_t kShortRemainder = 32;
constexpr std::chrono::minutes kLongestCacheCall{5};

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

Deadline cache_deadline(Deadline given) { return std::min(given, deadline_in(kLongestCacheCall)); }

CodingSettings settings_of(const CodingOptions& coding) {
  CodingSettings settings;
  settings.k_bits = coding.exact ? 0 : coding.k_bits;
  settings.v_bits = coding.exact ? 0 : coding.v_bits;
  settings.raw_dtype = coding.exact ? DType::f32 : DType::f16;
  return settings;
}

Token best_of(std::span<const float> logits) {  // of equal ones the lowest id
  return static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

class Generator::Impl {
 public:
  Impl(std::unique_ptr<Network> network, Client& client)
      : network_(std::move(network)), client_(client) {}

  Status open(const CodingOptions& coding, Deadline deadline);
  Result<GenerateResult> generate(std::span<const Token> prompt, const GenerateOptions& options);

  const OpenReply& opened() const { return opened_; }
  const Network& network() const { return *network_; }

 private:
  // One generation's working values.
  struct Run {
    std::span<const Token> prompt;
    const GenerateOptions& options;
    GenerateResult result;
  };
  Status check(std::span<const Token> prompt, const GenerateOptions& options) const;
  void note(Run& run, const Status& status) const;
  bool fetch(Run& run, KvCache& cache, bool first);
  Status compute_prompt(Run& run, KvCache& cache);
  bool store(Run& run, const KvCache& cache, std::span<const Token> tokens, Durability wait_for,
             Durability* level);
  Result<bool> put_missing(const KvCache& cache, const ReserveReply& reserved, Deadline deadline);
  void take_stored(Run& run, KvCache& cache);
  void describe(Run& run, const KvCache& cache) const;
  Status decode(Run& run, KvCache& cache, Clock::time_point start);

  std::unique_ptr<Network> network_;
  Client& client_;
  OpenReply opened_;
  std::shared_ptr<const Codec> codec_;
};

Status Generator::Impl::open(const CodingOptions& coding, Deadline deadline) {
  const ModelSpec& spec = network_->spec();
  KV_ASSIGN_OR_RETURN(Profile profile, plain_profile(spec, settings_of(coding)));
  if (coding.calibrate && profile.requested_k_bits != 0) {
    auto made = coding.calibration_file.empty()
                    ? kv::calibrate(*network_, profile, deadline)
                    : calibrate_with_file(*network_, profile, coding.calibration_file, deadline);
    KV_ASSIGN_OR_RETURN(profile, std::move(made));
  }
  OpenRequest request;
  request.model = spec;
  request.profile = std::make_shared<const Profile>(std::move(profile));
  request.replace = coding.replace;
  KV_ASSIGN_OR_RETURN(opened_, client_.open(request, cache_deadline(deadline)));
  if (!opened_.profile) return {StatusCode::internal, "open: the reply carries no profile"};
  if (opened_.profile->prefill != PrefillMode::exact) {
    return unsupported("the profile in force has prefill = coded; use another namespace");
  }
  KV_ASSIGN_OR_RETURN(codec_, Codec::create(spec, opened_.profile));
  return {};
}

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
  return {};
}

void Generator::Impl::note(Run& run, const Status& status) const {
  if (!status.ok() && run.result.cache_error.empty()) run.result.cache_error = status.to_string();
}

// Takes over what the cache has of the prompt's first N-1 tokens. The first fetch takes any length,
// a later one (`first` false) only all of them. Returns whether `cache` was replaced.
bool Generator::Impl::fetch(Run& run, KvCache& cache, bool first) {
  FetchRequest request;
  request.model = opened_.model;
  request.query.tokens.assign(run.prompt.begin(), run.prompt.end());
  auto reply = client_.fetch(request, cache_deadline(run.options.deadline));
  note(run, reply.status());
  if (!reply.ok() || reply->tokens == 0) return false;
  if (reply->tokens >= run.prompt.size()) {
    note(run, {StatusCode::internal, "fetch: more than the query's length - 1"});
    return false;
  }
  if (!first && reply->tokens + 1 != run.prompt.size()) return false;
  KvCache taken(codec_, opened_.realm);
  Status adopted = taken.adopt(std::move(reply->lease), run.prompt);
  note(run, adopted);
  if (!adopted.ok() || taken.tokens() != reply->tokens) return false;
  cache = std::move(taken);
  if (first) {
    run.result.reused_tokens = reply->tokens;
    run.result.tier = reply->tier;
    run.result.form = reply->form;
  }
  return true;
}

// The prompt's tokens up to the last but one.
Status Generator::Impl::compute_prompt(Run& run, KvCache& cache) {
  auto tokens = run.prompt.first(run.prompt.size() - 1);
  if (cache.tokens() == tokens.size()) return {};
  if (tokens.size() - cache.tokens() > kShortRemainder) {
    return network_->prefill(tokens, cache, run.options.deadline);
  }
  while (cache.tokens() < tokens.size()) {
    KV_RETURN_IF_ERROR(network_->step(tokens[cache.tokens()], cache, {}));
  }
  return {};
}

// Puts every object that the reservation lacks. Returns whether nothing of ours was there before.
Result<bool> Generator::Impl::put_missing(const KvCache& cache, const ReserveReply& reserved,
                                          Deadline deadline) {
  bool tail = cache.tokens() % cache.block_tokens() != 0;
  std::vector<bool> missing(cache.blocks().size() + (tail ? 1 : 0));
  for (const Need& need : reserved.needs) {
    KV_ASSIGN_OR_RETURN(ObjectPtr object, cache.object(need));
    if (!object && !need.required) continue;
    bool main = need.kind == ObjectKind::block || need.kind == ObjectKind::tail;
    if (!object || (main && need.block_index >= missing.size())) {
      return Status(StatusCode::internal, std::string("reserve: asks for a ") +
                                              to_string(need.kind) + " that the entry lacks");
    }
    if (main) missing[need.block_index] = true;
    KV_RETURN_IF_ERROR(client_.put({reserved.reservation, *object, {}}, deadline));
  }
  return std::count(missing.begin(), missing.end(), false) == 0;
}

// Stores `tokens`, whose rows `cache` holds. Returns whether what is stored is for certain what
// `cache` holds (false: fetch it again).
bool Generator::Impl::store(Run& run, const KvCache& cache, std::span<const Token> tokens,
                            Durability wait_for, Durability* level) {
  Deadline deadline = cache_deadline(run.options.deadline);
  ReserveRequest request;
  request.model = opened_.model;
  request.profile = opened_.realm.profile;
  request.query.tokens.assign(tokens.begin(), tokens.end());
  auto reserved = client_.reserve(request, deadline);
  note(run, reserved.status());
  if (!reserved.ok()) return true;  // nothing stored: ours is what we attend to
  auto ours = put_missing(cache, *reserved, deadline);
  note(run, ours.status());
  if (!ours.ok()) {
    (void)client_.abort(reserved->reservation, deadline);
    return true;
  }
  auto commit = client_.commit(reserved->reservation, wait_for, deadline);
  note(run, commit.status());
  if (!commit.ok()) return true;
  if (level != nullptr) *level = commit->level;
  return *ours && commit->foreign.empty();
}

// First commit, then what is stored under the prompt's names, if it may be another run's.
void Generator::Impl::take_stored(Run& run, KvCache& cache) {
  uint32_t reused = run.result.reused_tokens;
  auto tokens = run.prompt.first(run.prompt.size() - 1);
  if (tokens.empty() || !run.options.commit) return;
  bool whole_hit = reused == tokens.size();
  if (whole_hit && run.options.wait_for <= Durability::accepted) {
    run.result.level = Durability::accepted;
    return;
  }
  bool same = store(run, cache, tokens, run.options.wait_for, &run.result.level);
  if (!same && !whole_hit) fetch(run, cache, false);
}

void Generator::Impl::describe(Run& run, const KvCache& cache) const {
  std::vector<ObjectPtr> objects = cache.fetched();
  if (objects.empty()) {
    objects = cache.blocks();
    if (auto tail = cache.tail(); tail.ok() && *tail) objects.push_back(*tail);
  }
  for (const ObjectPtr& object : objects) {
    run.result.prompt_objects.push_back(object->name);
    run.result.stored_bytes += object->payload_bytes();
    if (object->name.kind == ObjectKind::block) run.result.block_bytes += object->payload_bytes();
  }
  run.result.fp16_bytes = cache.tokens() * fp16_bytes_per_token(network_->spec());
}

// The last prompt token and all that follow, on the stored form.
Status Generator::Impl::decode(Run& run, KvCache& cache, Clock::time_point start) {
  uint32_t vocab = network_->vocab();
  std::vector<float> logits(vocab);
  GenerateResult& r = run.result;
  Token token = run.prompt.back();
  Clock::time_point first_done = start;
  while (r.tokens.size() < run.options.max_new_tokens) {
    if (Clock::now() >= run.options.deadline) {
      return {StatusCode::deadline_exceeded,
              "decode: after " + std::to_string(r.tokens.size()) + " tokens"};
    }
    KV_RETURN_IF_ERROR(network_->step(token, cache, logits));
    token = best_of(logits);
    r.tokens.push_back(token);
    if (r.tokens.size() == 1) {
      r.ttft_ms = ms_since(start);
      first_done = Clock::now();
    }
    if (run.options.keep_logits) r.logits.insert(r.logits.end(), logits.begin(), logits.end());
    if (run.options.stop_at_eos && network_->ends(token)) break;
  }
  if (r.tokens.size() > 1) {
    r.decode_ms_per_token = ms_since(first_done) / static_cast<double>(r.tokens.size() - 1);
  }
  return {};
}

Result<GenerateResult> Generator::Impl::generate(std::span<const Token> prompt,
                                                 const GenerateOptions& options) {
  auto start = Clock::now();
  KV_RETURN_IF_ERROR(check(prompt, options));
  Run run{prompt, options, {}};
  GenerateResult& r = run.result;
  r.prompt_tokens = static_cast<uint32_t>(prompt.size());
  KvCache cache(codec_, opened_.realm);
  if (options.use_lookup) fetch(run, cache, true);
  r.fetch_ms = ms_since(start);
  KV_RETURN_IF_ERROR(compute_prompt(run, cache));
  r.prefill_ms = ms_since(start) - r.fetch_ms;
  take_stored(run, cache);
  r.store_ms = ms_since(start) - r.fetch_ms - r.prefill_ms;
  describe(run, cache);
  KV_RETURN_IF_ERROR(decode(run, cache, start));
  if (options.commit && options.commit_answer && cache.tokens() > prompt.size()) {
    std::vector<Token> all(prompt.begin(), prompt.end());
    all.insert(all.end(), r.tokens.begin(), r.tokens.end());
    all.resize(cache.tokens());
    store(run, cache, all, Durability::accepted, nullptr);
  }
  return std::move(r);
}

Generator::Generator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Generator::~Generator() = default;

Result<std::unique_ptr<Generator>> Generator::open(std::unique_ptr<Network> network, Client& client,
                                                   const CodingOptions& coding, Deadline deadline) {
  auto impl = std::make_unique<Impl>(std::move(network), client);
  KV_RETURN_IF_ERROR(impl->open(coding, deadline));
  return std::unique_ptr<Generator>(new Generator(std::move(impl)));
}

Result<std::unique_ptr<Generator>> Generator::open(std::shared_ptr<const Model> model,
                                                   Client& client, const CodingOptions& coding,
                                                   uint32_t threads, Deadline deadline) {
  KV_ASSIGN_OR_RETURN(auto network, make_network(std::move(model), threads));
  return open(std::move(network), client, coding, deadline);
}

Result<GenerateResult> Generator::generate(std::span<const Token> prompt,
                                           const GenerateOptions& options) {
  return impl_->generate(prompt, options);
}

const OpenReply& Generator::opened() const { return impl_->opened(); }
const Network& Generator::network() const { return impl_->network(); }

}  // namespace kv
