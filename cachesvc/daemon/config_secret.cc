// See config_secret.h.
#include "cachesvc/daemon/config_secret.h"

#include <array>

#include "cachesvc/namespace_options.h"
#include "proto/message.h"
#include "storage/private_file.h"

namespace kv {

Result<std::string> read_secret(const std::string& what, const std::string& path) {
  std::array<uint8_t, kMaxTokenBytes + 2> text{};
  KV_ASSIGN_OR_RETURN(size_t size, read_private(what, path, text));
  if (size > 0 && text[size - 1] == '\n') --size;
  if (size < kMinTokenBytes || size > kMaxTokenBytes) {
    return invalid_argument(what + " " + path + ": expected " + std::to_string(kMinTokenBytes) +
                            " to " + std::to_string(kMaxTokenBytes) + " bytes and a newline");
  }
  return std::string(text.begin(), text.begin() + static_cast<ptrdiff_t>(size));
}

}  // namespace kv
