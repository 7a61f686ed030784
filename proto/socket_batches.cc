// SocketClient's batches: requests that follow each other on one connection. A call of fetch or put
// is a batch of one.
#include <functional>

#include "proto/fetch_answer.h"
#include "proto/into.h"
#include "proto/socket_client.h"
#include "proto/socket_pipeline.h"
#include "proto/socket_pool.h"

namespace kv {
namespace {

Status no_answer() { return {StatusCode::unavailable, "no answer came"}; }

// Answers by request, filled as they come.
template <typename T>
std::vector<T> answers(size_t count, const Status& until_then) {
  std::vector<T> all;
  all.reserve(count);
  for (size_t i = 0; i < count; ++i) all.emplace_back(until_then);
  return all;
}

// The requests of a batch by their number in it.
struct Batch {
  size_t count = 0;
  /// Makes the request's frame under this id, or tells why it is not sent.
  std::function<Result<OutFrame>(size_t, uint64_t id)> frame;
  /// Takes a frame of its reply. True: the last one. An error breaks the connection.
  std::function<Result<bool>(size_t, const Frame&)> take;
  std::function<void(size_t, const Status&)> fail;
};

void run(const SocketPool::Use& use, const Batch& batch, Deadline deadline) {
  SocketPipeline pipeline(*use.get());
  std::vector<size_t> sent;  // the requests that have a place in the pipeline
  for (size_t i = 0; i < batch.count; ++i) {
    auto frame = batch.frame(i, pipeline.next_id());
    if (!frame.ok()) {
      batch.fail(i, frame.status());
      continue;
    }
    pipeline.add(std::move(*frame));
    sent.push_back(i);
  }
  auto take = [&](size_t place, const Result<Frame>& frame) {
    const size_t i = sent[place];
    if (!frame.ok()) {
      batch.fail(i, frame.status());
      return true;
    }
    const Result<bool> last = batch.take(i, *frame);
    if (!last.ok()) batch.fail(i, use->give_up(last.status()));
    return !last.ok() || *last;
  };
  const Status broken = pipeline.run(take, deadline);
  for (size_t place = 0; !broken.ok() && place < sent.size(); ++place) {
    if (!pipeline.answered(place)) batch.fail(sent[place], broken);
  }
}

// The places of the object's payload, in order. None: some of it lies elsewhere, or it has none.
std::optional<std::vector<MemoryRun>> runs_in(const OwnMemory& memory, const Object& object) {
  std::vector<MemoryRun> runs;
  auto add = [&](const Bytes& bytes) {
    if (bytes.empty()) return true;
    const auto at = memory.offset_of(bytes.span());
    const bool follows = at && !runs.empty() && runs.back().offset + runs.back().bytes == *at;
    if (follows) runs.back().bytes += bytes.size();
    if (at && !follows) runs.push_back({*at, bytes.size(), 0, 1});
    return at.has_value();
  };
  for (const Plane& p : object.planes) {
    if (!add(p.bytes)) return {};
  }
  for (const StateBlob& s : object.states) {
    if (!add(s.bytes)) return {};
  }
  if (runs.empty()) return {};
  return runs;
}

// The request's memory part, if the service writes the payload. None: the pieces lie elsewhere, or
// it takes no memory. Returns: what breaks the connection.
Result<std::optional<FetchInto>> place_in(const SocketPool::Use& use,
                                          const std::shared_ptr<OwnMemory>& memory,
                                          const Pieces& pieces, Deadline deadline) {
  if (pieces.empty() || !memory) return std::optional<FetchInto>();
  auto runs = runs_of(*memory, pieces);
  if (!runs) return std::optional<FetchInto>();
  KV_ASSIGN_OR_RETURN(const uint32_t number, use->offer(memory, deadline));
  if (number == 0) return std::optional<FetchInto>();
  return std::optional<FetchInto>(FetchInto{number, std::move(*runs), {}});
}

}  // namespace

std::vector<Result<LookupReply>> SocketClient::lookup_all(std::span<const QueryRequest> requests,
                                                          const Until& until) {
  auto use = pool_->acquire(until);
  auto replies =
      answers<Result<LookupReply>>(requests.size(), use.ok() ? no_answer() : use.status());
  if (!use.ok()) return replies;
  std::vector<QueryRequest> remote(requests.begin(), requests.end());
  std::vector<Status> opened;
  for (QueryRequest& r : remote) {
    opened.push_back(pool_->to_remote(*use, r.model, r.profile, until.deadline));
  }
  auto frame = [&](size_t i, uint64_t id) -> Result<OutFrame> {
    KV_RETURN_IF_ERROR(opened[i]);
    return request_frame(FrameType::lookup, id, timeout_ms(until.deadline), remote[i]);
  };
  auto take = [&](size_t i, const Frame& got) -> Result<bool> {
    KV_RETURN_IF_ERROR(check_type(got, FrameType::lookup_ok));
    KV_ASSIGN_OR_RETURN(replies[i],
                        decode_reply<LookupReply>(FrameType::lookup_ok, got.body.span()));
    return true;
  };
  auto fail = [&](size_t i, const Status& why) { replies[i] = why; };
  run(*use, {remote.size(), frame, take, fail}, until.deadline);
  return replies;
}

std::vector<Result<FetchReply>> SocketClient::fetch_all(std::span<const FetchRequest> requests,
                                                        const Until& until) {
  auto use = pool_->acquire(until);
  auto replies =
      answers<Result<FetchReply>>(requests.size(), use.ok() ? no_answer() : use.status());
  if (!use.ok()) return replies;
  const uint64_t max_reply_bytes = pool_->options().max_reply_bytes;
  std::vector<FetchCall> calls;
  const bool mapped = (*use)->maps_segments();
  const FrameType type = mapped ? FrameType::fetch_mapped : FrameType::fetch;
  std::vector<FetchAnswer> coming;
  coming.reserve(requests.size());
  std::vector<Status> opened;
  std::vector<std::optional<FetchInto>> into;  // those that the service writes where they belong
  for (const FetchRequest& r : requests) {
    FetchRequest& remote = calls.emplace_back(FetchCall{r, max_reply_bytes}).request;
    Status ready = pool_->to_remote(*use, remote.model, remote.profile, until.deadline);
    auto place = place_in(*use, pool_->options().memory, r.into, until.deadline);
    if (ready.ok()) ready = place.status();
    opened.push_back(std::move(ready));
    into.push_back(place.ok() ? std::move(*place) : std::nullopt);
    if (into.back())
      coming.emplace_back(max_reply_bytes, r.into);
    else if (mapped)
      coming.emplace_back(max_reply_bytes, (*use)->segments(), r.selection);
    else
      coming.emplace_back(max_reply_bytes);
  }
  auto frame = [&](size_t i, uint64_t id) -> Result<OutFrame> {
    KV_RETURN_IF_ERROR(opened[i]);
    const uint32_t timeout = timeout_ms(until.deadline);
    if (!into[i]) return request_frame(type, id, timeout, calls[i]);
    into[i]->call = std::move(calls[i]);
    return request_frame(FrameType::fetch_into, id, timeout, *into[i]);
  };
  auto take = [&](size_t i, const Frame& got) -> Result<bool> {
    KV_ASSIGN_OR_RETURN(bool last, coming[i].take(got));
    if (!last) return false;
    replies[i] = coming[i].reply();
    const bool elsewhere = !requests[i].into.empty() && !into[i];
    if (elsewhere) replies[i] = copied_into(std::move(*replies[i]), requests[i].into);
    return true;
  };
  auto fail = [&](size_t i, const Status& why) { replies[i] = why; };
  run(*use, {calls.size(), frame, take, fail}, until.deadline);
  return replies;
}

std::vector<Status> SocketClient::put_all(std::vector<PutRequest> requests, const Until& until) {
  if (requests.empty()) return {};
  const uint64_t reservation = requests.front().reservation;
  uint64_t remote = 0;
  auto use = pool_->acquire_for(reservation, until, remote);
  auto replies = answers<Status>(requests.size(), use.ok() ? no_answer() : use.status());
  if (!use.ok()) return replies;
  const uint64_t most = (*use)->hello().max_put_bytes;
  const std::shared_ptr<OwnMemory>& memory = pool_->options().memory;
  const Result<uint32_t> offered = (*use)->offer(memory, until.deadline);
  auto frame = [&](size_t i, uint64_t id) -> Result<OutFrame> {
    KV_RETURN_IF_ERROR(offered.status());
    if (requests[i].reservation != reservation) {
      return invalid_argument("put_all: puts of several reservations");
    }
    requests[i].reservation = remote;
    auto runs = *offered > 0 ? runs_in(*memory, requests[i].object) : std::nullopt;
    if (runs && bytes_of(*runs) <= most) {
      return put_from_frame(id, timeout_ms(until.deadline),
                            {std::move(requests[i]), *offered, std::move(*runs)});
    }
    OutFrame out = put_frame(id, timeout_ms(until.deadline), requests[i]);
    const uint64_t body = out.bytes() - kFrameHeaderBytes;
    if (body <= most) return out;
    return Status(StatusCode::resource_exhausted, "put: " + std::to_string(body) +
                                                      " bytes, the service takes at most " +
                                                      std::to_string(most));
  };
  auto take = [&](size_t i, const Frame& got) -> Result<bool> {
    const bool from = got.header.type == FrameType::put_from_ok;
    KV_RETURN_IF_ERROR(check_type(got, from ? FrameType::put_from_ok : FrameType::put_ok));
    replies[i] = {};
    return true;
  };
  auto fail = [&](size_t i, const Status& why) { replies[i] = why; };
  run(*use, {requests.size(), frame, take, fail}, until.deadline);
  return replies;
}

}  // namespace kv
