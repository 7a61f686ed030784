// Open questions by model, length and last tokens, and in the order of their ends.
#include "cachesvc/core/open_questions.h"

#include <algorithm>
#include <utility>

#include "proto/checksum.h"

namespace kv {
namespace {

constexpr size_t kLastTokens = 256;  // tell one prompt from another: most differ at their ends

}  // namespace

OpenQuestions::OpenQuestions(Env& env, std::function<void(const OpenQuestion&)> given_up)
    : given_up_(std::move(given_up)),
      timer_(env.loop, env.handler([this] { give_up(Clock::now()); })) {}

OpenQuestions::Key OpenQuestions::key_of(const RealmState& realm, const Query& query) {
  const auto last = std::span(query.tokens).last(std::min(query.tokens.size(), kLastTokens));
  const Xxh128 sum = xxh3_128({reinterpret_cast<const uint8_t*>(last.data()), last.size_bytes()});
  return {realm.index, query.tokens.size(), sum.low, sum.high};
}

void OpenQuestions::keep(const RealmState& realm, const Query& query, OpenQuestion question) {
  const Key key = key_of(realm, query);
  question.ns = realm.realm.ns;
  question.model = realm.model->name;
  question.tokens = query.tokens.size();
  if (const auto at = open_.find(key); at != open_.end()) remove(at);
  if (open_.size() == kMost) give_up_oldest();
  order_.emplace_back(Clock::now() + kPatience, key);
  open_.emplace(key, Open{std::move(question), std::prev(order_.end())});
  if (!timer_.armed()) watch();
}

std::optional<OpenQuestion> OpenQuestions::take(const RealmState& realm, const Query& query) {
  if (open_.empty()) return std::nullopt;
  const auto at = open_.find(key_of(realm, query));
  if (at == open_.end()) return std::nullopt;
  return remove(at);
}

OpenQuestion OpenQuestions::remove(std::map<Key, Open>::iterator at) {
  OpenQuestion question = std::move(at->second.question);
  order_.erase(at->second.place);
  open_.erase(at);
  return question;
}

void OpenQuestions::give_up_oldest() {
  const OpenQuestion question = remove(open_.find(order_.front().second));
  if (question.state == OpenQuestion::State::pending) given_up_(question);
}

void OpenQuestions::give_up(Clock::time_point now) {
  while (!order_.empty() && order_.front().first <= now) give_up_oldest();
  watch();
}

void OpenQuestions::watch() {
  order_.empty() ? timer_.cancel() : timer_.arm_at(order_.front().first);
}

void OpenQuestions::check_invariants() const {
  KV_CHECK(open_.size() == order_.size() && open_.size() <= kMost);
  KV_CHECK(open_.empty() || timer_.armed());
  for (auto at = order_.begin(); at != order_.end(); ++at) {
    const auto found = open_.find(at->second);
    KV_CHECK(found != open_.end() && found->second.place == at);
  }
}

}  // namespace kv
