// Commands, charges and unlinks. See commands.h.
#include "cachesvc/remote/commands.h"

#include <algorithm>
#include <utility>

namespace kv {
namespace {

constexpr int kColonsOfFirst = 3;        // in the key of a first part
constexpr size_t kUnlinkedAtOnce = 512;  // keys of one unlink(), under way

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

std::shared_ptr<const void> RemoteCommands::charge(uint64_t bytes) {
  if (bytes >
      limits_.max_bytes_in_flight - std::min(in_flight_->load(), limits_.max_bytes_in_flight)) {
    ++counts_.busy;
    return nullptr;
  }
  *in_flight_ += bytes;
  return std::shared_ptr<const void>(in_flight_.get(),
                                     [sum = in_flight_, bytes](const void*) { *sum -= bytes; });
}

void RemoteCommands::run(const std::string& key, bool writes, RedisRequest::Way way,
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

void RemoteCommands::ask(const std::string& key, bool as_write, Clock::time_point deadline,
                         Bytes command, std::function<void(Reply)> done) {
  run(key, as_write, RedisRequest::Way::question, deadline, {std::move(command)}, std::move(done));
}

void RemoteCommands::ask_front(const std::string& key, bool as_write, Clock::time_point deadline,
                               std::function<void(Reply)> done) {
  ask(key, as_write, deadline,
      remote_words({"GETRANGE", key, "0", std::to_string(kRemoteFrontBytes - 1)}), std::move(done));
}

void RemoteCommands::set(const std::string& key, std::vector<Bytes> value, bool only_if_absent,
                         Clock::time_point deadline, std::function<void(Reply)> done) {
  uint64_t bytes = 0;
  for (const Bytes& piece : value) bytes += piece.size();
  value.insert(value.begin(), set_head(key, bytes, only_if_absent));
  value.push_back(set_end(limits_.ttl, only_if_absent));
  run(key, true, RedisRequest::Way::value, deadline, std::move(value), std::move(done));
}

void RemoteCommands::renew(const std::string& key, Clock::time_point deadline) {
  ask(key, true, deadline, remote_words({"EXPIRE", key, std::to_string(limits_.ttl.count())}),
      [](const Reply&) {});
}

struct RemoteCommands::Unlinking {
  std::vector<std::string> keys;
  Clock::time_point deadline;
  std::function<void(Unlinked)> done;
  Unlinked result{};
  size_t next = 0, under_way = 0;
  bool asking = false;  // an answer that comes at once starts nothing
};

// A key each: several in one command are refused while their slot moves.
void RemoteCommands::unlink(std::vector<std::string> keys, Clock::time_point deadline,
                            std::function<void(Unlinked)> done) {
  auto unlinking =
      std::make_shared<Unlinking>(Unlinking{std::move(keys), deadline, std::move(done)});
  unlinking->result.failed.resize(unlinking->keys.size());
  unlink_some(unlinking);
}

void RemoteCommands::unlink_some(const std::shared_ptr<Unlinking>& unlinking) {
  Unlinking& u = *unlinking;
  if (std::exchange(u.asking, true)) return;
  for (; u.next < u.keys.size() && u.under_way < kUnlinkedAtOnce; ++u.next) {
    const std::string& key = u.keys[u.next];
    auto answer = [this, unlinking, at = u.next](const Reply& reply) {
      const std::string& its = unlinking->keys[at];
      const bool first = std::count(its.begin(), its.end(), ':') == kColonsOfFirst;
      Unlinked& result = unlinking->result;
      result.failed[at] = !reply.ok();
      result.all = result.all && reply.ok();
      if (first && reply.ok()) result.values += static_cast<uint64_t>(reply->integer);
      --unlinking->under_way;
      unlink_some(unlinking);
    };
    ++u.under_way;
    ask(key, true, u.deadline, remote_words({"UNLINK", key}), std::move(answer));
  }
  u.asking = false;
  if (u.under_way == 0 && u.done) std::exchange(u.done, nullptr)(u.result);
}

}  // namespace kv
