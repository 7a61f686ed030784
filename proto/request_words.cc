// Words of request records: the one place that makes them.
#include <algorithm>
#include <cstdio>

#include "proto/request_record.h"

namespace kv {
namespace {

constexpr size_t kShownDigits = 8;  // of an id

std::string number(uint64_t n) {  // 12,288
  std::string digits = std::to_string(n), out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string tokens(uint64_t n) { return number(n) + (n == 1 ? " token" : " tokens"); }

std::string short_id(const Id& id) { return id.hex().substr(0, kShownDigits) + ".."; }

std::string percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? "0 %" : std::to_string(100 * part / whole) + " %";
}

std::string ago(const RequestRecord& r, uint64_t now_ms) {
  if (r.since_ms == 0) return "";
  return " " + time_words(now_ms - std::min(now_ms, r.since_ms)) + " ago";
}

std::string need_of(const RequestRecord& r) {
  return r.by.empty() ? "" : ", for namespace \"" + r.by + "\"";
}

std::string microseconds(uint32_t us) {
  char text[32];
  if (us < 1000) return std::to_string(us) + " us";
  std::snprintf(text, sizeof(text), us < 100'000 ? "%.1f ms" : "%.0f ms", us / 1000.0);
  return text;
}

std::string served_words(const RequestRecord& r) {
  const uint32_t most = r.asked > 0 ? r.asked - 1 : 0;
  const char* verb = r.kind == RequestKind::question ? "would be served: " : "served: ";
  std::string out =
      verb + number(r.served()) + " of " + tokens(most) + " (" + percent(r.served(), most) + ")";
  if (r.served() == 0) return out;
  struct Part {
    uint32_t tokens;
    const char* place;
  };
  std::vector<Part> parts{
      {r.ram_tokens, "RAM"}, {r.ssd_tokens, "SSD"}, {r.remote_tokens, "the shared tier"}};
  std::erase_if(parts, [](const Part& part) { return part.tokens == 0; });
  if (parts.size() == 1) return out + " from " + parts[0].place;
  for (size_t i = 0; i < parts.size(); ++i) {
    out += (i + 1 < parts.size() ? ", " : " and ") + number(parts[i].tokens) + " from " +
           parts[i].place;
  }
  return out;
}

std::string place_words(const RequestRecord& r) {
  std::string out = "the first missing token is " + number(r.missing_from);
  if (r.block_tokens > 0) {
    out += ", in block " + number(r.missing_from / r.block_tokens) + " (of " +
           tokens(r.block_tokens) + ")";
  }
  if (r.common > r.served()) out += "; equal to what is stored up to " + number(r.common);
  return out;
}

std::string end_words(const RequestRecord& r) {
  std::string out = "the nearest end of a stored sequence is at " + number(r.end);
  return r.label.empty() ? out : out + ", \"" + r.label + "\"";
}

std::string time_line(const RequestRecord& r) {
  std::string out = "took " + microseconds(r.total_us);
  std::string parts;
  auto add = [&](uint32_t us, const char* what) {
    if (us > 0) parts += (parts.empty() ? "" : ", ") + microseconds(us) + " " + what;
  };
  add(r.wait_us, "waiting for RAM");
  add(r.read_us, "reading the SSD");
  add(r.make_us, "decoding");
  return parts.empty() ? out : out + ": " + parts;
}

std::string cost_words(const RequestRecord& r) {
  std::string out;
  if (r.saved_ms > 0) out = "saved " + time_words(r.saved_ms) + " of prefill";
  if (r.missed_ms > 0) {
    out += (out.empty() ? "" : "; ") + std::string("the rest costs ") + time_words(r.missed_ms) +
           " of prefill";
  }
  return out;
}

}  // namespace

std::string time_words(uint64_t ms) {
  if (ms < 1000) return std::to_string(ms) + " ms";
  const uint64_t s = ms / 1000;
  char text[32];
  if (s < 10 && ms % 1000 != 0) {
    std::snprintf(text, sizeof(text), "%.1f s", static_cast<double>(ms) / 1000);
    return text;
  }
  if (s < 120) return std::to_string(s) + " s";
  if (s < 120 * 60) return std::to_string(s / 60) + " min";
  if (s < 48 * 3600) return std::to_string(s / 3600) + " h";
  return std::to_string(s / 86400) + " d";
}

std::string miss_words(const RequestRecord& r, uint64_t now_ms) {
  switch (r.missing) {
    case Missing::nothing:
      return "nothing is missing";
    case Missing::never_stored:
      if (r.since_ms == 0) return "never stored";
      return "never stored in the " + time_words(now_ms - std::min(now_ms, r.since_ms)) +
             " that are remembered";
    case Missing::evicted_ram:
      return "evicted from RAM" + ago(r, now_ms) + " by pressure" + need_of(r) +
             ", before it was on the SSD";
    case Missing::evicted_ssd:
      return "evicted from SSD" + ago(r, now_ms) + " by pressure" + need_of(r);
    case Missing::evicted_index:
      return "evicted" + ago(r, now_ms) + ": the index was full";
    case Missing::erased:
      return "erased" + ago(r, now_ms);
    case Missing::expired:
      return "expired" + ago(r, now_ms);
    case Missing::damaged:
      return "damaged: dropped" + ago(r, now_ms);
    case Missing::file_gone:
      return "its file was gone" + ago(r, now_ms);
    case Missing::unreadable:
      return "its file can't be read; tried again soon";
    case Missing::part:
      return "its block is stored, but what belongs to it is not";
    case Missing::other_profile:
      return "the same tokens (" + number(r.other_tokens) + ") are stored under profile " +
             short_id(r.other);
    case Missing::other_model:
      return "the same tokens (" + number(r.other_tokens) + ") are stored under fingerprint " +
             short_id(r.other);
    case Missing::no_room:
      return "RAM had no room for more";
    case Missing::pending:
      return "being read from the SSD: ask again";
    case Missing::asked_less:
      return "the request wanted no more";
    case Missing::not_there:
      return "not in this directory: never stored, or gone (a running daemon remembers which)";
  }
  return "unknown";
}

std::vector<std::string> words(const RequestRecord& r, uint64_t now_ms) {
  std::vector<std::string> out{served_words(r)};
  if (r.missing != Missing::nothing) {
    out.push_back(miss_words(r, now_ms));
    out.push_back(place_words(r));
    if (r.end > 0) out.push_back(end_words(r));
    if (!r.reason.empty()) out.push_back("in the service's words: " + r.reason);
  }
  if (r.total_us > 0) out.push_back(time_line(r));
  if (std::string cost = cost_words(r); !cost.empty()) out.push_back(cost);
  return out;
}

}  // namespace kv
