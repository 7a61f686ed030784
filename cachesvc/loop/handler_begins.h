// Handler begins: the time at which Asio begins a handler. The time before, spent waiting for an
// event, keeps nobody waiting, and LoopWatch leaves it out.
//
// Asio itself includes this file wherever it is used (BOOST_ASIO_CUSTOM_HANDLER_TRACKING, which
// kv_cachesvc hands on to all that link it) and wants every macro below; only the first has a body.
// Each thread notes its own handlers, and only while it asks (LoopWatch::run).
#pragma once

#include <time.h>

#include <chrono>

namespace kv {

/// Processor time of the calling thread.
inline std::chrono::nanoseconds thread_time() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

/// Begin of the first handler since `awaited` was set.
struct HandlerBegin {
  bool awaited = false;
  std::chrono::steady_clock::time_point wall;
  std::chrono::nanoseconds cpu{0};
};
inline thread_local HandlerBegin handler_begin;

inline void note_handler_begins() {
  if (!handler_begin.awaited) return;
  handler_begin = {false, std::chrono::steady_clock::now(), thread_time()};
}

}  // namespace kv

#define BOOST_ASIO_HANDLER_INVOCATION_BEGIN(args) ::kv::note_handler_begins()
#define BOOST_ASIO_INHERIT_TRACKED_HANDLER
#define BOOST_ASIO_ALSO_INHERIT_TRACKED_HANDLER
#define BOOST_ASIO_HANDLER_TRACKING_INIT (void)0
#define BOOST_ASIO_HANDLER_LOCATION(args) (void)0
#define BOOST_ASIO_HANDLER_CREATION(args) (void)0
#define BOOST_ASIO_HANDLER_COMPLETION(args) (void)0
#define BOOST_ASIO_HANDLER_INVOCATION_END (void)0
#define BOOST_ASIO_HANDLER_OPERATION(args) (void)0
#define BOOST_ASIO_HANDLER_REACTOR_REGISTRATION(args) (void)0
#define BOOST_ASIO_HANDLER_REACTOR_DEREGISTRATION(args) (void)0
#define BOOST_ASIO_HANDLER_REACTOR_READ_EVENT 0
#define BOOST_ASIO_HANDLER_REACTOR_WRITE_EVENT 0
#define BOOST_ASIO_HANDLER_REACTOR_ERROR_EVENT 0
#define BOOST_ASIO_HANDLER_REACTOR_EVENTS(args) (void)0
#define BOOST_ASIO_HANDLER_REACTOR_OPERATION(args) (void)0
