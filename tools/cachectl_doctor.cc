// cachectl doctor: what a daemon's counters, or a directory's files, mean, in sentences that say
// what to do (cachectl_findings.cc, cachectl_status_store.cc).
#include "tools/cachectl_print.h"
#include "tools/cachectl_status.h"

namespace kv::cachectl {
namespace {

Exit say(const std::vector<std::string>& said, bool json) {
  if (json) {
    print_json(Json(said));
    return Exit::ok;
  }
  for (const std::string& sentence : said) std::printf("%s\n", printable(sentence).c_str());
  return Exit::ok;
}

Exit run_doctor(const Given& given) {
  auto place = find_place(given);
  if (!place.ok()) return report_error(place.status());
  if (place->socket.empty()) {
    Request request;
    request.json = given.json;
    return on_directory(given, request, run_store_doctor);
  }
  say_place(*place);
  auto seen = see(*place);
  if (!seen.ok()) return report_error(seen.status());
  return say(findings(*seen), given.json);
}

}  // namespace

Exit run_store_doctor(const Request& request) {
  auto store = StoreView::load(request);
  if (!store.ok()) return report_error(store.status());
  return say(findings(*store), request.json);
}

void add_doctor(CLI::App& app, std::function<Exit()>& chosen) {
  auto given = std::make_shared<Given>();
  CLI::App* doctor = app.add_subcommand(
      "doctor", "what a daemon's counters, or a directory's files, mean, in sentences");
  add_place(*doctor, *given, "a list of the sentences");
  doctor->callback([&chosen, given] { chosen = [given] { return run_doctor(*given); }; });
}

}  // namespace kv::cachectl
