// The doctor's rules, each a few counters that together mean something.
#include "tools/cachectl_findings.h"

#include <algorithm>

#include "tools/cachectl_print.h"

namespace kv::cachectl {
namespace {

constexpr uint64_t kEnough = 20;  // requests, before anything is said of rates
constexpr double kDayMs = 24 * 3600e3;
constexpr double kDriveBytes = 600e12;  // that makers promise for a drive of 1 TB

uint64_t median(std::vector<uint64_t> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Times from an eviction to the request that missed what had gone, of this kind.
std::vector<uint64_t> reuse_after(const Seen& seen, Missing missing) {
  std::vector<uint64_t> out;
  for (const RequestRecord& r : seen.missed) {
    if (r.missing == missing && r.since_ms > 0)
      out.push_back(r.at_ms - std::min(r.at_ms, r.since_ms));
  }
  return out;
}

void say_device(const Seen& seen, std::vector<std::string>& out) {
  if (seen["ssd_hangs"] > 0)
    out.push_back("The SSD hangs: nothing waits for it, and nothing is read from it.");
  if (seen["remote_silent"] > 0) {
    out.push_back("The shared tier does not answer: what it has is missed, nothing waits for it.");
  } else if (const uint64_t n = seen["remote_nodes_lost"]; n > 0) {
    out.push_back(counted(n, "node") + " of the shared tier can't be reached.");
  }
  if (const uint64_t n = seen["remote_profiles_other"]; n > 0) {
    out.push_back("The shared tier has another profile of " + counted(n, "model") +
                  " than is in force here, so nothing that other machines store is found: the log "
                  "names it; `replace` takes over the fleet's (OPERATING.md, shared tier).");
  }
  if (const uint64_t n = seen["remote_profiles_unheard"]; n > 0) {
    out.push_back("The shared tier did not say which profile it has of " + counted(n, "model") +
                  ": this machine's own is in force.");
  }
  if (const uint64_t n = seen["remote_refused_full"]; n > 0) {
    out.push_back("The shared tier had no memory for " + counted(n, "object") +
                  ": its maxmemory-policy should be allkeys-lru or allkeys-lfu.");
  }
  if (const uint64_t n = seen["quarantined"]; n > 0) {
    out.push_back(counted(n, "file") +
                  " did not verify and went to quarantine: the device or somebody "
                  "else changes files (`cachectl verify` reads them all).");
  }
  if (const uint64_t n = seen["ram_damaged"]; n > 0) {
    out.push_back(counted(n, "object") +
                  " in RAM lost their checksum: test this machine's memory.");
  }
  if (const uint64_t n = seen["spills_failed"]; n > 0) {
    out.push_back(counted(n, "write") + " to the SSD failed; the log says which.");
  }
}

// Time that the SSD holds what is written, at the rate of the last day; 0: nothing was.
uint64_t held_ms(const Seen& seen) {
  const auto written = static_cast<double>(seen["ssd_written_day_bytes"]);
  if (written <= 0) return 0;
  return static_cast<uint64_t>(static_cast<double>(seen["ssd_limit_bytes"]) / written * kDayMs);
}

std::string too_small(const Seen& seen, const std::vector<uint64_t>& gone) {
  const uint64_t after = median(gone), held = held_ms(seen), limit = seen["ssd_limit_bytes"];
  const std::string missed = counted(gone.size(), "recent request") +
                             " missed what the SSD had evicted, half of them within " +
                             time_words(after);
  if (held == 0) return "The SSD tier is too small: " + missed + " of that.";
  const double more = 1 + static_cast<double>(after) / static_cast<double>(held);
  return "Reuse comes after " + time_words(held + after) + ", the SSD's " + human_bytes(limit) +
         " hold " + time_words(held) + " at the last day's rate: " + missed +
         " of that. tier.ssd.limit of " +
         human_bytes(static_cast<uint64_t>(static_cast<double>(limit) * more)) +
         " would have kept half of it.";
}

void say_size(const Seen& seen, std::vector<std::string>& out) {
  if (const auto gone = reuse_after(seen, Missing::evicted_ssd); !gone.empty()) {
    out.push_back(too_small(seen, gone));
  }
  if (const auto gone = reuse_after(seen, Missing::evicted_ram); !gone.empty()) {
    out.push_back(counted(gone.size(), "recent request") +
                  " asked for what had left RAM before it was on the SSD, " +
                  time_words(median(gone)) + " before in the middle: " +
                  (seen["ssd_limit_bytes"] == 0
                       ? "an SSD tier would have it."
                       : "the SSD does not keep up, or RAM is too small."));
  }
  if (seen["ssd_limit_bytes"] > 0 && seen["short_evicted_ssd"] == 0 &&
      seen["fetches"] + seen["lookups"] >= kEnough) {
    out.push_back("No request missed what the SSD evicted: it is large enough.");
  }
  if (const uint64_t n = seen["short_evicted_index"]; n > 0) {
    out.push_back("The index is full (" + std::to_string(n) +
                  " requests missed what it dropped): more RAM.");
  }
  if (const uint64_t n = seen["short_no_room"]; n > 0) {
    out.push_back(std::to_string(n) +
                  " requests were served shorter, as RAM had no room to read "
                  "the rest of them: more RAM, or fewer at a time.");
  }
}

void say_use(const Seen& seen, std::vector<std::string>& out) {
  const uint64_t asked = seen["fetches"] + seen["lookups"];
  if (asked < kEnough) {
    out.push_back("Only " + counted(asked, "request") + " so far: too few to judge.");
    return;
  }
  const uint64_t ssd = seen["hit_tokens_ssd"],
                 hits = seen["hit_tokens_ram"] + ssd + seen["hit_tokens_remote"];
  if (seen["commits"] > 0 && hits == 0) {
    out.push_back("Stores steadily, nothing is read: this cache costs and saves nothing.");
  } else if (ssd == 0 && seen["ssd_written_bytes"] > 0) {
    out.push_back("The SSD tier was written " + human_bytes(seen["ssd_written_bytes"]) +
                  " and nothing was read of it since the start: it pays at the next restart only.");
  }
  const uint64_t other = seen["short_other_model"] + seen["short_other_profile"];
  if (10 * other > asked) {
    out.push_back(std::to_string(other) +
                  " requests asked for tokens that are stored under another "
                  "model or profile: do all servers of the model compute the same fingerprint?");
  }
  if (2 * seen["short_part"] > asked) {
    out.push_back(
        "Most hits end where rows or states were not stored: name the ends that shall be "
        "restorable (PROTOCOL.md, reserve).");
  }
}

// "3 years", of at most a hundred.
std::string years(double n) {
  if (n < 1) return "less than a year";
  return n > 100 ? "more than 100 years" : counted(static_cast<uint64_t>(n), "year");
}

void say_misfits(const Seen& seen, std::vector<std::string>& out) {
  for (const std::string& misfit : seen.misfits) {
    out.push_back("The " + misfit + " (`cachectl tune MODEL --coding tc --text …`).");
  }
}

void say_wear(const Seen& seen, std::vector<std::string>& out) {
  if (const uint64_t bytes = seen["ssd_written_day_bytes"]; bytes > 0) {
    out.push_back(
        "The last day wrote " + human_bytes(bytes) + " to the SSD, " + human_bytes(365 * bytes) +
        " in a year at that rate: " + years(kDriveBytes / (365 * static_cast<double>(bytes))) +
        " of a drive that is good for 600 TB.");
  }
}

}  // namespace

uint64_t Seen::operator[](const std::string& name) const {
  auto found = stats.find(name);
  return found == stats.end() ? 0 : found->second;
}

std::vector<std::string> findings(const Seen& seen) {
  std::vector<std::string> out;
  say_device(seen, out);
  say_size(seen, out);
  say_use(seen, out);
  say_misfits(seen, out);
  if (out.empty()) out.push_back("Nothing is wrong.");
  say_wear(seen, out);
  return out;
}

}  // namespace kv::cachectl
