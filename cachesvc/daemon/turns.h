// Turns: the loop's time, divided among namespaces.
//
// Each piece of a connection's work, some bytes or a request, is a turn of its namespace; one turn
// runs in each handler. Next is the namespace whose turns have taken least time, so one with many
// connections and requests leaves others theirs. Connections without a hello are one party
// together, which limits their pace. Loop thread only.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <functional>
#include <memory>
#include <string>

#include "cachesvc/loop/fair_queue.h"

namespace kv {

class Turns : public std::enable_shared_from_this<Turns> {
 public:
  using Turn = std::function<void()>;
  /// The party of connections that have said no hello yet.
  static constexpr const char* kNewcomers = "";

  explicit Turns(boost::asio::any_io_executor loop) : loop_(std::move(loop)) {}
  Turns(const Turns&) = delete;  // handlers point here
  Turns& operator=(const Turns&) = delete;

  /// Runs `turn` in a handler of its own, later; never, if the turns end before.
  void ask(const std::string& party, Turn turn);
  bool none_waits() const { return queue_.empty(); }

 private:
  void go_on();
  void next();

  boost::asio::any_io_executor loop_;
  FairQueue<std::string, Turn> queue_;
  bool posted_ = false;
};

}  // namespace kv
