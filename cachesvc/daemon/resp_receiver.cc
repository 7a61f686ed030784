// Commands in.
#include "cachesvc/daemon/resp_receiver.h"

#include <algorithm>
#include <utility>

#include "proto/keyed.h"

namespace kv {

std::string resp_word(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return text;
}

void RespReceiver::hand_on(RespCommand command) {
  host_.received({std::move(command), take_staging(), take_error()});
}

void RespReceiver::find_place() {
  const RespBulk& bulk = *parser_.awaiting();
  const RespCommand& command = bulk.command;
  const bool a_value = command.arguments.size() == 2 && resp_word(command.arguments[0]) == "SET" &&
                       !command.dropped && !newcomer_;
  if (!a_value || command.arguments[1].size() > kMaxKeyBytes) {
    return skip({StatusCode::resource_exhausted,
                 "arguments over " + std::to_string(kMaxRespKeptBytes) + " bytes"});
  }
  const uint64_t bytes = keyed_head_bytes(command.arguments[1]) + bulk.bytes;
  if (bytes > max_state_bytes_) {
    return skip({StatusCode::resource_exhausted,
                 "a value of " + std::to_string(bulk.bytes) + " bytes, at most " +
                     std::to_string(max_state_bytes_) + " with its key"});
  }
  ask(bytes, StagingFor::put);
}

}  // namespace kv
