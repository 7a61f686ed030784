// to_loop: a callback for another thread, which hands its value to a step of the core's loop. The
// step never runs if the core is closed by then.
#pragma once

#include <boost/asio/post.hpp>
#include <functional>
#include <memory>
#include <utility>

#include "cachesvc/core/env.h"

namespace kv {

template <typename T, typename Step>
std::function<void(T)> to_loop(Env& env, Step step) {
  auto kept = std::make_shared<Step>(std::move(step));  // it is freed on the loop
  return [weak = env.weak_from_this(), loop = env.loop, kept = std::move(kept)](T value) mutable {
    boost::asio::post(loop, [weak, kept = std::move(kept), value = std::move(value)]() mutable {
      if (auto self = weak.lock(); self && !self->closed()) {
        self->run([&] { (*kept)(std::move(value)); });
      }
    });
  };
}

}  // namespace kv
