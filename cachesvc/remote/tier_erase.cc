// Erasing: what a client deletes, and what turned out to be damaged.
#include <utility>

#include "cachesvc/remote/tier.h"

namespace kv {
namespace {

std::vector<std::string> keys_of(const std::string& first, const RemoteFront& front) {
  std::vector<std::string> keys{first};
  for (uint64_t i = 1; i < front.parts(); ++i) {
    keys.push_back(remote_part_key(first, front.sum, i));
  }
  return keys;
}

}  // namespace

// A key each: several in one command are refused while their slot moves.
void RemoteTier::unlink(const RemoteName& name, const RemoteFront& front,
                        Clock::time_point deadline, std::function<void(bool all)> done) {
  struct Unlinking {
    size_t missing = 0;
    bool all = true;
    std::function<void(bool)> done;
  };
  const std::vector<std::string> keys = keys_of(remote_key(prefix_, name), front);
  auto unlinking = std::make_shared<Unlinking>();
  unlinking->missing = keys.size();
  unlinking->done = std::move(done);
  for (const std::string& key : keys) {
    run(key, true, RedisRequest::Way::question, deadline, {remote_words({"UNLINK", key})},
        [unlinking](const Reply& reply) {
          unlinking->all = unlinking->all && reply.ok();
          if (--unlinking->missing == 0) unlinking->done(unlinking->all);
        });
  }
}

void RemoteTier::drop(const RemoteName& name, const RemoteFront& front,
                      Clock::time_point deadline) {
  unlink(name, front, deadline, [this](bool all) { counts_.unlinked += all ? 1 : 0; });
}

void RemoteTier::erase(std::vector<RemoteName> names, Clock::time_point deadline,
                       std::function<void(RemoteErased)> done) {
  KV_CHECK(names.size() <= kMaxRemoteNames);
  struct Erasing {
    RemoteErased result;
    size_t missing = 0;
    std::function<void(RemoteErased)> done;
    void one(uint64_t erased, uint64_t unreached) {
      result.erased += erased;
      result.unreached += unreached;
      if (--missing == 0) done(result);
    }
  };
  if (names.empty()) return done({});
  auto erasing = std::make_shared<Erasing>();
  erasing->missing = names.size();
  erasing->done = std::move(done);
  for (const RemoteName& name : names) {
    const std::string key = remote_key(prefix_, name);
    auto answer = [this, erasing, name, deadline](const Reply& reply) {
      const RemoteFound found = judge(name, reply);
      if (found.state == RemoteFound::State::absent) return erasing->one(0, 0);
      if (found.state == RemoteFound::State::unreached) return erasing->one(0, 1);
      unlink(name, found.front, deadline,
             [erasing](bool all) { all ? erasing->one(1, 0) : erasing->one(0, 1); });
    };
    // As a write: a replica may not know yet what is there.
    run(key, true, RedisRequest::Way::question, deadline,
        {remote_words({"GETRANGE", key, "0", std::to_string(kRemoteFrontBytes - 1)})},
        std::move(answer));
  }
}

}  // namespace kv
