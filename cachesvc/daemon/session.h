// Session: one connection of the service: frames in, calls to the core, frames out.
//
// Requests are answered in the order in which the core finishes them, each frame under its
// request's id. Bounded: length of every frame, requests in flight, unsent bytes, time without
// progress. Planes are received into a charged buffer and sent from where they lie. When it closes,
// for whatever reason, the core forgets its reservations. Loop thread only. PROTOCOL.md,
// "Connections".
#pragma once

#include <boost/asio/local/stream_protocol.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "cachesvc/core/cache_core.h"
#include "cachesvc/daemon/event_log.h"
#include "cachesvc/daemon/fetch_frames.h"
#include "cachesvc/daemon/server_options.h"
#include "proto/message.h"

namespace kv {

class Session;

/// What a session needs of its server, which outlives it.
struct SessionHost {
  CacheCore& core;
  const ServerOptions& options;
  /// Once, when the session closes; `why` is for the log.
  std::function<void(Session&, std::string_view why)> closed;
  EventLog& events;
  /// Models (namespace, fingerprint, profile) whose coding is in the log: the last kMaxReported.
  std::set<std::string> reported;
};
inline constexpr size_t kMaxReported = 4096;

/// Bytes that one session may move before others get their turn.
inline constexpr size_t kTurnBytes = 128u << 10;
/// Bodies of requests above this are charged to the RAM ledger before they are taken; of those
/// under way together not more than twice as much is not charged.
inline constexpr uint64_t kMaxUnchargedBytes = 32u << 10;
/// So is a reply with which a session would have more unsent than this.
inline constexpr uint64_t kMaxUnchargedReplyBytes = 32u << 10;
/// What a connection is charged for these, and for what it reads ahead.
inline constexpr uint64_t kSessionBytes = 128u << 10;
/// A frame, and replies that are owed, move at least so fast (after progress_timeout), or the
/// connection is cut.
inline constexpr uint64_t kMinBytesPerSecond = 1u << 20;

class Session : public std::enable_shared_from_this<Session> {
 public:
  using Socket = boost::asio::local::stream_protocol::socket;
  using Clock = std::chrono::steady_clock;

  /// `room` has kSessionBytes, or is null: it has none.
  Session(SessionHost& host, Socket socket, uint64_t number, std::shared_ptr<const void> room);
  ~Session();
  Session(const Session&) = delete;  // handlers point here
  Session& operator=(const Session&) = delete;

  void start();
  /// Cuts the connection now.
  void close(std::string_view why);
  /// Takes no further request; closes once everything owed is sent.
  void finish();
  /// Closes if a time limit has passed.
  void check(Clock::time_point now);

  uint64_t number() const { return number_; }
  bool paid() const { return room_ != nullptr; }
  const std::string& peer() const { return peer_; }  ///< namespace and program, from the hello

 private:
  struct Outgoing {
    OutFrame frame;
    bool last;  ///< of its request's reply
  };

  bool may_read() const;
  void pump();
  void resume();
  void pump_frames();
  bool read_some(size_t& budget);
  void ask_for_staging();
  void take_staging(Result<Staging> buffer);

  void handle(Frame frame);
  void dispatch(const Frame& frame);
  void handle_hello(const Frame& frame);
  void handle_put(const Frame& frame);
  void handle_open(const Frame& frame);
  void log_coding(const std::string& model, const OpenReply& reply);
  void handle_reserve(const Frame& frame);
  void handle_commit(const Frame& frame);
  void handle_abort(const Frame& frame);
  void handle_fetch(const Frame& frame);
  void handle_erase(const Frame& frame);
  void handle_stats(const Frame& frame);
  void handle_lookup(const Frame& frame, FrameType reply);

  template <typename T>
  bool decode_or_refuse(const Frame& frame, T& message, Deadline& deadline);
  template <typename T>
  Done<Result<T>> answer(uint64_t request, FrameType type);
  template <typename T>
  void reply(uint64_t request, FrameType type, const T& message);
  Done<Status> acknowledge(uint64_t request, FrameType type);
  Deadline deadline_of(uint32_t timeout_ms) const;
  void send_fetch(uint64_t request, const std::shared_ptr<FetchFrames>& reply);
  void send_error(uint64_t request, const Status& status);
  void send(OutFrame frame, bool last);
  void queue(OutFrame frame, bool last);
  void refuse_connection(uint64_t request, const Status& status);
  void flush();
  void write_turn();
  bool write_some(size_t& budget);

  SessionHost& host_;
  Socket socket_;
  const uint64_t number_;
  const std::shared_ptr<const void> room_;
  std::string peer_ = "no hello yet";
  FrameParser parser_;
  bool greeted_ = false, finishing_ = false, closed_ = false;
  bool pumping_ = false, read_armed_ = false, write_armed_ = false, flushing_ = false;
  uint64_t session_ = 0;  ///< of the core, once greeted
  size_t in_flight_ = 0;
  uint64_t uncharged_bytes_ = 0;  ///< bodies taken since none was in flight

  bool asking_ = false;   ///< allocate_staging is under way
  Staging staging_;       ///< the body that is arriving
  Status staging_error_;  ///< why it is dropped instead

  std::deque<Outgoing> out_;
  uint64_t unsent_bytes_ = 0, front_sent_ = 0;
  uint64_t sent_since_ = 0;  ///< since there is something unsent
  Clock::time_point accepted_, last_read_, last_write_, frame_begun_, unsent_since_;
};

}  // namespace kv
