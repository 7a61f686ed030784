// Fields of a request's record.
#include "cachesvc/daemon/http_requests.h"

#include "cachesvc/daemon/config_values.h"
#include "cachesvc/daemon/http_json.h"
#include "cachesvc/daemon/http_names.h"

namespace kv {
namespace {

double number(uint64_t value) { return static_cast<double>(value); }

void record(JsonText& out, const RequestRecord& r, uint64_t now_ms) {
  out.open('{').field("number", number(r.number)).field("at_ms", number(r.at_ms));
  out.field("kind", to_string(r.kind)).field("namespace", shown_name(r.ns));
  out.field("model", shown_name(r.model)).field("fingerprint", r.fingerprint.hex());
  out.field("profile", r.profile.hex()).field("block_tokens", number(r.block_tokens));
  out.field("asked", number(r.asked)).field("served", number(r.served()));
  out.field("ram_tokens", number(r.ram_tokens)).field("ssd_tokens", number(r.ssd_tokens));
  out.field("common", number(r.common)).field("end", number(r.end)).field("label", r.label);
  out.field("missing", to_string(r.missing)).field("missing_from", number(r.missing_from));
  out.field("since_ms", number(r.since_ms)).field("by", shown_name(r.by));
  if (!r.other.is_zero()) out.field("other", r.other.hex());
  out.field("other_tokens", number(r.other_tokens)).field("reason", r.reason);
  out.field("total_us", number(r.total_us)).field("wait_us", number(r.wait_us));
  out.field("read_us", number(r.read_us)).field("make_us", number(r.make_us));
  out.field("saved_ms", number(r.saved_ms)).field("missed_ms", number(r.missed_ms));
  out.name("words").open('[');
  for (const std::string& line : words(r, now_ms)) out.text(line);
  out.close(']').close('}');
}

}  // namespace

std::string requests_json(const WhyReply& reply, uint64_t now_ms) {
  JsonText out;
  out.open('{').field("schema", "cachesvc-requests-1").field("newest", number(reply.newest));
  out.field("kept", number(reply.kept)).name("requests").open('[');
  for (const RequestRecord& r : reply.records) record(out, r, now_ms);
  out.close(']').close('}');
  return out.take() + "\n";
}

Result<WhyRequest> read_requests(const HttpForm& form) {
  if (const std::string other = form.unknown({"number", "limit", "missed", "namespace"});
      !other.empty()) {
    return invalid_argument("unknown field \"" + other.substr(0, 64) +
                            "\", expected number, limit, missed, namespace");
  }
  WhyRequest request;
  request.ns = form.get("namespace");
  auto given = [&form](const char* name, uint64_t low, uint64_t high, uint64_t otherwise) {
    if (!form.has(name)) return Result<uint64_t>(otherwise);
    auto value = parse_count(form.get(name), low, high);
    return value.ok() ? value
                      : Result<uint64_t>(
                            invalid_argument(std::string(name) + ": " + value.status().message()));
  };
  KV_ASSIGN_OR_RETURN(request.number, given("number", 1, UINT64_MAX, 0));
  KV_ASSIGN_OR_RETURN(const uint64_t limit, given("limit", 1, kMaxWhyRecords, request.limit));
  KV_ASSIGN_OR_RETURN(const uint64_t missed, given("missed", 0, 1, 0));
  request.limit = static_cast<uint32_t>(limit);
  request.missed = missed == 1;
  return request;
}

}  // namespace kv
