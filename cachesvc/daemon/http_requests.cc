// Fields of a request's record.
#include "cachesvc/daemon/http_requests.h"

#include "cachesvc/daemon/config_values.h"
#include "cachesvc/daemon/http_json.h"
#include "proto/request_fields.h"

namespace kv {
namespace {

// Fields of an object in JSON.
struct Fields {
  JsonText& out;
  void operator()(const char* name, uint64_t value) const {
    out.field(name, static_cast<double>(value));
  }
  void operator()(const char* name, const std::string& value) const { out.field(name, value); }
  void operator()(const char* name, const Id& value) const {
    if (!value.is_zero()) out.field(name, value.hex());
  }
};

void record(JsonText& out, const RequestRecord& r, uint64_t now_ms) {
  each_field(r, Fields{out.open('{')});
  out.name("words").open('[');
  for (const std::string& line : words(r, now_ms)) out.text(line);
  out.close(']').close('}');
}

}  // namespace

std::string requests_json(const WhyReply& reply, uint64_t now_ms) {
  JsonText out;
  const Fields field{out.open('{').field("schema", "cachesvc-requests-1")};
  field("newest", reply.newest);
  field("kept", reply.kept);
  out.name("requests").open('[');
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
