// Units and digits.
#include "cachesvc/daemon/http_numbers.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "cachesvc/daemon/http_metrics.h"

namespace kv {
namespace {

// Up to three digits: "1.25", "12.5", "125".
std::string three_digits(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.*f", value < 10 ? 2 : value < 100 ? 1 : 0, value);
  return text;
}

}  // namespace

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return (unit == 0 ? number_text(bytes) : three_digits(bytes)) + " " + kUnits[unit];
}

std::string seconds_text(double seconds) {
  if (seconds <= 0) return "0 s";
  if (seconds < 1e-3) return three_digits(seconds * 1e6) + " µs";
  if (seconds < 1) return three_digits(seconds * 1e3) + " ms";
  if (seconds < 120) return three_digits(seconds) + " s";
  if (seconds < 7200) return three_digits(seconds / 60) + " min";
  return seconds < 172800 ? three_digits(seconds / 3600) + " h"
                          : three_digits(seconds / 86400) + " days";
}

// "1,234,567".
std::string count_text(double count) {
  const std::string digits = number_text(count);
  const size_t end = std::min(digits.find('.'), digits.size());
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && i < end && (end - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string percent_text(double part, double all) {
  return all <= 0 ? "–" : three_digits(100 * part / all) + " %";
}

std::string html_text(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace kv
