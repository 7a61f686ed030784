// The page's sections.
#include "cachesvc/daemon/http_page.h"

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <vector>

#include "cachesvc/daemon/http_metrics.h"
#include "cachesvc/daemon/http_names.h"
#include "cachesvc/daemon/http_numbers.h"
#include "cachesvc/daemon/http_page_parts.h"
#include "cachesvc/daemon/http_status.h"
#include "cachesvc/daemon/version.h"

namespace kv {
namespace {

// A number that /metrics has too.
std::string value_of(const std::string& series, double value, const std::string& shown) {
  return "<span data-metric=\"" + html_text(series) + "\" data-value=\"" + number_text(value) +
         "\">" + shown + "</span>";
}

std::string width(double part, double all) {
  const double share = all <= 0 ? 0 : std::clamp(100 * part / all, 0.0, 100.0);
  return "style=\"width:" + number_text(share) + "%\"";
}

struct Page {
  const Metrics& m;
  const PageTerms& terms;
  std::string out = {};

  double stat(const char* name) const { return as_number(stat_of_metrics(m, name)); }
  // The stat as its metric.
  std::string counted(const char* name, std::string (*text)(double)) const {
    const StatName* known = find_stat_name(name);
    const double value = known->scale * stat(name);
    return value_of(series_name(*known), value, text(value));
  }
  std::string rate(const char* name) const {
    return " <span class=\"dim\" data-rate=\"" + metric_name(*find_stat_name(name)) + "\"></span>";
  }
  void section(const char* id, const char* title) {
    out += std::string("<section id=\"") + id + "\" class=\"live\"><h2>" + title + "</h2>\n";
  }
  void end() { out += "</section>\n"; }
};

// Sums of the models that are shown.
ModelUse shown_use(const Page& page) {
  ModelUse sum;
  for (const auto& [key, use] : page.m.measures.models.all()) {
    if (!page.terms.model.empty() && key.second != page.terms.model) continue;
    sum.fetches += use.fetches;
    sum.misses += use.misses;
    sum.stores += use.stores;
    sum.hit_tokens_ram += use.hit_tokens_ram;
    sum.hit_tokens_ssd += use.hit_tokens_ssd;
    sum.hit_tokens_remote += use.hit_tokens_remote;
    sum.miss_tokens += use.miss_tokens;
    sum.prefill_ms_saved += use.prefill_ms_saved;
  }
  return sum;
}

void head(Page& page) {
  const Metrics& m = page.m;
  page.out +=
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<link rel=\"icon\" href=\"data:,\"><title>cachesvc</title><style>";
  page.out += kPageStyle;
  page.out += "</style></head><body>\n<header id=\"head\" class=\"live\"><h1>cachesvc</h1>";
  page.out += std::string("<span class=\"dim\">") + kProgramVersion + "</span>";
  page.out += m.not_ready.empty()
                  ? "<span class=\"good\">ready</span>"
                  : "<span class=\"bad\">not ready: " + html_text(m.not_ready) + "</span>";
  page.out += "<span class=\"dim\">up " +
              value_of("cachesvc_uptime_seconds", m.seconds, seconds_text(m.seconds)) + "</span>";
  page.out += "</header>\n<p id=\"lost\" class=\"bad\" hidden>The service does not answer.</p>\n";
}

void filter(Page& page) {
  std::set<std::string> models;
  for (const auto& [key, use] : page.m.measures.models.all()) models.insert(key.second);
  page.out +=
      "<form method=\"get\" action=\"/status\"><label>Model <select name=\"model\">"
      "<option value=\"\">all</option>";
  for (const std::string& model : models) {
    if (model.empty()) continue;
    const char* chosen = model == page.terms.model ? " selected" : "";
    page.out += "<option" + std::string(chosen) + ">" + html_text(shown_name(model)) + "</option>";
  }
  page.out += "</select></label> <noscript><button>show</button></noscript></form>\n";
}

void card(Page& page, const char* what, const std::string& number, const std::string& more) {
  page.out += "<div><span class=\"dim\">" + std::string(what) + "</span><b>" + number + "</b>" +
              more + "</div>\n";
}

void hits(Page& page) {
  page.section("hits", "Since the start");
  const ModelUse use = shown_use(page);
  const double ram = as_number(use.hit_tokens_ram), ssd = as_number(use.hit_tokens_ssd);
  const double remote = as_number(use.hit_tokens_remote), served = ram + ssd + remote;
  const double all = served + as_number(use.miss_tokens);
  page.out += "<div class=\"cards\">";
  card(page, "Hit rate, in tokens", percent_text(served, all),
       count_text(served) + " of " + count_text(all));
  card(page, "Prefill saved", seconds_text(as_number(use.prefill_ms_saved) / 1000),
       "<span class=\"dim\">of what clients told</span>");
  card(page, "Fetches", count_text(as_number(use.fetches)),
       count_text(as_number(use.misses)) + " found nothing, of these and lookups" +
           (page.terms.model.empty() ? page.rate("fetches") : ""));
  card(page, "Stores", count_text(as_number(use.stores)),
       page.terms.model.empty() ? page.rate("commits") : "");
  card(page, "Connections", page.counted("sessions", count_text),
       page.counted("waiting_calls", count_text) + " requests under way");
  page.out += "</div>\n<div class=\"bar\"><i class=\"ram\" " + width(ram, all) +
              "></i><i class=\"ssd\" " + width(ssd, all) + "></i><i class=\"remote\" " +
              width(remote, all) + "></i></div>\n";
  page.out += "<div class=\"key dim\"><span><i class=\"ram\"></i>from RAM " +
              percent_text(ram, all) + "</span><span><i class=\"ssd\"></i>from the SSD " +
              percent_text(ssd, all) + "</span>";
  if (remote > 0) {
    page.out += "<span><i class=\"remote\"></i>from the shared tier " + percent_text(remote, all) +
                "</span>";
  }
  page.out += "<span><i class=\"miss\"></i>computed " +
              percent_text(as_number(use.miss_tokens), all) + "</span></div>\n";
  page.end();
}

void tier(Page& page, const char* name, const char* kind, const char* used, const char* limit,
          const char* objects) {
  page.out += std::string("<div><b>") + name + "</b> " + page.counted(used, bytes_text) + " of " +
              page.counted(limit, bytes_text) + " <span class=\"dim\">" +
              page.counted(objects, count_text) + " objects</span>";
  page.out += "<div class=\"bar\"><i class=\"" + std::string(kind) + "\" " +
              width(page.stat(used), page.stat(limit)) + "></i></div></div>\n";
}

void tiers(Page& page) {
  page.section("tiers", "Tiers");
  tier(page, "RAM", "ram", "ram_used_bytes", "ram_budget_bytes", "ram_objects");
  if (page.stat("ssd_limit_bytes") > 0) {
    tier(page, "SSD", "ssd", "ssd_used_bytes", "ssd_limit_bytes", "ssd_objects");
  } else {
    page.out += "<p class=\"dim\">There is no SSD tier.</p>\n";
  }
  page.out +=
      "<p class=\"dim\">Evicted: " + page.counted("ram_evicted_clean", count_text) +
      " objects from RAM that the SSD has, " + page.counted("ram_evicted_dirty", count_text) +
      " that it had not, " + page.counted("ssd_evicted", count_text) + " from the SSD. " +
      page.counted("spill_queue_bytes", bytes_text) + " wait to be written, " +
      page.counted("ssd_written_day_bytes", bytes_text) + " were written in 24 hours.</p>\n";
  page.end();
}

void model_row(Page& page, const ModelUses::Key& key, const ModelUse& use) {
  const std::string labels =
      "{namespace=\"" + shown_name(key.first) + "\",model=\"" + shown_name(key.second) + "\"";
  const auto cell = [&](const char* metric, uint64_t value, const char* tier = "") {
    const std::string series = std::string("cachesvc_model_") + metric + labels +
                               (*tier == 0 ? "" : std::string(",tier=\"") + tier + "\"") + "}";
    page.out += "<td>" + value_of(series, as_number(value), count_text(as_number(value))) + "</td>";
  };
  const double hit = as_number(use.hit_tokens_ram + use.hit_tokens_ssd + use.hit_tokens_remote);
  page.out += "<tr><td>" + html_text(key.second.empty() ? "(all others)" : shown_name(key.second)) +
              "</td><td class=\"left name\">" + html_text(shown_name(key.first)) + "</td><td>" +
              percent_text(hit, hit + as_number(use.miss_tokens)) + "</td>";
  cell("hit_tokens_total", use.hit_tokens_ram, "ram");
  cell("hit_tokens_total", use.hit_tokens_ssd, "ssd");
  cell("hit_tokens_total", use.hit_tokens_remote, "remote");
  cell("miss_tokens_total", use.miss_tokens);
  cell("fetches_total", use.fetches);
  cell("misses_total", use.misses);
  cell("stores_total", use.stores);
  page.out += "</tr>\n";
}

void models(Page& page) {
  page.section("models", "Models");
  page.out +=
      "<div class=\"scroll\"><table><thead><tr><th>model</th><th class=\"left\">namespace"
      "</th><th>hit rate</th><th>tokens from RAM</th><th>from the SSD</th>"
      "<th>from the shared tier</th><th>computed</th>"
      "<th>fetches</th><th>misses</th><th>stores</th></tr></thead><tbody>\n";
  for (const auto& [key, use] : page.m.measures.models.all()) {
    if (page.terms.model.empty() || key.second == page.terms.model) model_row(page, key, use);
  }
  page.out += "</tbody></table></div>\n";
  page.end();
}

// Requests that were not served whole, by what the first missing token lacked.
void misses(Page& page) {
  page.section("misses", "Why requests were not served whole");
  double most = 0;
  std::vector<std::pair<std::string, std::string>> rows;  // stat, words
  for (size_t i = 1; i < kMissings; ++i) {
    std::string words = to_string(static_cast<Missing>(i));
    const std::string stat = "short_" + words;
    if (find_stat_name(stat) == nullptr || page.stat(stat.c_str()) == 0) continue;
    std::replace(words.begin(), words.end(), '_', ' ');
    rows.emplace_back(stat, words);
    most = std::max(most, page.stat(stat.c_str()));
  }
  if (rows.empty()) page.out += "<p class=\"dim\">Each was.</p>\n";
  for (const auto& [stat, words] : rows) {
    page.out += "<div>" + words + " " + page.counted(stat.c_str(), count_text) +
                "<div class=\"bar\"><i class=\"ssd\" " + width(page.stat(stat.c_str()), most) +
                "></i></div></div>\n";
  }
  page.out +=
      "<p class=\"dim\"><a href=\"/requests?missed=1\">The last ones, each with its "
      "reason in words</a></p>\n";
  page.end();
}

void clear_forms(Page& page, const std::string& ns) {
  const std::string name = html_text(ns);
  page.out +=
      "<details><summary>clear</summary>"
      "<form method=\"post\" action=\"/demote\"><input type=\"hidden\" name=\"namespace\" "
      "value=\"" +
      name +
      "\"><button>RAM: all of it goes to the SSD</button></form>"
      "<form method=\"post\" action=\"/clear\"><input type=\"hidden\" name=\"namespace\" "
      "value=\"" +
      name +
      "\"><label>SSD, for good; what RAM has stays there. Type its name: "
      "<input name=\"confirm\" autocomplete=\"off\" required></label> "
      "<button>erase files</button></form>"
      "<form method=\"post\" action=\"/purge\"><input type=\"hidden\" name=\"namespace\" "
      "value=\"" +
      name +
      "\"><label>Both tiers, for good. Type its name: "
      "<input name=\"confirm\" autocomplete=\"off\" required></label> "
      "<button>erase</button></form></details>";
}

void namespaces(Page& page) {
  page.section("namespaces", "Namespaces");
  page.out +=
      "<div class=\"scroll\"><table><thead><tr><th>namespace</th><th>connections</th><th>"
      "models</th><th>blocks and tails</th><th>holds</th><th>RAM</th><th>SSD</th>"
      "<th class=\"left\"></th></tr></thead><tbody>\n";
  for (const auto& [ns, use] : page.m.namespaces) {
    const std::string labels = "{namespace=\"" + shown_name(ns) + "\"";
    const auto cell = [&](const std::string& series, uint64_t value, std::string (*text)(double)) {
      page.out +=
          "<td>" +
          value_of("cachesvc_namespace_" + series + "}", as_number(value), text(as_number(value))) +
          "</td>";
    };
    page.out += "<tr><td>" + html_text(ns.empty() ? "(all others)" : shown_name(ns)) + "</td>";
    cell("sessions" + labels, use.sessions, count_text);
    cell("models" + labels, use.models, count_text);
    cell("entries" + labels, use.entries, count_text);
    cell("holds" + labels, use.holds, count_text);
    if (use.has_quota) {
      cell("used_bytes" + labels + ",tier=\"ram\"", use.ram_bytes, bytes_text);
      cell("used_bytes" + labels + ",tier=\"ssd\"", use.ssd_bytes, bytes_text);
    } else {
      page.out += "<td class=\"dim\">shared</td><td class=\"dim\">shared</td>";
    }
    page.out += "<td class=\"left\">";
    // A name that is not what it looks like can't be sent back by a form.
    if (page.terms.may_clear && !ns.empty() && shown_name(ns) == ns) clear_forms(page, ns);
    page.out += "</td></tr>\n";
  }
  page.out += "</tbody></table></div>\n";
  if (!page.terms.may_clear) {
    page.out += "<p class=\"dim\">To clear from here, set server.http.token_file.</p>\n";
  }
  page.end();
}

// Half of all values lie below it.
std::string median(const Histogram& h, double scale) {
  uint64_t so_far = 0;
  for (size_t i = 0; i < Histogram::kBuckets; ++i) {
    so_far += h.count(i);
    if (2 * so_far >= h.count())
      return "half within " + seconds_text(scale * as_number(h.bound(i)));
  }
  return "";
}

void chart(Page& page, const NamedHistogram& named) {
  const Histogram& h = *named.histogram;
  if (h.count() == 0) return;
  size_t first = 0, last = Histogram::kBuckets - 1;
  while (h.count(first) == 0) ++first;
  while (h.count(last) == 0) --last;
  last = std::min(std::max(last, first + 7), Histogram::kBuckets - 1);
  uint64_t most = 0;
  for (size_t i = first; i <= last; ++i) most = std::max(most, h.count(i));
  std::string title(named.metric);
  title = title.substr(0, title.rfind("_seconds"));
  std::replace(title.begin(), title.end(), '_', ' ');
  if (*named.label != 0) title += std::string(", ") + named.value;
  const std::string series =
      std::string("cachesvc_") + named.metric + "_count" +
      (*named.label == 0 ? "" : std::string("{") + named.label + "=\"" + named.value + "\"}");
  page.out += "<div title=\"" + html_text(named.help) + "\"><div>" + title +
              "</div><div class=\"dim\">" +
              value_of(series, as_number(h.count()), count_text(as_number(h.count()))) + ", " +
              median(h, named.scale) + "</div><div class=\"chart\">";
  for (size_t i = first; i <= last; ++i) {
    const double height = 100 * as_number(h.count(i)) / as_number(most);
    page.out += "<i style=\"height:" + number_text(height) + "%\"></i>";
  }
  page.out += "</div><div class=\"ends\"><span>" +
              (first == 0 ? "0 s" : seconds_text(named.scale * as_number(h.bound(first - 1)))) +
              "</span><span>" + seconds_text(named.scale * as_number(h.bound(last))) +
              "</span></div></div>\n";
}

void charts(Page& page) {
  page.section("times", "Times");
  page.out += "<div class=\"charts\">";
  for (const NamedHistogram& named : histograms_of(page.m.measures)) chart(page, named);
  page.out += "</div>\n<p class=\"dim\">Each column is twice as long as the one before it.</p>\n";
  page.end();
}

void all_stats(Page& page) {
  page.section("stats", "Everything that is counted");
  page.out += "<details><summary>" + std::to_string(page.m.stats.values.size()) +
              " stats, as /metrics names them</summary><div class=\"scroll\"><table>\n";
  for (const auto& [stat, value] : page.m.stats.values) {
    const StatName* name = find_stat_name(stat);
    if (name == nullptr) continue;
    const double number = name->scale * as_number(value);
    page.out += "<tr><td>" + html_text(series_name(*name)) + "</td><td>" +
                value_of(series_name(*name), number, number_text(number)) +
                "</td><td class=\"left dim\">" + html_text(name->help) + "</td></tr>\n";
  }
  page.out += "</table></div></details>\n";
  page.end();
}

}  // namespace

std::string status_page(const Metrics& metrics, const PageTerms& terms) {
  Page page{metrics, terms};
  head(page);
  filter(page);
  hits(page);
  tiers(page);
  misses(page);
  models(page);
  namespaces(page);
  charts(page);
  all_stats(page);
  page.out += "<script nonce=\"" + terms.nonce + "\">" + kPageScript + "</script></body></html>\n";
  return std::move(page.out);
}

std::string result_page(std::string_view said) {
  return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
         "content=\"width=device-width, initial-scale=1\"><title>cachesvc</title><style>" +
         std::string(kPageStyle) + "</style></head><body><section><p>" + html_text(said) +
         "</p><p><a href=\"/status\">back</a></p></section></body></html>\n";
}

std::string page_nonce() {
  std::random_device device;
  std::string out;
  for (int i = 0; i < 4; ++i) out += std::to_string(device());
  return out;
}

std::string content_policy(const std::string& nonce) {
  return "default-src 'none'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
         "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; script-src " +
         (nonce.empty() ? "'none'" : "'nonce-" + nonce + "'");
}

}  // namespace kv
