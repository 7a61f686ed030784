// Turns, one per handler.
#include "cachesvc/daemon/turns.h"

#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>

namespace kv {

void Turns::ask(const std::string& party, Turn turn) {
  queue_.push(party, std::move(turn));
  if (!posted_) go_on();
}

void Turns::go_on() {
  boost::asio::post(loop_, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->next();
  });
  posted_ = true;
}

void Turns::next() {
  using Clock = std::chrono::steady_clock;
  posted_ = false;
  auto [party, turn] = queue_.pop();
  // Posted before the turn: those behind it have theirs even if it throws.
  if (!queue_.empty()) go_on();
  const auto begun = Clock::now();
  turn();
  turn = nullptr;  // destructors count as part of the turn
  queue_.spend(party, static_cast<uint64_t>((Clock::now() - begun) / std::chrono::nanoseconds(1)));
}

}  // namespace kv
