// Each request of a session: decode, call the core, answer. PROTOCOL.md, "Messages".
#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

#include "cachesvc/daemon/log.h"
#include "cachesvc/daemon/session.h"
#include "cachesvc/daemon/version.h"
#include "codec/preset.h"

namespace kv {

Deadline Session::deadline_of(uint32_t timeout_ms) const {
  Milliseconds limit = host_.options.request_timeout;
  return deadline_in(timeout_ms == 0 ? limit : std::min(limit, Milliseconds(timeout_ms)));
}

// False after a body that can't be read was answered with an error.
template <typename T>
bool Session::decode_or_refuse(const Frame& frame, T& message, Deadline& deadline) {
  uint32_t timeout_ms = 0;
  auto decoded = decode_request<T>(frame.header.type, frame.body.span(), timeout_ms);
  if (!decoded.ok()) {
    send_error(frame.header.request, decoded.status());
    return false;
  }
  message = std::move(*decoded);
  deadline = deadline_of(timeout_ms);
  return true;
}

namespace {

// What a reply takes before it is encoded, where a client decides how long it is.
template <typename T>
uint64_t expected_bytes(const T&) {
  return 0;
}
uint64_t expected_bytes(const OpenReply& reply) {
  return encoded_bytes(*reply.profile) + reply.parts.size() * sizeof(CodingReport);
}

}  // namespace

// One frame, within its limit; a long one has room in the RAM ledger until it is sent.
template <typename T>
void Session::reply(uint64_t request, FrameType type, const T& message) {
  auto no_room = [&](uint64_t bytes) {
    send_error(request, {StatusCode::busy, std::string(to_string(type)) + ": no RAM for " +
                                               std::to_string(bytes) + " bytes of reply now"});
  };
  std::shared_ptr<const void> room;
  uint64_t bytes = expected_bytes(message);
  if (unsent_bytes_ + bytes > kMaxUnchargedReplyBytes && !(room = host_.core.reply_room(bytes))) {
    return no_room(bytes);
  }
  OutFrame frame = reply_frame(type, request, message);
  bytes = frame.bytes() - kFrameHeaderBytes;
  const uint64_t limit = max_body_bytes(type, true);
  if (bytes > limit) {
    return send_error(request, {StatusCode::resource_exhausted,
                                std::string(to_string(type)) + ": over the limit of " +
                                    std::to_string(limit) + " bytes"});
  }
  if (!room && unsent_bytes_ + bytes > kMaxUnchargedReplyBytes &&
      !(room = host_.core.reply_room(bytes))) {
    return no_room(bytes);
  }
  frame.hold = std::move(room);
  send(std::move(frame), true);
}

// The callback of a call whose reply is one frame.
template <typename T>
Done<Result<T>> Session::answer(uint64_t request, FrameType type) {
  return [self = shared_from_this(), request, type, room = staging_.room](Result<T> result) {
    if (self->closed_) return;
    if (!result.ok()) return self->send_error(request, result.status());
    self->reply(request, type, *result);
  };
}

// As answer, of a call that gives nothing but its success.
Done<Status> Session::acknowledge(uint64_t request, FrameType type) {
  return [self = shared_from_this(), request, type](Status status) {
    if (self->closed_) return;
    if (!status.ok()) return self->send_error(request, status);
    self->send(reply_frame(type, request, Empty{}), true);
  };
}

void Session::handle(Frame frame) {
  if (in_flight_++ == 0) uncharged_bytes_ = 0;
  uncharged_bytes_ += frame.body.size();
  parser_.set_external_above(kMaxUnchargedBytes - std::min(kMaxUnchargedBytes, uncharged_bytes_));
  if (!staging_error_.ok()) {
    send_error(frame.header.request, std::exchange(staging_error_, {}));
  } else {
    if (staging_.body.size() > 0) frame.body = std::move(staging_.body).freeze();
    dispatch(frame);
  }
  staging_ = {};  // who goes on with the request holds its room
}

void Session::dispatch(const Frame& frame) {
  FrameType type = frame.header.type;
  if (type == FrameType::hello) return handle_hello(frame);
  if (!greeted_) {
    finishing_ = true;
    return send_error(frame.header.request, invalid_argument("the first frame must be a hello"));
  }
  switch (type) {
    case FrameType::open:
      return handle_open(frame);
    case FrameType::lookup:
      return handle_lookup(frame, FrameType::lookup_ok);
    case FrameType::prefetch:
      return handle_lookup(frame, FrameType::prefetch_ok);
    case FrameType::reserve:
      return handle_reserve(frame);
    case FrameType::put:
      return handle_put(frame);
    case FrameType::commit:
      return handle_commit(frame);
    case FrameType::abort:
      return handle_abort(frame);
    case FrameType::fetch:
      return handle_fetch(frame);
    case FrameType::erase:
      return handle_erase(frame);
    case FrameType::stats:
      return handle_stats(frame);
    default:
      return send_error(frame.header.request,
                        unsupported("frame type " + std::to_string(static_cast<uint16_t>(type)) +
                                    " is no request of version 1"));
  }
}

void Session::handle_hello(const Frame& frame) {
  uint64_t id = frame.header.request;
  auto hello = decode_reply<HelloRequest>(FrameType::hello, frame.body.span());
  Status refused;
  if (greeted_)
    refused = invalid_argument("a second hello");
  else if (!hello.ok())
    refused = hello.status();
  else if (hello->min_version > kProtocolVersion || hello->max_version < kProtocolVersion) {
    refused = unsupported("versions " + std::to_string(hello->min_version) + " to " +
                          std::to_string(hello->max_version) + ", this service speaks " +
                          std::to_string(kProtocolVersion));
  } else {
    auto session = host_.core.connect(hello->ns);
    if (session.ok())
      session_ = *session;
    else
      refused = session.status();
  }
  if (!refused.ok()) {
    finishing_ = true;
    return send_error(id, refused);
  }
  greeted_ = true;
  parser_.set_greeted(true);
  peer_ = "namespace " + hello->ns;
  HelloReply reply;
  reply.max_in_flight = host_.options.max_in_flight;
  reply.max_put_bytes = host_.options.max_put_bytes;
  reply.ns = hello->ns;
  reply.program = std::string("cachesvc ") + kProgramVersion;
  send(reply_frame(FrameType::hello_ok, id, reply), true);
}

void Session::handle_open(const Frame& frame) {
  OpenRequest m;
  Deadline deadline;
  if (!decode_or_refuse(frame, m, deadline)) return;
  auto done = answer<OpenReply>(frame.header.request, FrameType::open_ok);
  std::string name = m.model.name;
  host_.core.open(session_, std::move(m), deadline,
                  [self = shared_from_this(), name, done = std::move(done)](Result<OpenReply> r) {
                    if (r.ok() && !self->closed_) self->log_coding(name, *r);
                    done(std::move(r));
                  });
}

// Once for each model and profile: what is coded, and what can't be.
void Session::log_coding(const std::string& model, const OpenReply& reply) {
  if (host_.reported.size() >= kMaxReported) host_.reported.clear();
  const Realm& realm = reply.realm;
  std::string what = realm.ns + " " + realm.fingerprint.hex() + " " + realm.profile.hex();
  if (!host_.reported.insert(what).second) return;
  const Profile& profile = *reply.profile;
  const CodingSettings& own = host_.core.options().coding;
  const bool kept =
      profile.requested_k_bits != own.k_bits || profile.requested_v_bits != own.v_bits;
  std::string text = model + " in namespace " + realm.ns + ": " +
                     preset_name(profile.requested_k_bits, profile.requested_v_bits);
  if (kept) {
    text += " (the profile in force, kept until it is replaced; codec.default is " +
            preset_name(own.k_bits, own.v_bits) + ")";
  }
  text += ", blocks of " + std::to_string(profile.block_tokens) + " tokens, profile " +
          realm.profile.hex().substr(0, 12);
  if (!host_.events.on(kModelOpened, text, 1, Clock::now())) return;
  for (const std::string& line : coding_lines(reply.parts)) {
    log_line(spdlog::level::info, {"model_coding", {}}, "model " + model + ": " + line);
  }
}

void Session::handle_lookup(const Frame& frame, FrameType reply) {
  QueryRequest m;
  Deadline deadline;
  if (!decode_or_refuse(frame, m, deadline)) return;
  auto done = answer<LookupReply>(frame.header.request, reply);
  if (reply == FrameType::lookup_ok) {
    host_.core.lookup(session_, m.model, std::move(m.query), deadline, std::move(done));
  } else {
    host_.core.prefetch(session_, m.model, std::move(m.query), deadline, std::move(done));
  }
}

void Session::handle_reserve(const Frame& frame) {
  ReserveRequest m;
  Deadline deadline;
  if (!decode_or_refuse(frame, m, deadline)) return;
  host_.core.reserve(session_, std::move(m), deadline,
                     answer<ReserveReply>(frame.header.request, FrameType::reserve_ok));
}

void Session::handle_put(const Frame& frame) {
  uint64_t id = frame.header.request;
  uint32_t timeout_ms = 0;
  auto put = decode_put(frame.body, timeout_ms);
  if (!put.ok()) return send_error(id, put.status());
  host_.core.put(session_, std::move(*put), staging_.room, deadline_of(timeout_ms),
                 acknowledge(id, FrameType::put_ok));
}

void Session::handle_commit(const Frame& frame) {
  CommitRequest m;
  Deadline deadline;
  if (!decode_or_refuse(frame, m, deadline)) return;
  host_.core.commit(session_, m.reservation, m.wait_for, deadline,
                    answer<CommitReply>(frame.header.request, FrameType::commit_ok));
}

void Session::handle_abort(const Frame& frame) {
  AbortRequest m;
  Deadline deadline;
  if (!decode_or_refuse(frame, m, deadline)) return;
  host_.core.abort(session_, m.reservation, deadline,
                   acknowledge(frame.header.request, FrameType::abort_ok));
}

void Session::handle_fetch(const Frame& frame) {
  FetchCall m;
  Deadline deadline;
  if (!decode_or_refuse(frame, m, deadline)) return;
  uint64_t id = frame.header.request, max = m.max_reply_bytes;
  host_.core.fetch(
      session_, std::move(m.request), deadline,
      [self = shared_from_this(), id, max, room = staging_.room](Result<FetchReply> reply) {
        if (self->closed_) return;
        if (!reply.ok()) return self->send_error(id, reply.status());
        self->send_fetch(
            id, std::make_shared<FetchFrames>(self->host_.core, id, std::move(*reply), max));
      });
}

// All frames of a reply are queued together, once they are made.
void Session::send_fetch(uint64_t id, const std::shared_ptr<FetchFrames>& reply) {
  if (closed_) return;
  if (!reply->step()) {
    return boost::asio::post(socket_.get_executor(), [self = shared_from_this(), id, reply] {
      self->send_fetch(id, reply);
    });
  }
  if (!reply->error().ok()) return send_error(id, reply->error());
  auto frames = reply->take();
  for (OutFrame& frame : frames) queue(std::move(frame), &frame == &frames.back());
  flush();
}

void Session::handle_erase(const Frame& frame) {
  QueryRequest m;
  Deadline deadline;
  if (!decode_or_refuse(frame, m, deadline)) return;
  auto done = answer<EraseCount>(frame.header.request, FrameType::erase_ok);
  host_.core.erase(session_, m.model, std::move(m.query), deadline,
                   [done = std::move(done)](Result<uint64_t> count) {
                     if (!count.ok()) return done(count.status());
                     done(EraseCount{*count});
                   });
}

void Session::handle_stats(const Frame& frame) {
  Empty m;
  Deadline deadline;
  if (!decode_or_refuse(frame, m, deadline)) return;
  host_.core.stats(session_, deadline,
                   answer<StatsReply>(frame.header.request, FrameType::stats_ok));
}

}  // namespace kv
