// Answers of a connection's fetches, some objects in each turn.
#include "cachesvc/daemon/fetch_replies.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace kv {

void FetchReplies::fetch(uint64_t session, uint64_t id, FetchCall call, CallTerms terms,
                         std::shared_ptr<RoomCharges> room) {
  core_.fetch(
      session, std::move(call.request), terms,
      [this, keep = to_.keep(), id, max = call.max_reply_bytes, room](Result<FetchReply> reply) {
        if (to_.closed()) return;
        if (!reply.ok()) return send_error(to_, id, reply.status());
        send_fetch(id, std::make_shared<FetchFrames>(core_, id, std::move(*reply), max));
      });
}

// All frames of a reply, together.
void FetchReplies::queue(std::vector<OutFrame> frames) {
  for (OutFrame& frame : frames) to_.out().queue(std::move(frame), &frame == &frames.back());
  to_.out().flush();
}

void FetchReplies::made(uint64_t id, const std::shared_ptr<FetchFrames>& reply, const Then& then) {
  if (to_.closed()) return;
  if (!reply->step()) {
    return to_.take_turn([this, keep = to_.keep(), id, reply, then] { made(id, reply, then); });
  }
  if (!reply->error().ok()) return send_error(to_, id, reply->error());
  then(reply);
}

void FetchReplies::send_fetch(uint64_t id, const std::shared_ptr<FetchFrames>& reply) {
  made(id, reply, [this](const auto& whole) { queue(whole->take()); });
}

void FetchReplies::fetch_into(uint64_t session, uint64_t id, FetchInto call,
                              std::shared_ptr<const PeerMemory> memory, CallTerms terms,
                              std::shared_ptr<RoomCharges> room) {
  const uint64_t most = std::min(call.call.max_reply_bytes, bytes_of(call.runs));
  auto write = [this, session, id, terms, memory = std::move(memory),
                runs = std::move(call.runs)](const std::shared_ptr<FetchFrames>& reply) {
    auto done = [this, keep = to_.keep(), id, reply](const Status& written) {
      if (to_.closed()) return;
      written.ok() ? queue(reply->take()) : send_error(to_, id, written);
    };
    core_.memory().write_out(
        session, terms,
        [memory, runs, reply, payload = reply->payload()](const std::atomic<bool>& stop) {
          return memory->write(runs, payload, stop);
        },
        std::move(done));
  };
  core_.fetch(session, std::move(call.call.request), terms,
              [this, keep = to_.keep(), id, most, room, write](Result<FetchReply> reply) {
                if (to_.closed()) return;
                if (!reply.ok()) return send_error(to_, id, reply.status());
                made(id,
                     std::make_shared<FetchFrames>(core_, id, std::move(*reply), most,
                                                   FetchFrames::Objects::headers),
                     write);
              });
}

void FetchReplies::fetch_mapped(uint64_t session, const std::string& ns, uint64_t id,
                                FetchCall call, CallTerms terms,
                                std::shared_ptr<RoomCharges> room) {
  call.request.whole_objects = true;
  MappedCall mapped{call.request.selection, call.max_reply_bytes, options_.lease_timeout};
  core_.fetch(session, std::move(call.request), terms,
              [this, keep = to_.keep(), &ns, id, mapped, room](Result<FetchReply> reply) {
                if (to_.closed()) return;
                if (!reply.ok()) return send_error(to_, id, reply.status());
                place(ns, id, mapped, std::move(*reply));
              });
}

// The places of hundreds of objects are found in a turn of their own.
void FetchReplies::place(const std::string& ns, uint64_t id, const MappedCall& call,
                         FetchReply reply) {
  const size_t objects = reply.lease.prefix().objects.size();
  auto place = [this, keep = to_.keep(), &ns, id, call,
                own = std::make_shared<FetchReply>(std::move(reply))] {
    if (to_.closed()) return;
    announce_then_send(
        ns, id, std::make_shared<MappedFrames>(core_, mappings_, ns, id, call, std::move(*own)));
  };
  if (objects <= FetchFrames::kObjectsPerStep) return place();
  to_.take_turn(std::move(place));
}

// Segments that the client doesn't have yet come before the reply that names them.
void FetchReplies::announce_then_send(const std::string& ns, uint64_t id,
                                      const std::shared_ptr<MappedFrames>& reply) {
  auto unknown = reply->unknown();
  if (unknown.empty()) return send_mapped(id, reply);
  core_.memory().announce(
      ns, std::move(unknown),
      [this, keep = to_.keep(), id, reply](std::vector<std::shared_ptr<const SegmentView>> views) {
        if (to_.closed()) return;
        for (const auto& view : views) {
          const bool has = mappings_.given(view->id()) || mappings_.leaving(view->id());
          if (!has) to_.out().queue(mappings_.give(view), false);
        }
        send_mapped(id, reply);
      });
}

void FetchReplies::send_mapped(uint64_t id, const std::shared_ptr<MappedFrames>& reply) {
  if (to_.closed()) return;
  if (!reply->step(to_.out().unsent_bytes())) {
    return to_.take_turn([this, keep = to_.keep(), id, reply] { send_mapped(id, reply); });
  }
  if (!reply->error().ok()) return send_error(to_, id, reply->error());
  queue(reply->take());
}

}  // namespace kv
