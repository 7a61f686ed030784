// The frames of a fetch's reply, in their order.
#include "proto/fetch_answer.h"

namespace kv {

Result<bool> FetchAnswer::take(const Frame& frame) {
  if (!begun_) {
    KV_RETURN_IF_ERROR(take_header(frame));
    return false;
  }
  if (prefix_.objects.size() < header_.objects) {
    KV_RETURN_IF_ERROR(take_object(frame));
    return false;
  }
  auto done = decode_reply<FetchDone>(FrameType::fetch_done, frame.body.span());
  if (frame.header.type != FrameType::fetch_done || !done.ok() ||
      done->objects != header_.objects) {
    return corruption("fetch: expected fetch_done after its objects");
  }
  return true;
}

Status FetchAnswer::take_header(const Frame& frame) {
  if (frame.header.type != FrameType::fetch_header) {
    return corruption(std::string("a ") + to_string(frame.header.type) +
                      " frame, expected fetch_header");
  }
  KV_ASSIGN_OR_RETURN(header_,
                      decode_reply<FetchHeader>(FrameType::fetch_header, frame.body.span()));
  if (header_.object_bytes > max_reply_bytes_) {
    return {StatusCode::resource_exhausted, "fetch: " + std::to_string(header_.object_bytes) +
                                                " bytes, max_reply_bytes is " +
                                                std::to_string(max_reply_bytes_)};
  }
  begun_ = true;
  prefix_.tokens = header_.tokens;
  return {};
}

Status FetchAnswer::take_object(const Frame& frame) {
  bytes_ += frame.header.length;
  if (frame.header.type != FrameType::fetch_object || bytes_ > header_.object_bytes) {
    return corruption("fetch: object frames differ from their header");
  }
  KV_ASSIGN_OR_RETURN(FetchedObject object, decode_fetch_object(frame.body));
  prefix_.objects.push_back(std::move(object));
  return {};
}

FetchReply FetchAnswer::reply() {
  return FetchReply{header_.tokens,
                    header_.common,
                    header_.pending,
                    header_.tier,
                    header_.form,
                    std::move(header_.reason),
                    Lease(std::move(prefix_), nullptr)};
}

}  // namespace kv
