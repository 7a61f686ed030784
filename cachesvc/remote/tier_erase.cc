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

// An erase, until its last part has ended.
struct RemoteTier::Erasing {
  Clock::time_point deadline;
  std::function<void(RemoteErased)> done;
  RemoteErased result{};
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
    const std::string key = remote_key(prefix_, name);
    auto answer = [this, erasing, name](const Reply& reply) {
      const RemoteFound found = judge(name, reply);
      if (found.state == RemoteFound::State::absent) return erasing->one(0, 0);
      if (found.state == RemoteFound::State::unreached) return erasing->one(0, 1);
      unlink(name, found.front, erasing->deadline,
             [erasing](bool all) { all ? erasing->one(1, 0) : erasing->one(0, 1); });
    };
    // As a write: a replica may not know yet what is there.
    run(key, true, RedisRequest::Way::question, deadline,
        {remote_words({"GETRANGE", key, "0", std::to_string(kRemoteFrontBytes - 1)})},
        std::move(answer));
  }
}

// The first question makes sure that the nodes are known.
void RemoteTier::erase_all(Clock::time_point deadline, std::function<void(RemoteErased)> done) {
  auto erasing = std::make_shared<Erasing>(Erasing{deadline, std::move(done)});
  auto begin = [this, erasing](const Reply&) {
    const std::vector<NodeAddress> masters = cluster_.masters();
    erasing->missing = masters.size() + 1;
    for (const NodeAddress& node : masters) scan(erasing, node, "0");
    erasing->one(0, masters.empty() ? 1 : 0);
  };
  run(prefix_, true, RedisRequest::Way::question, deadline, {remote_words({"EXISTS", prefix_})},
      std::move(begin));
}

void RemoteTier::scan(const ErasingRef& erasing, const NodeAddress& node,
                      const std::string& cursor) {
  RedisRequest request;
  request.node = node;
  request.writes = true;
  request.deadline = erasing->deadline;
  request.bytes = {
      remote_words({"SCAN", cursor, "MATCH", prefix_ + "*", "COUNT", std::to_string(kScanCount)})};
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
  struct Step {
    uint64_t erased = 0;
    size_t missing = 1;
    bool all = true;
  };
  auto step = std::make_shared<Step>();
  auto ended = [this, erasing, node, step, cursor = reply.items[0].text] {
    if (--step->missing > 0) return;
    erasing->result.erased += step->erased;
    if (!step->all || cursor == "0") return erasing->one(0, step->all ? 0 : 1);
    scan(erasing, node, cursor);
  };
  step->missing += reply.items[1].items.size();
  for (const RespReply& item : reply.items[1].items) {
    const std::string& key = item.text;
    const bool first = std::count(key.begin(), key.end(), ':') == kColonsOfFirst;
    run(key, true, RedisRequest::Way::question, erasing->deadline, {remote_words({"UNLINK", key})},
        [step, first, ended](const Reply& unlinked) {
          step->all = step->all && unlinked.ok();
          step->erased += first && unlinked.ok() ? static_cast<uint64_t>(unlinked->integer) : 0;
          ended();
        });
  }
  ended();
}

}  // namespace kv
