// Pins that a lease holds.
#include "cachesvc/core/pins.h"

namespace kv {

namespace {

constexpr size_t kReleasedAtATime = 128;  // a long prompt has hundreds

struct Held {
  std::shared_ptr<LoopGate> gate;
  Pins pins;
  PostMemory memory;
};

void release(const std::shared_ptr<Held>& held) {
  auto some = [held] {
    if (held->pins.release_some(kReleasedAtATime)) release(held);
  };
  if (!held->gate->post(held->memory, std::move(some))) held->pins.forget();
}

}  // namespace

std::shared_ptr<const void> keep(Env& env, Pins pins) {
  auto held = std::make_shared<Held>();
  held->gate = env.gate;
  held->pins = std::move(pins);
  return std::shared_ptr<const void>(held.get(), [held](const void*) { release(held); });
}

}  // namespace kv
