// Signals, and the orderly end.
#include "cachesvc/daemon/drainer.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "cachesvc/daemon/log.h"

namespace kv {

namespace level = spdlog::level;

void Drainer::ignore_others() {
  for (int signal : {SIGHUP, SIGUSR1, SIGUSR2}) ::signal(signal, SIG_IGN);
}

Drainer::Drainer(boost::asio::io_context& io, CacheCore& core, Server& server,
                 const Supervisor& supervisor, Milliseconds limit,
                 std::function<Milliseconds()> reload)
    : io_(io),
      core_(core),
      server_(server),
      supervisor_(supervisor),
      limit_(limit),
      reload_(std::move(reload)),
      signals_(io, SIGTERM, SIGINT, SIGQUIT) {
  signals_.add(SIGHUP);
  wait();
}

void Drainer::wait() {
  signals_.async_wait([this](const boost::system::error_code& ec, int signal) {
    if (ec) return;
    wait();
    on_signal(signal);
  });
}

void Drainer::on_signal(int signal) {
  const LogFields fields{"signal", {{"signal", static_cast<uint64_t>(signal)}}};
  if (signal == SIGHUP) {
    if (!draining_) limit_ = reload_();
    return;
  }
  if (!draining_) {
    draining_ = true;
    asked_ = Clock::now();
    log_line(level::info, fields,
             "signal " + std::to_string(signal) + ": draining, at most " +
                 std::to_string(limit_.count()) + " ms");
    return drain();
  }
  if (Clock::now() - asked_ < kRepeat) return;  // the same wish, said twice
  log_line(level::warn, fields, "second signal: exit now");
  flush_log();
  ::_exit(EXIT_FAILURE);
}

void Drainer::drain() {
  Deadline deadline = deadline_in(limit_);
  supervisor_.stopping();
  server_.stop_accepting();
  core_.drain(deadline, [this, deadline](Status status) { drained(status, deadline); });
}

void Drainer::drained(const Status& status, Deadline deadline) {
  if (status.ok()) {
    log_line(level::info, {"drained", {}}, "drained");
  } else {
    log_line(level::warn, {"drained", {}}, "drain incomplete: " + status.to_string());
  }
  // Answers that are ready still go out.
  Deadline last = std::max(deadline, deadline_in(Milliseconds(100)));
  server_.finish(last, [this] { io_.stop(); });
}

}  // namespace kv
