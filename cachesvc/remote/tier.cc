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

}  // namespace

// A get(), whose object is asked for once, and once more of replicas if that is slow.
struct RemoteTier::Getting {
  RemoteFound found;
  Clock::time_point deadline;
  std::function<void(Result<FileImage>)> done;  // null: it has ended
  int under_way = 0;                            // attempts
  Status failure;                               // of the attempt at masters
  std::unique_ptr<Timer> hedge;
};

struct RemoteTier::Attempt {
  GettingRef getting;
  bool at_replica = false;
  std::shared_ptr<uint8_t[]> buffer;
  uint64_t missing = 0;    // parts that have not answered
  bool has_front = false;  // the first one has come
  Status failure;          // the first part's, else that of the first to fail
};

struct RemoteTier::Putting {
  RemoteName name;
  std::string key;
  Clock::time_point deadline;
  std::function<void(Result<RemotePut>)> done;
  FileImage image;
  std::shared_ptr<const void> room;
  RemoteValue value;
  uint64_t missing = 0;  // further parts
  bool ended = false;
};

RemoteTier::RemoteTier(RedisCluster& cluster, RemoteTierOptions options)
    : cluster_(cluster),
      options_(std::move(options)),
      commands_(cluster, {options_.ttl, options_.max_bytes_in_flight}, counts_),
      agreement_(cluster, commands_, options_.key, counts_) {}

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
    auto answer = [this, finding, i, deadline, name = names[i]](const Reply& reply) {
      RemoteFound& found = finding->found[i] = judge(name, reply);
      if (found.state == TierState::there) ++counts_.found;
      if (found.state == TierState::damaged) drop(name, {}, deadline);
      if (--finding->missing == 0) finding->done(std::move(finding->found));
    };
    commands_.ask_front(remote_key(names[i]), false, deadline, std::move(answer));
  }
}

void RemoteTier::get(const RemoteFound& found, Clock::time_point deadline,
                     std::function<void(Result<FileImage>)> done) {
  KV_CHECK(found.state == TierState::there);
  auto getting = std::make_shared<Getting>();
  getting->found = found;
  getting->deadline = deadline;
  getting->done = std::move(done);
  if (cluster_.hedge_after().count() > 0) {
    getting->hedge = std::make_unique<Timer>(cluster_.loop().get_executor(),
                                             [this, weak = std::weak_ptr<Getting>(getting)] {
                                               auto slow = weak.lock();
                                               if (slow && slow->done) (void)attempt(slow, true);
                                             });
    getting->hedge->arm_in(cluster_.hedge_after());
  }
  Status begun = attempt(getting, false);
  if (begun.ok() || !getting->done) return;
  getting->hedge.reset();
  std::exchange(getting->done, nullptr)(begun);
}

// Asks for all parts. Returns: busy.
Status RemoteTier::attempt(const GettingRef& getting, bool at_replica) {
  const RemoteFound& found = getting->found;
  const uint64_t size = found.front.file_bytes, parts = found.front.parts();
  auto room = commands_.charge(size);
  if (!room) return {StatusCode::busy, "no room for a value of the shared tier"};
  KV_ASSIGN_OR_RETURN(auto memory, file_buffer(size));
  auto attempt = std::make_shared<Attempt>();
  attempt->getting = getting;
  attempt->at_replica = at_replica;
  attempt->buffer = memory;
  attempt->missing = parts;
  ++getting->under_way;
  using Kept = std::pair<std::shared_ptr<uint8_t[]>, std::shared_ptr<const void>>;
  auto keep = std::make_shared<const Kept>(memory, std::move(room));
  const std::string first = remote_key(found.name);
  for (uint64_t i = 0; i < parts; ++i) {
    const std::string key = i == 0 ? first : remote_part_key(first, found.front.sum, i);
    const uint64_t at = i * kRemotePartBytes;
    RedisRequest request;
    request.slot = key_slot(key);
    request.at_replica = at_replica;
    request.way = RedisRequest::Way::value;
    request.deadline = getting->deadline;
    request.bytes = {remote_words({"GET", key})};
    request.into = {memory.get() + at, std::min(kRemotePartBytes, size - at)};
    request.keep = keep;
    request.done = [this, attempt, i](const Reply& reply) { take_part(*attempt, i, reply); };
    cluster_.run(std::move(request));
  }
  return {};
}

void RemoteTier::take_part(Attempt& attempt, uint64_t index, const Reply& reply) {
  const uint64_t all = attempt.getting->found.front.file_bytes;
  const uint64_t bytes = std::min(kRemotePartBytes, all - index * kRemotePartBytes);
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
  if (index == 0) attempt.has_front = status.ok();
  if (!status.ok() && (attempt.failure.ok() || index == 0)) attempt.failure = std::move(status);
  if (--attempt.missing == 0) end_attempt(attempt);
}

// All parts have answered. Of a value that another one has replaced, further parts may be gone.
void RemoteTier::end_attempt(Attempt& attempt) {
  Getting& getting = *attempt.getting;
  --getting.under_way;
  if (!getting.done) return;
  const RemoteFound& found = getting.found;
  const SealKey* key = options_.key.get();
  const uint64_t size = found.front.file_bytes;
  auto buffer = std::exchange(attempt.buffer, nullptr);
  Status failure = attempt.failure;
  if (attempt.has_front) {
    auto front = decode_remote_front({buffer.get(), size}, key);
    if (front.ok() && *front != found.front) {
      failure = {StatusCode::not_found, "replaced meanwhile"};
    }
  }
  if (failure.ok()) {
    auto image = open_remote_value(std::move(buffer), size, found.name.object, key);
    if (image.ok()) {
      ++counts_.hits;
      counts_.bytes_in += size;
      getting.hedge.reset();
      return std::exchange(getting.done, nullptr)(std::move(image));
    }
    failure = image.status();
  }
  if (!attempt.at_replica) getting.failure = failure;
  if (getting.under_way > 0) return;
  getting.hedge.reset();
  // The master's word: a replica may not have all parts yet.
  count_miss(getting.failure);
  if (getting.failure.code() == StatusCode::corruption) {
    drop(found.name, found.front, getting.deadline);
  }
  std::exchange(getting.done, nullptr)(getting.failure);
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

void RemoteTier::put(const FileImage& image, const RemoteName& name, Clock::time_point deadline,
                     std::function<void(Result<RemotePut>)> done) {
  auto putting = std::make_shared<Putting>();
  KV_CHECK(image.header.name == name.object);
  putting->name = name;
  putting->key = remote_key(putting->name);
  putting->deadline = deadline;
  putting->done = std::move(done);
  const uint64_t bytes = image.stored_bytes(), most = options_.max_bytes_in_flight;
  if (bytes > most) {
    return end_put(putting, invalid_argument("a value of " + std::to_string(bytes) +
                                             " bytes, over the limit of those under way, " +
                                             std::to_string(most)));
  }
  auto room = commands_.charge(bytes);
  if (!room) return end_put(putting, Status(StatusCode::busy, "no room for a value"));
  putting->image = image;
  putting->room = std::move(room);
  auto answer = [this, putting](const Reply& reply) {
    if (!reply.ok()) return end_put(putting, reply.status());
    if (reply->integer != 0) return end_put(putting, RemotePut::existed);
    make_value(putting);
  };
  commands_.ask(putting->key, true, deadline, remote_words({"EXISTS", putting->key}),
                std::move(answer));
}

// Only what is not there is hashed and sealed; others' bytes are on their way meanwhile.
void RemoteTier::make_value(const PuttingRef& putting) {
  auto value = make_remote_value(putting->image, options_.key.get());
  if (!value.ok()) return end_put(putting, value.status());
  putting->value.front = value->front;
  for (const Bytes& piece : value->pieces) {  // the charge goes with the last of the bytes
    using Kept = std::pair<Bytes, std::shared_ptr<const void>>;
    auto kept = std::make_shared<const Kept>(piece, putting->room);
    putting->value.pieces.emplace_back(kept, piece.data(), piece.size());
  }
  put_rest(putting);
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
  commands_.set(key, value.part(index), only_if_absent, putting->deadline, std::move(done));
}

void RemoteTier::end_put(const PuttingRef& putting, Result<RemotePut> result) {
  if (std::exchange(putting->ended, true)) return;
  if (result.ok()) enlist(putting->name, putting->deadline);
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
  putting->image = {};
  putting->room.reset();
  std::exchange(putting->done, nullptr)(std::move(result));
}

}  // namespace kv
