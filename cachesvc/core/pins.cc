// Pins that a lease holds.
#include "cachesvc/core/pins.h"

namespace kv {

std::shared_ptr<const void> hold(Env& env, Pins pins) {
  struct Held {
    std::shared_ptr<LoopGate> gate;
    Pins pins;
    PostMemory memory;
  };
  auto held = std::make_shared<Held>();
  held->gate = env.gate;
  held->pins = std::move(pins);
  auto release = [held](const void*) {
    if (!held->gate->post(held->memory, [held] { held->pins.release(); })) held->pins.forget();
  };
  return std::shared_ptr<const void>(held.get(), std::move(release));
}

}  // namespace kv
