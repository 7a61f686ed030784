// The values that a configuration may hold, as people write them: sizes, shares, durations, lists.
//
// Pure functions, any thread. Every parser takes the whole text or refuses it with a message that
// says what was expected; nothing is rounded silently.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/status.h"

namespace kv {

/// Bytes, or a share of something that is known later (memory, file system).
struct Amount {
  uint64_t bytes = 0;
  double fraction = 0;      ///< above 0: a share; `bytes` is 0 then
  uint64_t most_bytes = 0;  ///< of a share: its limit; 0: none
};

/// An IPv4 address and port.
struct TcpAddress {
  std::array<uint8_t, 4> ip{};
  uint16_t port = 0;  ///< 0: no address
  bool is_loopback() const { return ip[0] == 127; }
};

/// A whole number. Returns: invalid_argument.
Result<uint64_t> parse_count(std::string_view text, uint64_t low, uint64_t high);
/// "0", "8GiB", "1.5GiB", "512MB", "4096": B, K, KB, KiB … TiB; one letter means the power of two.
Result<uint64_t> parse_size(std::string_view text);
/// A size as parse_size reads it, or "20%", or "20%, at most 4GiB".
Result<Amount> parse_amount(std::string_view text);
/// "250ms", "20s", "5m", "1h", "0".
Result<std::chrono::milliseconds> parse_duration(std::string_view text);
/// "1000,1001" or nothing.
Result<std::vector<uint32_t>> parse_uids(std::string_view text);

/// "127.0.0.1:6390", or nothing.
Result<TcpAddress> parse_address(std::string_view text);

/// The shortest exact text that the parsers read back.
std::string format_size(uint64_t bytes);
std::string format_amount(const Amount& amount);
std::string format_duration(std::chrono::milliseconds ms);
std::string format_address(const TcpAddress& address);  ///< empty: no port

/// The candidate that needs the fewest edits, or empty if none is near.
std::string nearest(std::string_view given, const std::vector<std::string>& candidates);

}  // namespace kv
