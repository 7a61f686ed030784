// cachectl counters: what a running daemon counts (proto/PROTOCOL.md, "Stats"), and how it codes
// the models that are open, over its socket.
#include "proto/socket_client.h"
#include "tools/cachectl_coding.h"
#include "tools/cachectl_print.h"

namespace kv::cachectl {
namespace {

constexpr std::chrono::seconds kPatience{10};

Result<StatsReply> ask(const std::string& socket) {
  SocketClientOptions options;
  options.program = "cachectl";
  KV_ASSIGN_OR_RETURN(auto client, SocketClient::connect(socket, "cachectl", options));
  return client->stats(deadline_in(kPatience));
}

}  // namespace

Exit run_counters(const Request& request) {
  auto stats = ask(request.socket);
  if (!stats.ok()) return report_error(stats.status());
  Json values = Json::object();
  Table table({"NAME", "VALUE"}, 1);
  for (const auto& [name, value] : stats->values) {
    values[name] = value;
    table.add({printable(name), std::to_string(value)});
  }
  if (request.json) {
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

}  // namespace kv::cachectl
