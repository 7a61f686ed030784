// OpenQuestions: prompts whose client is about to ask again: fetches that were answered `pending`,
// and lookups that found nothing, which a fetch of the same tokens may still follow. So a
// question that is asked many times is one request: counted once, with the tier that had its rows
// at first and the time since it was first asked.
//
//   pending ──asked again──> taken by the fetch ──served──> noted once
//                                └──still pending──> kept again
//   pending ──nobody asks for kPatience, or too many wait──> given up: its tokens were missed
//   found nothing (counted at once) ──a fetch──> taken, not counted again
//                                       └──kPatience──> forgotten
//
// A question is told by its model, its length and its last tokens, whoever asks. At most kMost
// wait. Fetches calls. Loop thread only.
#pragma once

#include <compare>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>

#include "cachesvc/core/env.h"
#include "cachesvc/core/realm_state.h"
#include "cachesvc/loop/timer.h"

namespace kv {

struct OpenQuestion {
  enum class State : uint8_t { found_nothing, pending };
  State state = State::pending;
  uint64_t number = 0;         ///< of its record in the request ring; 0: none
  Clock::time_point begun{};   ///< when it was first asked
  uint64_t ssd_tokens = 0;     ///< of its hit: those that RAM had not then, and the SSD had
  uint64_t remote_tokens = 0;  ///< likewise the shared tier
  std::string ns{}, model{};   ///< who asks
  uint64_t tokens = 0;         ///< of the query
};

class OpenQuestions {
 public:
  static constexpr size_t kMost = 512;
  static constexpr Clock::duration kPatience = std::chrono::seconds(10);

  /// `given_up` is called for a pending one that nobody asks again.
  OpenQuestions(Env& env, std::function<void(const OpenQuestion&)> given_up);
  OpenQuestions(const OpenQuestions&) = delete;  // the timer points here
  OpenQuestions& operator=(const OpenQuestions&) = delete;

  /// Keeps the question, in place of the same one. Sets who asks, and the length.
  void keep(const RealmState& realm, const Query& query, OpenQuestion question);
  /// The same question, which is open no more.
  std::optional<OpenQuestion> take(const RealmState& realm, const Query& query);
  /// Gives up those that were kept before now - kPatience.
  void give_up(Clock::time_point now);
  size_t size() const { return open_.size(); }
  void close() { timer_.cancel(); }
  void check_invariants() const;

 private:
  struct Key {
    uint32_t realm;      // RealmState::index
    size_t tokens;       // of the query
    uint64_t low, high;  // a sum of its last tokens
    auto operator<=>(const Key&) const = default;
  };
  struct Open {
    OpenQuestion question;
    std::list<std::pair<Clock::time_point, Key>>::iterator place;
  };

  static Key key_of(const RealmState& realm, const Query& query);
  OpenQuestion remove(std::map<Key, Open>::iterator at);
  void give_up_oldest();
  void watch();

  const std::function<void(const OpenQuestion&)> given_up_;
  std::map<Key, Open> open_;
  std::list<std::pair<Clock::time_point, Key>> order_;  // by when they are given up
  Timer timer_;
};

}  // namespace kv
