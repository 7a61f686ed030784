// Frames of a mapped reply. Headers and objects are numbered in the order in which they are sent.
#include "cachesvc/daemon/mapped_frames.h"

#include <algorithm>
#include <utility>

#include "cachesvc/daemon/fetch_frames.h"

namespace kv {
namespace {

bool has_any(const Object& object, const Selection& selection) {
  auto has = [&](const auto& item) { return selection.has(item.layer, item.part); };
  return std::any_of(object.planes.begin(), object.planes.end(), has) ||
         std::any_of(object.states.begin(), object.states.end(), has);
}

std::vector<uint8_t> header_of(const Object& object) {
  ByteWriter out;
  encode_header(object, out);
  return out.take();
}

// Bytes of the planes and states that the selection takes.
uint64_t payload_bytes(const Object& object, const Selection& selection) {
  uint64_t bytes = 0;
  for (const Plane& p : object.planes) bytes += selection.has(p.layer, p.part) * p.bytes.size();
  for (const StateBlob& s : object.states) bytes += selection.has(s.layer, s.part) * s.bytes.size();
  return bytes;
}

}  // namespace

MappedFrames::MappedFrames(CacheCore& core, Mappings& mappings, const std::string& ns,
                           uint64_t request, const MappedCall& call, FetchReply reply)
    : core_(core), mappings_(mappings), ns_(ns), request_(request), call_(call) {
  reply_.tokens = reply.tokens;
  reply_.common = reply.common;
  reply_.pending = reply.pending;
  reply_.tier = reply.tier;
  reply_.form = reply.form;
  reply_.reason = std::move(reply.reason);
  lease_ = core.memory().share(std::move(reply.lease));
  const auto& objects = lease_->prefix().objects;
  parts_.reserve(objects.size());
  for (const FetchedObject& o : objects) {
    if (!has_any(*o.object, call_.selection)) continue;
    parts_.push_back({o, mappings_.place_of(ns, *o.object), 0, {}, std::nullopt});
  }
}

std::vector<uint32_t> MappedFrames::unknown() const {
  std::vector<uint32_t> out;
  for (const Part& part : parts_) {
    if (!part.place) continue;
    const uint32_t id = part.place->segment;
    if (mappings_.given(id) || mappings_.leaving(id)) continue;
    if (std::find(out.begin(), out.end(), id) == out.end()) out.push_back(id);
  }
  return out;
}

void MappedFrames::prepare(Part& part) {
  part.payload_bytes = payload_bytes(*part.object.object, call_.selection);
  if (!part.place || !mappings_.given(part.place->segment)) return stream(part);
  if (!mappings_.knows(*part.place)) part.encoded = encoded(place_words(part));
}

// The full description of an object that the client does not know; its number comes last.
MappedObject MappedFrames::place_words(const Part& part) {
  MappedObject words;
  words.place = ObjectPlace::mapped;
  words.end_token = part.object.end_token;
  words.segment = part.place->segment;
  words.offset = part.place->offset;
  words.generation = part.place->generation;
  words.header = header_of(*part.object.object);
  return words;
}

void MappedFrames::stream(Part& part) {
  part.place.reset();
  const FetchedObject cut{select_parts(part.object.object, call_.selection), part.object.end_token};
  part.frame = fetch_object_frame(request_, cut);
  part.frame->kept = lease_;
}

bool MappedFrames::step(uint64_t unsent_bytes) {
  if (prepared_ < parts_.size()) {
    const size_t end = std::min(parts_.size(), prepared_ + FetchFrames::kObjectsPerStep);
    for (; prepared_ < end; ++prepared_) prepare(parts_[prepared_]);
    // The rest has a step of its own if there are many parts.
    if (parts_.size() > FetchFrames::kObjectsPerStep) return false;
  }
  finish(unsent_bytes);
  return true;
}

void MappedFrames::finish(uint64_t unsent_bytes) {
  const bool mapped =
      std::any_of(parts_.begin(), parts_.end(), [](const Part& p) { return p.place.has_value(); });
  if (mapped) reply_.lease = mappings_.keep(lease_);
  uint64_t total = 0;
  for (Part& part : parts_) {
    // Nothing is mapped without a lease; and a segment may have been revoked since.
    const bool gone = part.place && !mappings_.given(part.place->segment);
    if (part.place && (gone || reply_.lease == 0)) stream(part);
    const uint64_t body = part.frame ? part.frame->bytes() - kFrameHeaderBytes : 0;
    reply_.streamed_bytes += body;
    total += part.frame ? body : part.payload_bytes;
    if (body <= kMaxObjectFrameBytes && total <= call_.max_reply_bytes) continue;
    return refuse(
        {StatusCode::resource_exhausted, "fetch_mapped: the reply is over max_reply_bytes " +
                                             std::to_string(call_.max_reply_bytes) +
                                             " or an object over its frame: ask for fewer tokens"});
  }
  say_places(unsent_bytes);
}

void MappedFrames::say_places(uint64_t unsent_bytes) {
  if (reply_.lease != 0) reply_.lease_ms = static_cast<uint32_t>(call_.lease_timeout.count());
  frames_.emplace_back();
  for (Part& part : parts_) {
    tell(part);
    if (part.frame) frames_.push_back(std::move(*part.frame));
  }
  OutFrame& first = frames_.front() = mapped_frame(request_, reply_, std::move(places_));
  const uint64_t body = first.bytes() - kFrameHeaderBytes;
  if (body > max_body_bytes(FrameType::fetch_mapped_ok, true)) {
    return refuse(
        {StatusCode::resource_exhausted, "fetch_mapped: a reply of " + std::to_string(body) +
                                             " bytes is over its frame: ask for fewer tokens"});
  }
  if (unsent_bytes + body <= kMaxUnchargedReplyBytes) return;
  first.kept = core_.memory().reply_room(ns_, body);
  if (!first.kept) refuse({StatusCode::busy, "fetch_mapped_ok: no RAM for its bytes now"});
}

// Completes an object's part of the reply, encoded before but for the number: half a megabyte for a
// long prompt.
void MappedFrames::tell(Part& part) {
  Mappings::Told told;
  if (part.place) told = mappings_.tell(*part.place);
  if (!part.place || told.known) {
    MappedObject words;
    words.place = part.place ? ObjectPlace::known : ObjectPlace::streamed;
    words.end_token = part.object.end_token;
    words.number = told.number;
    places_.push_back(Bytes::owning(encoded(words)));
    return;
  }
  // `encoded` is empty if the client has forgotten the header since.
  if (part.encoded.empty()) part.encoded = encoded(place_words(part));
  set_number(part.encoded, told.number);
  places_.push_back(Bytes::owning(std::move(part.encoded)));
  told_.push_back(*part.place);
}

void MappedFrames::refuse(Status why) {
  mappings_.forget(reply_.lease, told_);
  error_ = std::move(why);
}

}  // namespace kv
