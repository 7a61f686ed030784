// Steps of an agreement. See profile_agreement.h.
#include "cachesvc/remote/profile_agreement.h"

#include <utility>

#include "proto/limits.h"
#include "storage/file_reader.h"

namespace kv {
namespace {

constexpr uint64_t kMaxValueBytes = kMaxProfileBytes + (1u << 16);  // framed and sealed
constexpr int kMaxRounds = 3;  // somebody puts or removes one between two steps

}  // namespace

struct ProfileAgreement::Agreeing {
  std::string key;
  std::shared_ptr<const Profile> own;
  Clock::time_point deadline;
  std::function<void(Result<RemoteProfile>)> done;
  int rounds = 0;
};

void ProfileAgreement::agree(std::string key, std::shared_ptr<const Profile> own,
                             Clock::time_point deadline,
                             std::function<void(Result<RemoteProfile>)> done) {
  ask(std::make_shared<Agreeing>(
      Agreeing{std::move(key), std::move(own), deadline, std::move(done)}));
}

// All of it is the master's word: a replica may lack the profile.
void ProfileAgreement::ask(const AgreeingRef& agreeing) {
  if (++agreeing->rounds > kMaxRounds) {  // an empty value, which is there and has no length
    return take(agreeing, nullptr, 0);
  }
  auto answer = [this, agreeing](const Reply& reply) {
    if (!reply.ok()) return agreeing->done(reply.status());
    if (reply->type == RespType::integer && reply->integer == 0) return put(agreeing);
    get(agreeing, static_cast<uint64_t>(reply->integer));
  };
  commands_.ask(agreeing->key, true, agreeing->deadline, remote_words({"STRLEN", agreeing->key}),
                std::move(answer));
}

void ProfileAgreement::get(const AgreeingRef& agreeing, uint64_t bytes) {
  if (bytes < kRemoteFrontBytes || bytes > kMaxValueBytes) {
    return take(agreeing, nullptr, 0);
  }
  auto room = commands_.charge(bytes);
  auto memory = file_buffer(bytes);
  if (!room || !memory.ok()) {
    return agreeing->done(Status(StatusCode::busy, "no room for a profile"));
  }
  using Kept = std::pair<std::shared_ptr<uint8_t[]>, std::shared_ptr<const void>>;
  RedisRequest request;
  request.slot = key_slot(agreeing->key);
  request.writes = true;
  request.way = RedisRequest::Way::value;
  request.deadline = agreeing->deadline;
  request.bytes = {remote_words({"GET", agreeing->key})};
  request.into = {memory->get(), bytes};
  request.keep = std::make_shared<const Kept>(*memory, room);
  request.done = [this, agreeing, buffer = *memory, bytes](const Reply& reply) {
    if (!reply.ok()) return agreeing->done(reply.status());
    if (reply->type == RespType::null) return ask(agreeing);
    const bool whole = reply->placed && static_cast<uint64_t>(reply->integer) == bytes;
    take(agreeing, whole ? buffer : nullptr, bytes);
  };
  cluster_.run(std::move(request));
}

// `buffer` null: it is none of a profile's length.
void ProfileAgreement::take(const AgreeingRef& agreeing, std::shared_ptr<uint8_t[]> buffer,
                            uint64_t bytes) {
  Result<Profile> opened = corruption("of another length than a profile's");
  if (buffer) {
    opened = open_remote_profile(std::move(buffer), bytes, agreeing->key, key_.get());
  }
  if (!opened.ok()) {
    const bool damaged = opened.status().code() == StatusCode::corruption;
    ++(damaged ? counts_.misses_damaged : counts_.misses_foreign);
    if (damaged) commands_.unlink({agreeing->key}, agreeing->deadline, [](const auto&) {});
    return agreeing->done(opened.status());
  }
  const auto profile = std::make_shared<const Profile>(std::move(*opened));
  commands_.renew(agreeing->key, agreeing->deadline);
  agreeing->done(RemoteProfile{profile, profile->id()});
}

void ProfileAgreement::put(const AgreeingRef& agreeing) {
  if (!agreeing->own) return agreeing->done(Status(StatusCode::not_found, "none is there"));
  auto value = make_remote_profile(*agreeing->own, agreeing->key, key_.get());
  if (!value.ok()) return agreeing->done(value.status());
  uint64_t bytes = 0;
  for (const Bytes& piece : *value) bytes += piece.size();
  auto room = commands_.charge(bytes);
  if (!room) return agreeing->done(Status(StatusCode::busy, "no room for a profile"));
  std::vector<Bytes> charged;  // the charge goes with the last of the bytes
  for (const Bytes& piece : *value) {
    using Kept = std::pair<Bytes, std::shared_ptr<const void>>;
    auto kept = std::make_shared<const Kept>(piece, room);
    charged.emplace_back(kept, piece.data(), piece.size());
  }
  commands_.set(agreeing->key, std::move(charged), true, agreeing->deadline,
                [this, agreeing](const Reply& reply) {
                  if (!reply.ok()) return agreeing->done(reply.status());
                  if (reply->type != RespType::simple) return ask(agreeing);
                  agreeing->done(RemoteProfile{agreeing->own, agreeing->own->id()});
                });
}

}  // namespace kv
