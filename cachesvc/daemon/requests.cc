// Requests of a connection: decode, call the core, answer. PROTOCOL.md, "Messages".
#include "cachesvc/daemon/requests.h"

#include <algorithm>
#include <utility>

#include "cachesvc/daemon/version.h"

namespace kv {
namespace {

constexpr size_t kLongBodyBytes = 64 << 10;  // a query of 16,000 tokens

}  // namespace

CallTerms Requests::terms_of(const FrameHeader& header, uint32_t timeout_ms) const {
  const Milliseconds limit = server_.options.request_timeout;
  const auto time = timeout_ms == 0 ? limit : std::min(limit, Milliseconds(timeout_ms));
  return {deadline_in(time), header.request};
}

// False after a body that can't be read was answered with an error.
template <typename T>
bool Requests::decode_or_refuse(const InFrame& in, T& message, CallTerms& terms) {
  uint32_t timeout_ms = 0;
  auto decoded = decode_request<T>(in.frame.header.type, in.frame.body.span(), timeout_ms);
  if (!decoded.ok()) {
    send_error(host_, in.frame.header.request, decoded.status());
    return false;
  }
  message = std::move(*decoded);
  terms = terms_of(in.frame.header, timeout_ms);
  return true;
}

// Runs then(message, terms) at once; for a long body in its own turn, as reading hundreds of
// thousands of tokens is enough for one handler.
template <typename T, typename Then>
void Requests::decoded(const InFrame& in, Then then) {
  auto message = std::make_shared<T>();
  CallTerms terms;
  if (!decode_or_refuse(in, *message, terms)) return;
  if (in.frame.body.size() <= kLongBodyBytes) return then(std::move(*message), terms);
  host_.take_turn([this, keep = host_.keep(), message, terms, then = std::move(then)] {
    if (!host_.closed()) then(std::move(*message), terms);
  });
}

// A call whose message and reply are one frame each.
template <typename Message, typename T, typename Reply>
void Requests::forward(const InFrame& in, FrameType type,
                       void (CacheCore::*verb)(uint64_t, Message, CallTerms, Done<Result<T>>)) {
  decoded<Message>(
      in, [this, verb, done = replies_.of_field<Reply, T>(in, type)](Message m, CallTerms terms) {
        (core_.*verb)(peer_.session(), std::move(m), terms, done);
      });
}

void Requests::answer(Frame frame, std::shared_ptr<RoomCharges> room, const Status& dropped) {
  if (!dropped.ok()) return send_error(host_, frame.header.request, dropped);
  dispatch({std::move(frame), std::move(room)});
}

void Requests::dispatch(const InFrame& in) {
  FrameType type = in.frame.header.type;
  if (type == FrameType::hello) return handle_hello(in);
  if (peer_.session() == 0) {
    host_.last_request();
    return send_error(host_, in.frame.header.request,
                      invalid_argument("the first frame must be a hello"));
  }
  switch (type) {
    case FrameType::open:
      return handle_open(in);
    case FrameType::lookup:
      return forward(in, FrameType::lookup_ok, &CacheCore::lookup);
    case FrameType::prefetch:
      return forward(in, FrameType::prefetch_ok, &CacheCore::prefetch);
    case FrameType::demote:
      return forward(in, FrameType::demote_ok, &CacheCore::demote);
    case FrameType::retain:
      return forward(in, FrameType::retain_ok, &CacheCore::retain);
    case FrameType::why:
      return forward(in, FrameType::why_ok, &CacheCore::why);
    case FrameType::expire:
      return forward(in, FrameType::expire_ok, &CacheCore::expire);
    case FrameType::hold:
      return forward(in, FrameType::hold_ok, &CacheCore::hold);
    case FrameType::renew:
      return handle_renew(in);
    case FrameType::release:
      return handle_release(in);
    case FrameType::reserve:
      return forward(in, FrameType::reserve_ok, &CacheCore::reserve);
    case FrameType::put:
      return handle_put(in);
    case FrameType::memory:
      return handle_memory(in);
    case FrameType::put_from:
      return handle_put_from(in);
    case FrameType::commit:
      return handle_commit(in);
    case FrameType::abort:
      return handle_abort(in);
    case FrameType::fetch:
      return handle_fetch(in);
    case FrameType::fetch_into:
      return handle_fetch_into(in);
    case FrameType::fetch_mapped:
      return handle_fetch_mapped(in);
    case FrameType::erase:
      return handle_erase(in);
    case FrameType::erase_entry:
      return forward<QueryRequest, uint64_t, EraseCount>(in, FrameType::erase_entry_ok,
                                                         &CacheCore::erase_entry);
    case FrameType::stats:
      return handle_stats(in);
    default:
      return send_error(
          host_, in.frame.header.request,
          unsupported("frame type " + std::to_string(static_cast<uint16_t>(type)) +
                      " is no request of version " + std::to_string(kProtocolVersion)));
  }
}

void Requests::handle_hello(const InFrame& in) {
  uint64_t id = in.frame.header.request;
  auto hello = decode_reply<HelloRequest>(FrameType::hello, in.frame.body.span());
  Status refused;
  if (peer_.session() != 0)
    refused = invalid_argument("a second hello");
  else
    refused = hello.ok() ? peer_.enter(*hello) : hello.status();
  if (!refused.ok()) {
    host_.last_request();
    return send_error(host_, id, refused);
  }
  const bool memory = (hello->features & kFeatureMemory) != 0 && peer_.may_offer_memory();
  host_.greeted(memory);
  HelloReply reply;
  if ((hello->features & kFeatureSegments) != 0 && peer_.may_map() && mappings_.enable()) {
    reply.features = kFeatureSegments;
  }
  if (memory) reply.features |= kFeatureMemory;
  reply.boot = server_.boot;
  reply.max_in_flight = server_.options.max_in_flight;
  reply.max_put_bytes = server_.options.max_put_bytes;
  reply.ns = hello->ns;
  reply.program = std::string("cachesvc ") + kProgramVersion;
  send(host_, reply_frame(FrameType::hello_ok, id, reply), true);
}

void Requests::handle_open(const InFrame& in) {
  OpenRequest m;
  CallTerms terms;
  if (!decode_or_refuse(in, m, terms)) return;
  auto done = replies_.of<OpenReply>(in, FrameType::open_ok);
  std::string name = m.model.name;
  core_.open(peer_.session(), std::move(m), terms,
             [this, keep = host_.keep(), name, done = std::move(done)](Result<OpenReply> r) {
               if (r.ok() && !host_.closed())
                 server_.codings.opened(name, *r, core_.options().coding);
               done(std::move(r));
             });
}

void Requests::handle_renew(const InFrame& in) {
  RenewRequest m;
  CallTerms terms;
  if (!decode_or_refuse(in, m, terms)) return;
  core_.renew(peer_.session(), m.hold, m.time, terms,
              replies_.of_field<RenewReply, Milliseconds>(in, FrameType::renew_ok));
}

void Requests::handle_release(const InFrame& in) {
  ReleaseRequest m;
  CallTerms terms;
  if (!decode_or_refuse(in, m, terms)) return;
  core_.release(peer_.session(), m.hold, terms,
                replies_.acknowledge(in.frame.header.request, FrameType::release_ok));
}

void Requests::handle_put(const InFrame& in) {
  uint64_t id = in.frame.header.request;
  uint32_t timeout_ms = 0;
  auto put = decode_put(in.frame.body, timeout_ms);
  if (!put.ok()) return send_error(host_, id, put.status());
  core_.put(peer_.session(), std::move(*put), in.room, terms_of(in.frame.header, timeout_ms),
            replies_.acknowledge(id, FrameType::put_ok));
}

void Requests::handle_memory(const InFrame& in) {
  MemoryOffer m;
  CallTerms terms;
  const int fd = host_.take_descriptor();
  if (fd < 0) {
    return send_error(host_, in.frame.header.request,
                      invalid_argument("memory: it came without its descriptor, or hello_ok did "
                                       "not name the feature memory"));
  }
  auto taken = PeerMemory::take(fd);
  if (!decode_or_refuse(in, m, terms)) return;
  replies_.of<MemoryReply>(in, FrameType::memory_ok)(memories_.add(m.memory, std::move(taken)));
}

// The rows are copied out of the client's memory by workers: plane by plane, or all at first.
void Requests::handle_put_from(const InFrame& in) {
  const uint64_t id = in.frame.header.request;
  uint32_t timeout_ms = 0;
  auto from = decode_put_from(in.frame.body.span(), timeout_ms);
  if (!from.ok()) return send_error(host_, id, from.status());
  auto memory = memories_.find(from->memory);
  if (!memory.ok()) return send_error(host_, id, memory.status());
  const uint64_t bytes = bytes_of(from->runs);
  if (bytes == 0) {
    return send_error(host_, id, invalid_argument("put_from: an object without bytes: put it"));
  }
  if (bytes > server_.options.max_put_bytes) {
    return send_error(
        host_, id,
        {StatusCode::resource_exhausted, "put_from: " + std::to_string(bytes) + " bytes, at most " +
                                             std::to_string(server_.options.max_put_bytes)});
  }
  const CallTerms terms = terms_of(in.frame.header, timeout_ms);
  auto put = std::make_shared<PutRequest>(std::move(from->put));
  RowSource read = [rows = MemoryRows(*memory, std::move(from->runs))](
                       uint64_t at, std::span<uint8_t> to) { return rows.read(at, to); };
  auto done = replies_.acknowledge(id, FrameType::put_from_ok);
  if (CacheCore::reads_rows(*put)) {
    return core_.put_rows(peer_.session(), std::move(*put), std::move(read), terms,
                          std::move(done));
  }
  auto then = [this, keep = host_.keep(), put, terms, done](Result<Staging> staging) {
    if (host_.closed()) return;
    if (!staging.ok()) return done(staging.status());
    const Bytes body = std::move(staging->body).freeze();
    if (Status s = attach_payload(put->object, body); !s.ok()) return done(s);
    core_.put(peer_.session(), std::move(*put), std::move(staging->room), terms, done);
  };
  core_.memory().allocate_staging(peer_.session(), bytes, StagingFor::put, terms, std::move(then),
                                  [read](std::span<uint8_t> body) { return read(0, body); });
}

void Requests::handle_commit(const InFrame& in) {
  CommitRequest m;
  CallTerms terms;
  if (!decode_or_refuse(in, m, terms)) return;
  core_.commit(peer_.session(), m.reservation, m.wait_for, terms,
               [this, keep = host_.keep(),
                done = replies_.of<CommitReply>(in, FrameType::commit_ok)](Result<CommitReply> r) {
                 const bool stored = r.ok();
                 done(std::move(r));
                 if (stored && mappings_.enabled()) core_.memory().announce_ahead(peer_.ns());
               });
}

void Requests::handle_abort(const InFrame& in) {
  AbortRequest m;
  CallTerms terms;
  if (!decode_or_refuse(in, m, terms)) return;
  core_.abort(peer_.session(), m.reservation, terms,
              replies_.acknowledge(in.frame.header.request, FrameType::abort_ok));
}

void Requests::handle_fetch(const InFrame& in) {
  decoded<FetchCall>(
      in, [this, id = in.frame.header.request, room = in.room](FetchCall m, CallTerms terms) {
        fetches_.fetch(peer_.session(), id, std::move(m), terms, room);
      });
}

void Requests::handle_fetch_into(const InFrame& in) {
  decoded<FetchInto>(
      in, [this, id = in.frame.header.request, room = in.room](FetchInto m, CallTerms terms) {
        auto memory = memories_.find(m.memory);
        if (!memory.ok()) return send_error(host_, id, memory.status());
        fetches_.fetch_into(peer_.session(), id, std::move(m), *memory, terms, room);
      });
}

void Requests::handle_fetch_mapped(const InFrame& in) {
  const uint64_t id = in.frame.header.request;
  if (!mappings_.enabled()) {
    return send_error(host_, id,
                      unsupported("fetch_mapped: hello_ok did not name the feature "
                                  "segments"));
  }
  decoded<FetchCall>(in, [this, id, room = in.room](FetchCall m, CallTerms terms) {
    fetches_.fetch_mapped(peer_.session(), peer_.ns(), id, std::move(m), terms, room);
  });
}

void Requests::handle_erase(const InFrame& in) {
  decoded<EraseRequest>(in, [this, done = replies_.of_field<EraseCount, uint64_t>(
                                       in, FrameType::erase_ok)](EraseRequest m, CallTerms terms) {
    core_.erase(peer_.session(), m.model, std::move(m.query), terms, done);
  });
}

void Requests::handle_stats(const InFrame& in) {
  Empty m;
  CallTerms terms;
  if (!decode_or_refuse(in, m, terms)) return;
  core_.stats(peer_.session(), terms, replies_.of<StatsReply>(in, FrameType::stats_ok));
}

}  // namespace kv
