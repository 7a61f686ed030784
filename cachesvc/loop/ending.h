// Ending: a step that runs exactly once: when it is called, or when its last owner is dropped.
//
// For what must end whatever becomes of the process that began it: a turn, a count of jobs under
// way, the answer of a call. dismiss(): the step is needed no more (what was begun is whole).
// Moves, never copies; the thread of its owner.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

namespace kv {

template <typename Step>
class Ending {
 public:
  explicit Ending(Step step) : step_(std::move(step)) {}
  Ending(Ending&& other) noexcept(std::is_nothrow_move_constructible_v<Step>)
      : step_(std::move(other.step_)) {
    other.step_.reset();
  }
  Ending& operator=(Ending&&) = delete;
  Ending(const Ending&) = delete;  // runs once
  ~Ending() { run(); }

  void run() {
    if (!step_) return;
    Step step = std::move(*step_);
    step_.reset();  // first: the step may end its owner
    step();
  }
  void dismiss() { step_.reset(); }

 private:
  std::optional<Step> step_;
};

}  // namespace kv
