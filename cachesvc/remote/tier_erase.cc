// Erasing: what a client deletes, and what turned out to be damaged.
#include <algorithm>
#include <utility>

#include "cachesvc/remote/tier.h"

namespace kv {
namespace {

constexpr int kScanCount = 500;        // keys of one answer, about
constexpr size_t kErasedAtOnce = 128;  // names of one step of erase()

std::vector<std::string> keys_of(const std::string& first, const RemoteFront& front) {
  std::vector<std::string> keys{first};
  for (uint64_t i = 1; i < front.parts(); ++i) {
    keys.push_back(remote_part_key(first, front.sum, i));
  }
  return keys;
}

}  // namespace

void RemoteTier::drop(const RemoteName& name, const RemoteFront& front,
                      Clock::time_point deadline) {
  commands_.unlink(keys_of(remote_key(name), front), deadline,
                   [this](const Unlinked& result) { counts_.unlinked += result.all ? 1 : 0; });
}

// An erase, until its last part has ended.
struct RemoteTier::Erasing {
  Clock::time_point deadline;
  std::function<void(RemoteErased)> done;
  RemoteErased result{};
  std::string prefix{};             // of erase_all()
  std::vector<RemoteName> names{};  // of erase()
  size_t next = 0;                  // of the names
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
  auto erasing = std::make_shared<Erasing>(Erasing{deadline, std::move(done)});
  erasing->names = std::move(names);
  erase_some(erasing);
}

// Asks what the next names have, to know all keys of each.
void RemoteTier::erase_some(const ErasingRef& erasing) {
  const size_t count = std::min(kErasedAtOnce, erasing->names.size() - erasing->next);
  if (count == 0) return erasing->done(erasing->result);
  auto found = std::make_shared<std::vector<RemoteFound>>(count);
  erasing->missing = count;
  for (size_t i = 0; i < count; ++i) {
    const RemoteName name = erasing->names[erasing->next + i];
    commands_.ask_front(remote_key(name), true, erasing->deadline,
                        [this, erasing, found, i, name](const Reply& reply) {
                          (*found)[i] = judge(name, reply);
                          if (--erasing->missing == 0) erase_found(erasing, *found);
                        });
  }
}

void RemoteTier::erase_found(const ErasingRef& erasing, const std::vector<RemoteFound>& found) {
  erasing->next += found.size();
  std::vector<std::string> keys;
  std::vector<size_t> ends;  // behind the last key of each name that is there
  for (const RemoteFound& f : found) {
    if (f.state == RemoteFound::State::unreached) ++erasing->result.unreached;
    if (f.state == RemoteFound::State::absent || f.state == RemoteFound::State::unreached) continue;
    for (std::string& key : keys_of(remote_key(f.name), f.front)) keys.push_back(std::move(key));
    ends.push_back(keys.size());
  }
  commands_.unlink(std::move(keys), erasing->deadline,
                   [this, erasing, ends](const Unlinked& unlinked) {
                     auto at = unlinked.failed.begin();
                     for (size_t end : ends) {
                       const auto to = unlinked.failed.begin() + static_cast<ptrdiff_t>(end);
                       const bool left = std::find(at, to, true) != to;
                       ++(left ? erasing->result.unreached : erasing->result.erased);
                       at = to;
                     }
                     erase_some(erasing);
                   });
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
  commands_.ask(prefix, true, deadline, remote_words({"EXISTS", prefix}), std::move(begin));
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
  commands_.unlink(std::move(keys), erasing->deadline,
                   [this, erasing, node, cursor = reply.items[0].text](const Unlinked& unlinked) {
                     erasing->result.erased += unlinked.values;
                     if (!unlinked.all || cursor == "0")
                       return erasing->one(0, unlinked.all ? 0 : 1);
                     scan(erasing, node, cursor);
                   });
}

}  // namespace kv
