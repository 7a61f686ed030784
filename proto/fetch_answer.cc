// The frames of a fetch's reply, in their order.
#include "proto/fetch_answer.h"

namespace kv {
Result<bool> FetchAnswer::take(const Frame& frame) {
  if (!begun_) {
    KV_RETURN_IF_ERROR(map_ != nullptr ? take_places(frame) : take_header(frame));
    begun_ = true;
    return map_ != nullptr && header_.objects == 0;
  }
  if (streamed_ < header_.objects) {
    KV_RETURN_IF_ERROR(take_object(frame));
    return map_ != nullptr && streamed_ == header_.objects;
  }
  auto done = decode_reply<FetchDone>(FrameType::fetch_done, frame.body.span());
  if (frame.header.type != FrameType::fetch_done || !done.ok() ||
      done->objects != header_.objects) {
    return corruption("fetch: expected fetch_done after its objects");
  }
  return true;
}

Status FetchAnswer::check_size() const {
  if (header_.object_bytes <= max_reply_bytes_) return {};
  return {StatusCode::resource_exhausted, "fetch: " + std::to_string(header_.object_bytes) +
                                              " bytes, max_reply_bytes is " +
                                              std::to_string(max_reply_bytes_)};
}

Status FetchAnswer::take_header(const Frame& frame) {
  KV_RETURN_IF_ERROR(check_type(frame, FrameType::fetch_header));
  KV_ASSIGN_OR_RETURN(header_,
                      decode_reply<FetchHeader>(FrameType::fetch_header, frame.body.span()));
  objects_.prefix.tokens = header_.tokens;
  return check_size();
}

Status FetchAnswer::take_places(const Frame& frame) {
  KV_RETURN_IF_ERROR(check_type(frame, FrameType::fetch_mapped_ok));
  KV_ASSIGN_OR_RETURN(MappedReply m,
                      decode_reply<MappedReply>(FrameType::fetch_mapped_ok, frame.body.span()));
  KV_ASSIGN_OR_RETURN(objects_, map_->take(m, selection_));
  uint32_t streamed = 0;
  for (const FetchedObject& o : objects_.prefix.objects) streamed += o.object == nullptr;
  header_ = {m.tokens, m.common, m.pending, m.tier, m.form, m.reason, streamed, m.streamed_bytes};
  return check_size();
}

Status FetchAnswer::take_placed(const Frame& frame) {
  KV_RETURN_IF_ERROR(check_type(frame, FrameType::fetch_placed));
  KV_ASSIGN_OR_RETURN(FetchedObject object, decode_fetch_placed(frame.body.span()));
  ++streamed_;
  bytes_ += payload_bytes_of(*object.object);
  if (bytes_ > header_.object_bytes) {
    return corruption("fetch: objects of more bytes than their header says");
  }
  objects_.prefix.objects.push_back(std::move(object));
  return {};
}

Status FetchAnswer::take_object(const Frame& frame) {
  if (into_ != nullptr) return take_placed(frame);
  bytes_ += frame.header.length;
  if (frame.header.type != FrameType::fetch_object || bytes_ > header_.object_bytes) {
    return corruption("fetch: object frames differ from their header");
  }
  KV_ASSIGN_OR_RETURN(FetchedObject object, decode_fetch_object(frame.body));
  auto& objects = objects_.prefix.objects;
  ++streamed_;
  if (map_ == nullptr) {
    objects.push_back(std::move(object));
    return {};
  }
  while (objects[next_].object != nullptr) ++next_;
  objects[next_] = std::move(object);
  return {};
}

FetchReply FetchAnswer::reply() {
  if (into_ != nullptr) KV_CHECK(place(objects_.prefix, *into_, false).ok());
  const LeaseCheck* check = objects_.lease.get();
  return FetchReply{header_.tokens,
                    header_.common,
                    header_.pending,
                    header_.tier,
                    header_.form,
                    std::move(header_.reason),
                    Lease(std::move(objects_.prefix), std::move(objects_.lease), check)};
}

}  // namespace kv
