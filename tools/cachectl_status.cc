// cachectl status: one screen of a daemon: tiers, hit rate in tokens, prefill saved, last misses.
#include "tools/cachectl_status.h"

#include <algorithm>

#include "proto/unix_ms.h"
#include "tools/cachectl_place.h"
#include "tools/cachectl_print.h"

namespace kv::cachectl {
namespace {

constexpr size_t kShownMisses = 8;
constexpr uint32_t kAsked = 256;  // records, for the doctor's medians
constexpr int kBarCells = 24;

uint64_t percent(uint64_t part, uint64_t whole) { return whole == 0 ? 0 : 100 * part / whole; }

std::string bar(uint64_t part, uint64_t whole) {
  const uint64_t full = whole == 0 ? 0 : std::min<uint64_t>(kBarCells, kBarCells * part / whole);
  return "[" + std::string(full, '#') + std::string(kBarCells - full, '.') + "]";
}

std::string of(uint64_t part, uint64_t whole) {
  return human_bytes(part) + " of " + human_bytes(whole) + " (" +
         std::to_string(percent(part, whole)) + " %)";
}

// "12 never stored, 4 evicted ssd": reasons of all requests since the start, the most frequent
// first.
std::vector<std::pair<uint64_t, std::string>> reasons(const Seen& seen) {
  std::vector<std::pair<uint64_t, std::string>> out;
  for (size_t i = 1; i < kMissings; ++i) {
    std::string name = to_string(static_cast<Missing>(i));
    const uint64_t n = seen["short_" + name];
    std::replace(name.begin(), name.end(), '_', ' ');
    if (n > 0) out.emplace_back(n, name);
  }
  std::sort(out.rbegin(), out.rend());
  return out;
}

// What a model's rows say of its transforms: the reason where nothing else was asked for.
std::string misfit_of(const std::vector<CodingReport>& parts) {
  for (const CodingReport& part : parts) {
    const bool as_asked =
        part.active_k_bits == part.requested_k_bits && part.active_v_bits == part.requested_v_bits;
    const bool streams =
        part.active_k_bits == kTransformWord || part.active_v_bits == kTransformWord;
    if (as_asked && streams && !part.reason.empty()) return part.reason;
  }
  return {};
}

Exit run_status(const Given& given) {
  auto place = find_place(given);
  if (!place.ok()) return report_error(place.status());
  if (place->socket.empty()) {
    Request request;
    request.json = given.json;
    return on_directory(given, request, run_store_status);
  }
  say_place(*place);
  auto seen = see(*place);
  if (!seen.ok()) return report_error(seen.status());
  if (!given.json) {
    for (const std::string& whole : status_lines(*seen)) {
      for (const std::string& line : fitted(whole)) std::printf("%s\n", line.c_str());
    }
    return Exit::ok;
  }
  Json missed = Json::array();
  for (const RequestRecord& r : seen->missed) {
    missed.push_back({{"number", r.number},
                      {"namespace", r.ns},
                      {"asked", r.asked},
                      {"served", r.served()},
                      {"missing", to_string(r.missing)},
                      {"words", miss_words(r, seen->at_ms)}});
  }
  print_json({{"stats", seen->stats},
              {"models", seen->models},
              {"misfits", seen->misfits},
              {"missed", missed}});
  return Exit::ok;
}

}  // namespace

Result<Seen> see(const Place& place) {
  KV_ASSIGN_OR_RETURN(auto client, daemon_of(place));
  return see(*client);
}

Result<Seen> see(Client& client) {
  KV_ASSIGN_OR_RETURN(StatsReply stats, client.stats(deadline_in(kPatience)));
  WhyRequest request;
  request.limit = kAsked;
  request.missed = true;
  KV_ASSIGN_OR_RETURN(WhyReply why, client.why(request, deadline_in(kPatience)));
  Seen seen;
  for (const auto& [name, value] : stats.values) seen.stats[name] = value;
  for (const auto& [name, parts] : stats.models) {
    seen.models.push_back(name);
    if (const std::string said = misfit_of(parts); !said.empty()) {
      seen.misfits.push_back("model " + name + ": " + said);
    }
  }
  std::sort(seen.models.begin(), seen.models.end());  // one of each namespace
  seen.models.erase(std::unique(seen.models.begin(), seen.models.end()), seen.models.end());
  seen.missed = std::move(why.records);
  seen.at_ms = unix_ms();
  return seen;
}

std::vector<std::string> status_lines(const Seen& seen) {
  std::vector<std::string> out;
  auto line = [&out](const std::string& text) { out.push_back(text); };
  line("RAM    " + bar(seen["ram_used_bytes"], seen["ram_budget_bytes"]) + " " +
       of(seen["ram_used_bytes"], seen["ram_budget_bytes"]) + ", " +
       counted(seen["ram_objects"], "object"));
  if (seen["ssd_limit_bytes"] > 0) {
    line("SSD    " + bar(seen["ssd_used_bytes"], seen["ssd_limit_bytes"]) + " " +
         of(seen["ssd_used_bytes"], seen["ssd_limit_bytes"]) + ", " +
         counted(seen["ssd_objects"], "object") + ", " +
         human_bytes(seen["ssd_written_day_bytes"]) + " written in a day");
  } else {
    line("SSD    none");
  }
  const uint64_t ram = seen["hit_tokens_ram"], ssd = seen["hit_tokens_ssd"];
  const uint64_t remote = seen["hit_tokens_remote"], served = ram + ssd + remote;
  const uint64_t all = served + seen["miss_tokens"];
  line("hits   " + bar(served, all) + " " + std::to_string(percent(served, all)) + " % of " +
       std::to_string(all) + " tokens: " + std::to_string(percent(ram, all)) + " % RAM, " +
       std::to_string(percent(ssd, all)) + " % SSD" +
       (remote == 0 ? std::string()
                    : ", " + std::to_string(percent(remote, all)) + " % shared tier"));
  const uint64_t fetches = seen["fetches"];
  line("asked  " + std::to_string(fetches) + (fetches == 1 ? " fetch" : " fetches") + ", " +
       counted(seen["lookups"], "lookup") + ", " + std::to_string(seen["fetch_misses"]) +
       " of them found nothing; " + counted(seen["commits"], "store"));
  line("saved  " +
       (seen["prefill_ms_told"] == 0
            ? std::string("not known: no client told what its prefill cost")
            : time_words(seen["prefill_ms_saved"]) + " of prefill, by what clients told"));
  std::string models;
  for (const std::string& name : seen.models)
    models += (models.empty() ? "" : ", ") + printable(name);
  line("models " + (models.empty() ? "none open" : models));
  for (const std::string& misfit : seen.misfits) line("fit    " + printable(misfit));
  std::string why;
  for (const auto& [n, name] : reasons(seen)) {
    why += (why.empty() ? "" : ", ") + std::to_string(n) + " " + name;
  }
  line("missed " + (why.empty() ? "nothing: each request was served whole" : why));
  if (seen.missed.empty()) return out;
  line("");
  line("the last requests that were not served whole (`cachectl why REQUEST` says more):");
  for (size_t i = 0; i < std::min(seen.missed.size(), kShownMisses); ++i) {
    const RequestRecord& r = seen.missed[i];
    line("  " + std::to_string(r.number) + ", " +
         time_words(seen.at_ms - std::min(seen.at_ms, r.at_ms)) + " ago, " + printable(r.ns) +
         ": " + std::to_string(r.served()) + " of " + std::to_string(r.asked) + " tokens; " +
         printable(miss_words(r, seen.at_ms)));
  }
  return out;
}

void add_status(CLI::App& app, std::function<Exit()>& chosen) {
  auto given = std::make_shared<Given>();
  CLI::App* status = app.add_subcommand(
      "status",
      "one screen: tiers, hit rate, prefill saved, last misses; or what a directory holds");
  add_place(*status, *given, "exact values for programs");
  status->callback([&chosen, given] { chosen = [given] { return run_status(*given); }; });
}

}  // namespace kv::cachectl
