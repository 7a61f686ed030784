// cachectl why: recent requests of a daemon and why they were not served whole; or what it, or a
// directory without a daemon, would serve of a sequence. The words are proto/request_words.cc's.
#include "tools/cachectl_why.h"

#include <algorithm>
#include <charconv>
#include <fstream>

#include "proto/request_fields.h"
#include "proto/unix_ms.h"
#include "tools/cachectl_place.h"
#include "tools/cachectl_print.h"

namespace kv::cachectl {
namespace {

struct WhyArguments {
  Given given;
  std::string what, ns;
  uint32_t limit = 20;
  bool missed = false;
};

Json json_of(uint64_t value) { return value; }
Json json_of(const std::string& value) { return value; }
Json json_of(const Id& value) { return value.is_zero() ? Json(nullptr) : Json(value.hex()); }

Json record_json(const RequestRecord& r, uint64_t now) {
  Json out;
  each_field(r, [&out](const char* name, const auto& value) { out[name] = json_of(value); });
  out["words"] = words(r, now);
  return out;
}

void print_one(const RequestRecord& r, uint64_t now) {
  if (r.number > 0) {
    std::printf("request %llu, a %s %s ago, ", static_cast<unsigned long long>(r.number),
                to_string(r.kind), time_words(now - std::min(now, r.at_ms)).c_str());
  }
  std::printf("model %s in namespace %s\n", printable(r.model).c_str(), printable(r.ns).c_str());
  for (const std::string& line : words(r, now)) std::printf("  %s\n", printable(line).c_str());
}

void print_table(const std::vector<RequestRecord>& records, uint64_t now) {
  Table table({"REQUEST", "AGO", "NAMESPACE", "MODEL", "ASKED", "SERVED", "WHY NO MORE"}, 7);
  for (const RequestRecord& r : records) {
    table.add({std::to_string(r.number), time_words(now - std::min(now, r.at_ms)), printable(r.ns),
               printable(r.model), std::to_string(r.asked), std::to_string(r.served()),
               r.missing == Missing::nothing ? "-" : printable(miss_words(r, now))});
  }
  table.print();
}

Exit show(const WhyReply& reply, const WhyArguments& args, bool one) {
  const uint64_t now = unix_ms();
  if (args.given.json) {
    Json out = Json::array();
    for (const RequestRecord& r : reply.records) out.push_back(record_json(r, now));
    print_json(out);
    return Exit::ok;
  }
  if (reply.records.empty()) {
    std::puts(one ? "no model is stored here" : "no request yet");
  } else if (one) {
    for (const RequestRecord& r : reply.records) print_one(r, now);
  } else {
    print_table(reply.records, now);
    std::puts("served whole: all tokens but the last, which every engine computes itself");
    std::puts("`cachectl why REQUEST` says more of one");
  }
  return Exit::ok;
}

Result<WhyReply> ask_directory(const WhyArguments& args, const WhyRequest& request) {
  if (request.tokens.empty()) {
    return invalid_argument(
        "a directory remembers no requests: give a file of tokens, or --socket");
  }
  KV_ASSIGN_OR_RETURN(const Request store, directory_request(args.given, {}));
  KV_ASSIGN_OR_RETURN(StoreView view, StoreView::load(store));
  WhyReply reply;
  reply.records = why_of(view, request.tokens, args.ns);
  return reply;
}

Result<WhyReply> ask(const WhyArguments& args, const WhyRequest& request) {
  KV_ASSIGN_OR_RETURN(const Place place, find_place(args.given));
  if (place.socket.empty()) return ask_directory(args, request);
  say_place(place);
  KV_ASSIGN_OR_RETURN(auto client, daemon_of(place, args.ns));
  return client->why(request, deadline_in(kPatience));
}

Exit run_why(const WhyArguments& args) {
  WhyRequest request;
  request.limit = std::clamp(args.limit, 1u, kMaxWhyRecords);
  request.missed = args.missed;
  request.ns = args.ns;
  const char* end = args.what.data() + args.what.size();
  const auto number = std::from_chars(args.what.data(), end, request.number);
  if (number.ec != std::errc() || number.ptr != end) {
    request.number = 0;
    if (!args.what.empty()) {
      auto tokens = tokens_in(args.what);
      if (!tokens.ok()) {
        report_error(tokens.status());
        return Exit::usage;
      }
      request.tokens = std::move(*tokens);
    }
  }
  auto reply = ask(args, request);
  if (!reply.ok()) return report_error(reply.status());
  return show(*reply, args, request.number > 0 || !request.tokens.empty());
}

}  // namespace

Result<std::vector<Token>> tokens_in(const std::string& file) {
  std::ifstream in(file);
  if (!in) return invalid_argument(file + ": neither a request's number nor a readable file");
  Json read = Json::parse(in, nullptr, false);
  if (read.is_object() && read.contains("tokens")) read = Json(read["tokens"]);
  const bool good = read.is_array() && !read.empty() &&
                    std::all_of(read.begin(), read.end(), [](const Json& token) {
                      return token.is_number_integer() && token >= INT32_MIN && token <= INT32_MAX;
                    });
  if (!good) return invalid_argument(file + ": expected a JSON list of token ids");
  return read.get<std::vector<Token>>();
}

void add_why(CLI::App& app, std::function<Exit()>& chosen) {
  auto args = std::make_shared<WhyArguments>();
  CLI::App* why = app.add_subcommand(
      "why", "recent requests and why they were not served whole; or what would be of some tokens");
  add_place(*why, args->given, "exact values for programs");
  why->add_option(
      "WHAT", args->what,
      "a request's number, or a file with a JSON list of token ids; none: the last ones");
  why->add_option("--namespace", args->ns, "of this namespace only");
  why->add_option("--limit", args->limit, "at most so many requests");
  why->add_flag("--missed", args->missed, "only requests that were not served whole");
  why->callback([&chosen, args] {
    take_operand(args->given, args->what, false);
    chosen = [args] { return run_why(*args); };
  });
}

}  // namespace kv::cachectl
