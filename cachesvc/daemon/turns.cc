// One turn a handler.
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
  // Before the turn: whatever comes out of it, those behind it have theirs.
  if (!queue_.empty()) go_on();
  const auto begun = Clock::now();
  turn();
  turn = nullptr;  // what it ends is a part of it
  queue_.spend(party, static_cast<uint64_t>((Clock::now() - begun) / std::chrono::nanoseconds(1)));
}

}  // namespace kv
