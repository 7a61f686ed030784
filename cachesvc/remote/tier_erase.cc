// Erasing: what a client deletes, and what turned out to be damaged.
#include <algorithm>
#include <utility>

#include "cachesvc/remote/tier.h"

namespace kv {
namespace {

constexpr int kScanCount = 500;    // keys of one answer, about
constexpr int kColonsOfFirst = 3;  // in the key of a first part

std::vector<std::string> keys_of(const std::string& first, const RemoteFront& front) {
  std::vector<std::string> keys{first};
  for (uint64_t i = 1; i < front.parts(); ++i) {
    keys.push_back(remote_part_key(first, front.sum, i));
  }
  return keys;
}

}  // namespace

// A key each: several in one command are refused while their slot moves.
void RemoteTier::unlink(std::vector<std::string> keys, Clock::time_point deadline,
                        std::function<void(Unlinked)> done) {
  struct Unlinking {
    Unlinked result;
    size_t missing = 0;
    std::function<void(Unlinked)> done;
  };
  if (keys.empty()) return done({});
  auto unlinking = std::make_shared<Unlinking>();
  unlinking->missing = keys.size();
  unlinking->done = std::move(done);
  for (const std::string& key : keys) {
    const bool first = std::count(key.begin(), key.end(), ':') == kColonsOfFirst;
    run(key, true, RedisRequest::Way::question, deadline, {remote_words({"UNLINK", key})},
        [unlinking, first](const Reply& reply) {
          Unlinked& result = unlinking->result;
          result.all = result.all && reply.ok();
          if (first && reply.ok()) result.values += static_cast<uint64_t>(reply->integer);
          if (--unlinking->missing == 0) unlinking->done(result);
        });
  }
}

void RemoteTier::drop(const RemoteName& name, const RemoteFront& front,
                      Clock::time_point deadline) {
  unlink(keys_of(remote_key(name), front), deadline,
         [this](const Unlinked& result) { counts_.unlinked += result.all ? 1 : 0; });
}

// An erase, until its last part has ended.
struct RemoteTier::Erasing {
  Clock::time_point deadline;
  std::function<void(RemoteErased)> done;
  RemoteErased result{};
  std::string prefix{};  // of erase_all()
  size_t missing = 0;

  void one(uint64_t erased, uint64_t unreached) {
    result.erased += erased;
    result.unreached += unreached;
    if (--missing == 0) done(result);
  }
};

void RemoteTier::erase(std::vector<RemoteName> names, Clock::time_point deadline,
                       std::function<void(RemoteErased)> done) {
  KV_CHECK(names.size() <= kMaxRemoteNames);
  if (names.empty()) return done({});
  auto erasing = std::make_shared<Erasing>(Erasing{deadline, std::move(done)});
  erasing->missing = names.size();
  for (const RemoteName& name : names) {
    const std::string key = remote_key(name);
    auto answer = [this, erasing, name, key](const Reply& reply) {
      const RemoteFound found = judge(name, reply);
      if (found.state == RemoteFound::State::absent) return erasing->one(0, 0);
      if (found.state == RemoteFound::State::unreached) return erasing->one(0, 1);
      unlink(keys_of(key, found.front), erasing->deadline, [erasing](const Unlinked& result) {
        result.all ? erasing->one(1, 0) : erasing->one(0, 1);
      });
    };
    ask_front(key, true, deadline, std::move(answer));
  }
}

// The first question makes sure that the nodes are known.
void RemoteTier::erase_all(const RemoteSpace& space, Clock::time_point deadline,
                           std::function<void(RemoteErased)> done) {
  auto erasing = std::make_shared<Erasing>(Erasing{deadline, std::move(done)});
  const std::string prefix = erasing->prefix = remote_prefix(space);
  auto begin = [this, erasing](const Reply&) {
    const std::vector<NodeAddress> masters = cluster_.masters();
    erasing->missing = masters.size() + 1;
    for (const NodeAddress& node : masters) scan(erasing, node, "0");
    erasing->one(0, masters.empty() ? 1 : 0);
  };
  run(prefix, true, RedisRequest::Way::question, deadline, {remote_words({"EXISTS", prefix})},
      std::move(begin));
}

void RemoteTier::scan(const ErasingRef& erasing, const NodeAddress& node,
                      const std::string& cursor) {
  RedisRequest request;
  request.node = node;
  request.writes = true;
  request.deadline = erasing->deadline;
  request.bytes = {remote_words(
      {"SCAN", cursor, "MATCH", erasing->prefix + "*", "COUNT", std::to_string(kScanCount)})};
  request.done = [this, erasing, node](const Reply& reply) {
    if (!reply.ok()) return erasing->one(0, 1);
    scanned(erasing, node, *reply);
  };
  cluster_.run(std::move(request));
}

// Unlinks what was found, then goes on from the answer's cursor.
void RemoteTier::scanned(const ErasingRef& erasing, const NodeAddress& node,
                         const RespReply& reply) {
  if (reply.items.size() != 2 || reply.items[0].type != RespType::bulk) return erasing->one(0, 1);
  std::vector<std::string> keys;
  for (const RespReply& item : reply.items[1].items) keys.push_back(item.text);
  unlink(std::move(keys), erasing->deadline,
         [this, erasing, node, cursor = reply.items[0].text](const Unlinked& unlinked) {
           erasing->result.erased += unlinked.values;
           if (!unlinked.all || cursor == "0") return erasing->one(0, unlinked.all ? 0 : 1);
           scan(erasing, node, cursor);
         });
}

}  // namespace kv
