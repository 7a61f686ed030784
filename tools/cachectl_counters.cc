// cachectl counters: what a running daemon counts (proto/PROTOCOL.md, "Stats"), and how it codes
// the models that are open, over its socket.
#include "tools/cachectl_coding.h"
#include "tools/cachectl_place.h"
#include "tools/cachectl_print.h"
#include "tools/cachectl_status.h"

namespace kv::cachectl {
namespace {

Result<StatsReply> ask(const Given& given) {
  KV_ASSIGN_OR_RETURN(const Place place, find_place(given));
  say_place(place);
  KV_ASSIGN_OR_RETURN(auto client, daemon_of(place));
  return client->stats(deadline_in(kPatience));
}

Exit run_counters(const Given& given) {
  auto stats = ask(given);
  if (!stats.ok()) return report_error(stats.status());
  Json values = Json::object();
  Table table({"NAME", "VALUE"}, 1);
  for (const auto& [name, value] : stats->values) {
    values[name] = value;
    table.add({printable(name), std::to_string(value)});
  }
  if (given.json) {
    Json& coding = values["coding"] = Json::array();
    for (const auto& [model, report] : stats->models) {
      coding.push_back({{"model", model}, {"parts", report_json(report)}});
    }
    print_json(values);
    return Exit::ok;
  }
  table.print();
  for (const auto& [model, report] : stats->models) {
    std::printf("\ncoding of %s\n", printable(model).c_str());
    for (const std::string& line : report_lines(report)) {
      std::printf("  %s\n", printable(line).c_str());
    }
  }
  return Exit::ok;
}

}  // namespace

void add_counters(CLI::App& app, std::function<Exit()>& chosen) {
  auto given = std::make_shared<Given>();
  CLI::App* counters = app.add_subcommand(
      "counters", "what a running daemon counts: hits, spills, bytes written, recovery");
  add_place(*counters, *given, "for programs");
  counters->callback([given, &chosen] { chosen = [given] { return run_counters(*given); }; });
}

}  // namespace kv::cachectl
