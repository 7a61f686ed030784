// Parsers and printers of configuration values.
#include "cachesvc/daemon/config_values.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace kv {
namespace {

struct Unit {
  std::string_view name;
  uint64_t factor;
};
constexpr Unit kSizeUnits[] = {
    {"", 1},
    {"B", 1},
    {"K", 1ull << 10},
    {"KiB", 1ull << 10},
    {"KB", 1'000ull},
    {"M", 1ull << 20},
    {"MiB", 1ull << 20},
    {"MB", 1'000'000ull},
    {"G", 1ull << 30},
    {"GiB", 1ull << 30},
    {"GB", 1'000'000'000ull},
    {"T", 1ull << 40},
    {"TiB", 1ull << 40},
    {"TB", 1'000'000'000'000ull},
};
constexpr Unit kDurationUnits[] = {{"ms", 1}, {"s", 1'000}, {"m", 60'000}, {"h", 3'600'000}};
constexpr double kMaxValue = 9.0e18;

Status bad(std::string_view text, const char* expected) {
  return invalid_argument("\"" + std::string(text) + "\": expected " + expected);
}

constexpr std::string_view kAtMost = "%, at most ";

// The number that `text` begins with; `rest` is what follows it. NaN if there is none.
double leading_number(std::string_view text, std::string_view& rest) {
  double value = 0;
  auto [end, ec] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (ec != std::errc() || text[0] == '-') return std::nan("");
  rest = text.substr(static_cast<size_t>(end - text.data()));
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  return value;
}

template <size_t N>
Result<uint64_t> with_unit(std::string_view text, const Unit (&units)[N], const char* expected) {
  std::string_view rest;
  double number = text.empty() ? std::nan("") : leading_number(text, rest);
  if (std::isnan(number)) return bad(text, expected);
  for (const Unit& unit : units) {
    if (rest != unit.name) continue;
    double value = number * static_cast<double>(unit.factor);
    if (value > kMaxValue || value != std::floor(value)) return bad(text, expected);
    return static_cast<uint64_t>(value);
  }
  return bad(text, expected);
}

}  // namespace

Result<uint64_t> parse_count(std::string_view text, uint64_t low, uint64_t high) {
  uint64_t value = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    return invalid_argument("\"" + std::string(text) + "\": expected a whole number from " +
                            std::to_string(low) + " to " + std::to_string(high));
  }
  return value;
}

Result<uint64_t> parse_size(std::string_view text) {
  return with_unit(text, kSizeUnits, "a size such as 8GiB, 512MB or 4096");
}

Result<Amount> parse_amount(std::string_view text) {
  if (text.find('%') != text.npos) {
    std::string_view rest;
    double percent = leading_number(text, rest);
    const bool limited = rest.starts_with(kAtMost);
    if (std::isnan(percent) || (rest != "%" && !limited) || percent <= 0 || percent > 100) {
      return bad(text, "a share above 0% and up to 100%, such as 20%, or 20%, at most 4GiB");
    }
    Amount share{0, percent / 100};
    if (!limited) return share;
    KV_ASSIGN_OR_RETURN(share.most_bytes, parse_size(rest.substr(kAtMost.size())));
    if (share.most_bytes == 0) return bad(text, "a limit above 0");
    return share;
  }
  auto bytes = with_unit(text, kSizeUnits, "a size such as 8GiB or 512MB, or a share such as 20%");
  if (!bytes.ok()) return bytes.status();
  return Amount{*bytes, 0};
}

Result<std::chrono::milliseconds> parse_duration(std::string_view text) {
  if (text == "0") return std::chrono::milliseconds(0);
  auto ms = with_unit(text, kDurationUnits, "a duration such as 250ms, 20s, 5m or 1h");
  if (!ms.ok()) return ms.status();
  constexpr uint64_t kMaxMs = 366ull * 24 * 3'600'000;
  if (*ms > kMaxMs) return bad(text, "a duration of at most a year");
  return std::chrono::milliseconds(*ms);
}

Result<std::vector<uint32_t>> parse_uids(std::string_view text) {
  std::vector<uint32_t> uids;
  while (!text.empty()) {
    size_t comma = text.find(',');
    std::string_view one = text.substr(0, comma);
    while (!one.empty() && one.front() == ' ') one.remove_prefix(1);
    KV_ASSIGN_OR_RETURN(uint64_t uid, parse_count(one, 0, UINT32_MAX - 1));
    uids.push_back(static_cast<uint32_t>(uid));
    if (uids.size() > 1024) return bad(text, "at most 1024 user ids");
    text = comma == text.npos ? std::string_view() : text.substr(comma + 1);
  }
  return uids;
}

Result<TcpAddress> parse_address(std::string_view text) {
  TcpAddress address;
  if (text.empty()) return address;
  const size_t colon = text.find(':');
  const std::string ip(text.substr(0, colon));
  auto port = parse_count(colon == text.npos ? "" : text.substr(colon + 1), 1, UINT16_MAX);
  if (!port.ok() || ::inet_pton(AF_INET, ip.c_str(), address.ip.data()) != 1) {
    return bad(text, "an IPv4 address and a port, such as 127.0.0.1:6390");
  }
  address.port = static_cast<uint16_t>(*port);
  return address;
}

std::string format_size(uint64_t bytes) {
  constexpr Unit kBinary[] = {
      {"TiB", 1ull << 40}, {"GiB", 1ull << 30}, {"MiB", 1ull << 20}, {"KiB", 1ull << 10}};
  for (const Unit& unit : kBinary) {
    if (bytes > 0 && bytes % unit.factor == 0) {
      return std::to_string(bytes / unit.factor) + std::string(unit.name);
    }
  }
  return std::to_string(bytes);
}

std::string format_amount(const Amount& amount) {
  if (amount.fraction <= 0) return format_size(amount.bytes);
  std::string percent = std::to_string(amount.fraction * 100);
  percent.erase(percent.find_last_not_of('0') + 1);
  if (percent.ends_with('.')) percent.pop_back();
  if (amount.most_bytes == 0) return percent + "%";
  return percent + std::string(kAtMost) + format_size(amount.most_bytes);
}

std::string format_duration(std::chrono::milliseconds ms) {
  uint64_t n = static_cast<uint64_t>(ms.count());
  if (n == 0) return "0";
  if (n % 3'600'000 == 0) return std::to_string(n / 3'600'000) + "h";
  if (n % 60'000 == 0) return std::to_string(n / 60'000) + "m";
  return n % 1'000 == 0 ? std::to_string(n / 1'000) + "s" : std::to_string(n) + "ms";
}

std::string nearest(std::string_view given, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_edits = given.size() / 3 + 2;
  for (const auto& candidate : candidates) {
    std::vector<size_t> row(candidate.size() + 1);
    for (size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= given.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        size_t edits = std::min(
            {row[j] + 1, row[j - 1] + 1, diagonal + (given[i - 1] == candidate[j - 1] ? 0u : 1u)});
        diagonal = row[j];
        row[j] = edits;
      }
    }
    if (row.back() < best_edits) {
      best_edits = row.back();
      best = candidate;
    }
  }
  return best;
}

std::string format_address(const TcpAddress& address) {
  if (address.port == 0) return "";
  std::string out;
  for (uint8_t part : address.ip) out += (out.empty() ? "" : ".") + std::to_string(part);
  return out + ":" + std::to_string(address.port);
}

}  // namespace kv
