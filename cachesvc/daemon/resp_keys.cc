// Commands on values, and what the port tells of itself.
#include "cachesvc/daemon/resp_keys.h"

#include <algorithm>
#include <utility>

#include "proto/keyed.h"

namespace kv {
namespace {

constexpr uint8_t kLineEnd[] = {'\r', '\n'};

}  // namespace

// A command over several keys, which are done one after the other.
struct RespKeys::Many {
  std::vector<std::string> arguments;
  size_t next = 1;
  uint64_t count = 0;  // of those that there were
};

// The port.

void RespKeys::with_stats(std::function<void(const StatsReply&)> then) {
  core_.stats(host_.session(), deadline_in(kRespTimeout),
              [this, keep = host_.keep(), then = std::move(then)](const Result<StatsReply>& stats) {
                if (host_.closed()) return;
                stats.ok() ? then(*stats) : resp_error(host_, "ERR " + stats.status().message());
              });
}

void RespKeys::dbsize(RespRequest&) {
  with_stats([this](const StatsReply& stats) { resp_integer(host_, stat(stats, kKeysStat)); });
}

void RespKeys::info(RespRequest& in) {
  with_stats([this, sections = std::move(in.command.arguments)](const StatsReply& stats) {
    RespWriter out;
    out.bulk(resp_info(sections, stats, *core_.pool(), counts_, host_.connections()));
    resp_reply(host_, std::move(out));
  });
}

// Values.

// LMCache's client reads as many bytes as the answer that it expects begins with: after `$-1` it
// would wait for more for ever. It asks only for what EXISTS told of; where that is gone all the
// same, it learns so by the end of the connection.
void RespKeys::get(RespRequest& in) {
  const std::string& key = in.command.arguments[1];
  auto done = [this](std::optional<RespValues::Value> value, bool promised) {
    ++(value ? counts_.hits : counts_.misses);
    if (!value && promised) return host_.close("a value went between EXISTS and GET");
    RespWriter out;
    if (!value) {
      out.null();
      return resp_reply(host_, std::move(out));
    }
    out.bulk_head(value->bytes.size());
    OutFrame frame;
    frame.head = out.take();
    frame.kept = std::move(value->kept);
    frame.pieces = {std::move(value->bytes), Bytes(nullptr, kLineEnd, sizeof(kLineEnd))};
    host_.answer(std::move(frame));
  };
  if (in.command.dropped || key.size() > kMaxKeyBytes) return done(std::nullopt, false);
  values_.get(key, done);
}

void RespKeys::set(RespRequest& in) {
  RespCommand& command = in.command;
  if (command.arguments.size() > 3) return resp_error(host_, "ERR syntax error");
  const std::string& key = command.arguments[1];
  auto done = [this](RespValues::End end) { set_ended(end); };
  if (key.size() > kMaxKeyBytes || command.dropped == 1u) return done(RespValues::End::dropped);
  if (command.dropped) {
    return values_.remove(key, [done](const Result<bool>& removed) {
      done(removed.ok() ? RespValues::End::dropped : RespValues::End::unknown);
    });
  }
  if (command.buffered) {
    const std::span<uint8_t> state(in.staging.body.data(), in.staging.body.size());
    write_keyed_head(key, state);
    auto room = std::move(in.staging.room);
    return values_.set(key, std::move(in.staging.body).freeze(), std::move(room), done);
  }
  const std::string& value = command.arguments[2];
  std::vector<uint8_t> state(keyed_head_bytes(key) + value.size());
  write_keyed_head(key, state);
  std::copy(value.begin(), value.end(), state.end() - static_cast<ptrdiff_t>(value.size()));
  values_.set(key, Bytes::owning(std::move(state)), nullptr, done);
}

// No error comes in place of `+OK`: clients read as many bytes, whatever they are. An earlier value
// that may be there yet would be a wrong answer to the next GET.
void RespKeys::set_ended(RespValues::End end) {
  if (end == RespValues::End::unknown) return host_.close("a value could not be replaced");
  if (end == RespValues::End::dropped) host_.dropped_value();
  resp_ok(host_);
}

// Several keys, one in each turn.

bool RespKeys::is_done(const Many& many) {
  if (many.next < many.arguments.size()) return false;
  resp_integer(host_, many.count);
  return true;
}

void RespKeys::go_on(const std::shared_ptr<Many>& many,
                     void (RespKeys::*step)(std::shared_ptr<Many>)) {
  if (is_done(*many)) return;
  host_.take_turn([this, keep = host_.keep(), many, step] {
    if (!host_.closed()) (this->*step)(many);
  });
}

void RespKeys::exists(RespRequest& in) {
  count_found(std::make_shared<Many>(Many{std::move(in.command.arguments)}));
}

void RespKeys::count_found(std::shared_ptr<Many> many) {
  const std::string& key = many->arguments[many->next++];
  auto done = [this, many](bool found) {
    many->count += found;
    go_on(many, &RespKeys::count_found);
  };
  key.size() > kMaxKeyBytes ? done(false) : values_.exists(key, done);
}

void RespKeys::del(RespRequest& in) {
  remove(std::make_shared<Many>(Many{std::move(in.command.arguments)}));
}

void RespKeys::remove(std::shared_ptr<Many> many) {
  const std::string& key = many->arguments[many->next++];
  auto done = [this, many](const Result<bool>& removed) {
    if (!removed.ok()) {
      host_.last_command();  // who reads no more than a number finds the end
      return resp_error(host_, "ERR " + removed.status().message());
    }
    many->count += *removed;
    go_on(many, &RespKeys::remove);
  };
  key.size() > kMaxKeyBytes ? done(false) : values_.remove(key, done);
}

}  // namespace kv
