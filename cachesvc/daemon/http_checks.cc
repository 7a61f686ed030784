// Hosts, origins and tokens.
#include "cachesvc/daemon/http_checks.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdint>

#include "cachesvc/daemon/config_values.h"

namespace kv {
namespace {

char lower_case(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string in_lower_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), lower_case);
  return out;
}

// The host's name without its port; empty if the port is none.
std::string name_of(std::string_view host) {
  const size_t closing = host.starts_with('[') ? host.find(']') : 0;
  if (closing == host.npos) return "";
  const size_t colon = host.find(':', closing);
  if (colon != host.npos && !parse_count(host.substr(colon + 1), 1, UINT16_MAX).ok()) return "";
  return in_lower_case(host.substr(0, colon));
}

int value_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

// The text behind the scheme, which is compared without regard to case; empty: it is another one.
std::string_view after(std::string_view text, std::string_view scheme) {
  if (text.size() <= scheme.size() || in_lower_case(text.substr(0, scheme.size())) != scheme) {
    return {};
  }
  text.remove_prefix(scheme.size());
  if (text.front() != ' ') return {};
  while (text.starts_with(' ')) text.remove_prefix(1);
  return text;
}

}  // namespace

bool is_own_host(std::string_view host) {
  const std::string name = name_of(host);
  if (name == "localhost" || name == "[::1]") return true;
  uint8_t ip[4];
  return ::inet_pton(AF_INET, name.c_str(), ip) == 1 && ip[0] == 127;
}

bool is_own_origin(std::string_view origin, std::string_view host) {
  return origin.empty() || in_lower_case(origin) == "http://" + in_lower_case(host);
}

std::string from_base64(std::string_view text) {
  std::string out;
  if (text.size() % 4 != 0) return out;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  text.remove_suffix(padding);
  uint32_t bits = 0;
  int count = 0;
  for (char c : text) {
    const int value = value_of(c);
    if (value < 0) return "";
    bits = (bits << 6 | static_cast<uint32_t>(value)) & 0xffffff;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count);
  }
  return out;
}

std::string token_of(std::string_view authorization) {
  if (auto bearer = after(authorization, "bearer"); !bearer.empty()) return std::string(bearer);
  const std::string pair = from_base64(after(authorization, "basic"));
  const size_t colon = pair.find(':');
  return colon == pair.npos ? "" : pair.substr(colon + 1);
}

}  // namespace kv
