// Acceptor: takes the connections of one listening socket, one in each turn of the newcomers. What
// the system refuses is told and tried again. Loop thread only.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <utility>

#include "cachesvc/daemon/event_log.h"
#include "cachesvc/daemon/frame_sender.h"
#include "cachesvc/daemon/turns.h"
#include "cachesvc/loop/timer.h"

namespace kv {

template <typename Protocol>
class Acceptor {
 public:
  using Take = std::function<void(FrameSender::Socket socket)>;

  /// `take` gets each connection. `turns` and `events` outlive the acceptor.
  Acceptor(boost::asio::io_context& io, Turns& turns, EventLog& events, Take take)
      : turns_(turns),
        events_(events),
        take_(std::move(take)),
        acceptor_(io),
        later_(io.get_executor(), [this] { accept(); }) {}
  Acceptor(const Acceptor&) = delete;  // handlers point here
  Acceptor& operator=(const Acceptor&) = delete;

  /// The socket, to be opened, bound and made to listen.
  typename Protocol::acceptor& socket() { return acceptor_; }
  void begin() {
    taking_ = true;
    accept();
  }
  void stop() {
    taking_ = false;
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    later_.cancel();
  }
  bool taking() const { return taking_; }

 private:
  static constexpr std::chrono::milliseconds kAgain{100};

  void accept() {
    acceptor_.async_accept(
        [this](const boost::system::error_code& ec, typename Protocol::socket socket) {
          if (ec == boost::asio::error::operation_aborted || !taking_) return;
          if (!ec) {
            auto shared = std::make_shared<FrameSender::Socket>(std::move(socket));
            return turns_.ask(Turns::kNewcomers, [this, shared] {
              if (!taking_) return;
              take_(std::move(*shared));
              accept();
            });
          }
          // Out of descriptors, most likely, which others give back.
          later_.arm_in(kAgain);
          events_.on(kAcceptFailed, ec.message(), 1, FrameSender::Clock::now());
        });
  }

  Turns& turns_;
  EventLog& events_;
  const Take take_;
  typename Protocol::acceptor acceptor_;
  Timer later_;
  bool taking_ = false;
};

}  // namespace kv
