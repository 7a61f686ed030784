// The verbs of the shared tier but for erase (tier_erase.cc).
#include "cachesvc/remote/tier.h"

#include <algorithm>
#include <utility>

#include "storage/file_reader.h"

namespace kv {
namespace {

using TierState = RemoteFound::State;

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// The head of SET key value …, before the value, and what follows it.
Bytes set_head(std::string_view key, uint64_t value_bytes, bool only_if_absent) {
  RespWriter out;
  out.array(only_if_absent ? 6 : 5);
  out.bulk("SET");
  out.bulk(key);
  out.bulk_head(value_bytes);
  return Bytes::owning(out.take());
}
Bytes set_end(std::chrono::seconds ttl, bool only_if_absent) {
  RespWriter out;
  if (only_if_absent) out.bulk("NX");
  out.bulk("EX");
  out.bulk(std::to_string(ttl.count()));
  std::vector<uint8_t> bytes = out.take();
  bytes.insert(bytes.begin(), {'\r', '\n'});  // the value's end
  return Bytes::owning(std::move(bytes));
}

}  // namespace

struct RemoteTier::Getting {
  RemoteFound found;
  Clock::time_point deadline;
  std::function<void(Result<FileImage>)> done;
  std::shared_ptr<uint8_t[]> buffer;
  uint64_t missing = 0;  // parts
  bool ended = false;
};

struct RemoteTier::Putting {
  RemoteName name;
  std::string key;
  Clock::time_point deadline;
  std::function<void(Result<RemotePut>)> done;
  RemoteValue value;
  uint64_t missing = 0;  // further parts
  bool ended = false;
};

RemoteTier::RemoteTier(RedisCluster& cluster, RemoteTierOptions options)
    : cluster_(cluster), options_(std::move(options)), prefix_(remote_prefix(options_.ns)) {}

// Null: no room. It outlives the tier where the network does.
std::shared_ptr<const void> RemoteTier::charge(uint64_t bytes) {
  if (bytes > options_.max_bytes_in_flight - std::min(*in_flight_, options_.max_bytes_in_flight)) {
    ++counts_.busy;
    return nullptr;
  }
  *in_flight_ += bytes;
  return std::shared_ptr<const void>(in_flight_.get(),
                                     [sum = in_flight_, bytes](const void*) { *sum -= bytes; });
}

void RemoteTier::run(const std::string& key, bool writes, RedisRequest::Way way,
                     Clock::time_point deadline, std::vector<Bytes> command,
                     std::function<void(Reply)> done) {
  RedisRequest request;
  request.slot = key_slot(key);
  request.writes = writes;
  request.way = way;
  request.deadline = deadline;
  request.bytes = std::move(command);
  request.done = std::move(done);
  cluster_.run(std::move(request));
}

RemoteFound RemoteTier::judge(const RemoteName& name, const Reply& reply) const {
  RemoteFound found{name, TierState::unreached, {}};
  if (!reply.ok()) return found;
  found.state =
      reply->type == RespType::bulk && reply->text.empty() ? TierState::absent : TierState::damaged;
  if (found.state == TierState::absent || reply->type != RespType::bulk) return found;
  auto front = decode_remote_front(bytes_of(reply->text), options_.key.get());
  if (front.ok()) {
    found.state = TierState::there;
    found.front = *front;
  } else if (front.status().code() == StatusCode::unsupported) {
    found.state = TierState::foreign;
  }
  return found;
}

void RemoteTier::find(std::vector<RemoteName> names, Clock::time_point deadline,
                      std::function<void(std::vector<RemoteFound>)> done) {
  KV_CHECK(names.size() <= kMaxRemoteNames);
  struct Finding {
    std::vector<RemoteFound> found;
    size_t missing = 0;
    std::function<void(std::vector<RemoteFound>)> done;
  };
  if (names.empty()) return done({});
  auto finding = std::make_shared<Finding>();
  finding->found.resize(names.size());
  finding->missing = names.size();
  finding->done = std::move(done);
  counts_.asked += names.size();
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string key = remote_key(prefix_, names[i]);
    auto answer = [this, finding, i, deadline, name = names[i]](const Reply& reply) {
      RemoteFound& found = finding->found[i] = judge(name, reply);
      if (found.state == TierState::there) ++counts_.found;
      if (found.state == TierState::damaged) drop(name, {}, deadline);
      if (--finding->missing == 0) finding->done(std::move(finding->found));
    };
    run(key, false, RedisRequest::Way::question, deadline,
        {remote_words({"GETRANGE", key, "0", std::to_string(kRemoteFrontBytes - 1)})},
        std::move(answer));
  }
}

void RemoteTier::get(const RemoteFound& found, Clock::time_point deadline,
                     std::function<void(Result<FileImage>)> done) {
  KV_CHECK(found.state == TierState::there);
  const uint64_t size = found.front.file_bytes;
  auto room = charge(size);
  if (!room) return done(Status(StatusCode::busy, "no room for a value of the shared tier"));
  auto memory = file_buffer(size);
  if (!memory.ok()) return done(memory.status());
  auto getting = std::make_shared<Getting>();
  getting->found = found;
  getting->deadline = deadline;
  getting->done = std::move(done);
  getting->buffer = *memory;
  getting->missing = found.front.parts();
  using Kept = std::pair<std::shared_ptr<uint8_t[]>, std::shared_ptr<const void>>;
  auto keep = std::make_shared<const Kept>(getting->buffer, std::move(room));
  const std::string first = remote_key(prefix_, found.name);
  for (uint64_t i = 0; i < found.front.parts(); ++i) {
    const std::string key = i == 0 ? first : remote_part_key(first, found.front.sum, i);
    const uint64_t at = i * kRemotePartBytes;
    RedisRequest request;
    request.slot = key_slot(key);
    request.way = RedisRequest::Way::value;
    request.deadline = deadline;
    request.bytes = {remote_words({"GET", key})};
    request.into = {getting->buffer.get() + at, std::min(kRemotePartBytes, size - at)};
    request.keep = keep;
    request.done = [this, getting, i](const Reply& reply) { take_part(getting, i, reply); };
    cluster_.run(std::move(request));
  }
}

void RemoteTier::take_part(const GettingRef& getting, uint64_t index, const Reply& reply) {
  if (getting->ended) return;
  const RemoteFront& front = getting->found.front;
  const uint64_t bytes = std::min(kRemotePartBytes, front.file_bytes - index * kRemotePartBytes);
  Status status;
  if (!reply.ok()) {
    status = reply.status();
  } else if (reply->type == RespType::null && index == 0) {
    status = {StatusCode::not_found, "gone meanwhile"};
  } else if (reply->type == RespType::null) {
    status = corruption("a part is gone");
  } else if (!reply->placed || static_cast<uint64_t>(reply->integer) != bytes) {
    status = corruption("part of " + std::to_string(reply->integer) + " bytes, " +
                        std::to_string(bytes) + " expected");
  }
  if (status.ok()) return --getting->missing == 0 ? got_all(getting) : void();
  getting->ended = true;
  count_miss(status);
  if (status.code() == StatusCode::corruption) {
    drop(getting->found.name, front, getting->deadline);
  }
  std::exchange(getting->done, nullptr)(status);
}

void RemoteTier::got_all(const GettingRef& getting) {
  getting->ended = true;
  const RemoteFound& found = getting->found;
  const SealKey* key = options_.key.get();
  const uint64_t size = found.front.file_bytes;
  auto done = std::exchange(getting->done, nullptr);
  auto front = decode_remote_front({getting->buffer.get(), size}, key);
  if (front.ok() && *front != found.front) {
    const Status why(StatusCode::not_found, "replaced meanwhile");
    count_miss(why);
    return done(why);
  }
  auto image =
      open_remote_value(std::exchange(getting->buffer, nullptr), size, found.name.object, key);
  if (image.ok()) {
    ++counts_.hits;
    counts_.bytes_in += size;
    return done(std::move(image));
  }
  count_miss(image.status());
  if (image.status().code() == StatusCode::corruption) {
    drop(found.name, found.front, getting->deadline);
  }
  done(image.status());
}

void RemoteTier::count_miss(const Status& why) {
  switch (why.code()) {
    case StatusCode::not_found:
      ++counts_.misses_absent;
      return;
    case StatusCode::corruption:
      ++counts_.misses_damaged;
      return;
    case StatusCode::unsupported:
      ++counts_.misses_foreign;
      return;
    default:
      ++counts_.misses_unreached;
  }
}

void RemoteTier::put(const FileImage& image, const Id& tag, Clock::time_point deadline,
                     std::function<void(Result<RemotePut>)> done) {
  auto putting = std::make_shared<Putting>();
  putting->name = {image.header.name, tag};
  putting->key = remote_key(prefix_, putting->name);
  putting->deadline = deadline;
  putting->done = std::move(done);
  auto value = make_remote_value(image, options_.key.get());
  if (!value.ok()) return end_put(putting, value.status());
  auto room = charge(value->front.file_bytes);
  if (!room) return end_put(putting, Status(StatusCode::busy, "no room for a value"));
  putting->value.front = value->front;
  for (const Bytes& piece : value->pieces) {  // the charge goes with the last of the bytes
    using Kept = std::pair<Bytes, std::shared_ptr<const void>>;
    auto kept = std::make_shared<const Kept>(piece, room);
    putting->value.pieces.emplace_back(kept, piece.data(), piece.size());
  }
  auto answer = [this, putting](const Reply& reply) {
    if (!reply.ok()) return end_put(putting, reply.status());
    if (reply->integer != 0) return end_put(putting, RemotePut::existed);
    put_rest(putting);
  };
  run(putting->key, true, RedisRequest::Way::question, deadline,
      {remote_words({"EXISTS", putting->key})}, std::move(answer));
}

// The further parts; the first one makes them visible.
void RemoteTier::put_rest(const PuttingRef& putting) {
  const uint64_t parts = putting->value.front.parts();
  if (parts == 1) return put_first(putting);
  putting->missing = parts - 1;
  for (uint64_t i = 1; i < parts; ++i) {
    put_part(putting, i, false, [this, putting](const Reply& reply) {
      if (putting->ended) return;
      if (!reply.ok()) return end_put(putting, reply.status());
      if (--putting->missing == 0) put_first(putting);
    });
  }
}

void RemoteTier::put_first(const PuttingRef& putting) {
  put_part(putting, 0, true, [this, putting](const Reply& reply) {
    if (!reply.ok()) return end_put(putting, reply.status());
    const bool stored = reply->type == RespType::simple;
    end_put(putting, stored ? RemotePut::stored : RemotePut::existed);
  });
}

void RemoteTier::put_part(const PuttingRef& putting, uint64_t index, bool only_if_absent,
                          std::function<void(Reply)> done) {
  const RemoteValue& value = putting->value;
  const std::string key =
      index == 0 ? putting->key : remote_part_key(putting->key, value.front.sum, index);
  std::vector<Bytes> command = value.part(index);
  uint64_t bytes = 0;
  for (const Bytes& piece : command) bytes += piece.size();
  command.insert(command.begin(), set_head(key, bytes, only_if_absent));
  command.push_back(set_end(options_.ttl, only_if_absent));
  run(key, true, RedisRequest::Way::value, putting->deadline, std::move(command), std::move(done));
}

void RemoteTier::end_put(const PuttingRef& putting, Result<RemotePut> result) {
  if (std::exchange(putting->ended, true)) return;
  if (result.ok() && *result == RemotePut::stored) {
    ++counts_.stored;
    counts_.bytes_out += putting->value.front.file_bytes;
  } else if (result.ok()) {
    ++counts_.existed;
  } else {
    const bool full = result.status().code() == StatusCode::resource_exhausted;
    ++(full ? counts_.refused_full : counts_.put_failures);
  }
  putting->value.pieces.clear();
  std::exchange(putting->done, nullptr)(std::move(result));
}

}  // namespace kv
