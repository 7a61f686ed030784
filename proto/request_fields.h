// each_field: a request's record as people and programs are shown it, a name and a value at a time:
// the one list of what `cachectl why --json` and GET /requests print. cachesvc/CACHECTL.md, "why".
#pragma once

#include <string>

#include "proto/request_record.h"

namespace kv {

/// Calls field(name, value) for each; a value is a uint64_t, a std::string (bytes as a client gave
/// them) or an Id. `other` is zero where there is none; the words stand apart (words()).
template <typename Field>
void each_field(const RequestRecord& r, Field&& field) {
  auto number = [&field](const char* name, uint64_t value) { field(name, value); };
  auto text = [&field](const char* name, const std::string& value) { field(name, value); };
  number("number", r.number);
  number("at_ms", r.at_ms);
  text("kind", to_string(r.kind));
  text("namespace", r.ns);
  text("model", r.model);
  field("fingerprint", r.fingerprint);
  field("profile", r.profile);
  number("block_tokens", r.block_tokens);
  number("asked", r.asked);
  number("served", r.served());
  number("ram_tokens", r.ram_tokens);
  number("ssd_tokens", r.ssd_tokens);
  number("remote_tokens", r.remote_tokens);
  number("common", r.common);
  number("end", r.end);
  text("label", r.label);
  text("missing", to_string(r.missing));
  number("missing_from", r.missing_from);
  number("since_ms", r.since_ms);
  text("by", r.by);
  field("other", r.other);
  number("other_tokens", r.other_tokens);
  text("reason", r.reason);
  number("total_us", r.total_us);
  number("wait_us", r.wait_us);
  number("read_us", r.read_us);
  number("make_us", r.make_us);
  number("saved_ms", r.saved_ms);
  number("missed_ms", r.missed_ms);
}

}  // namespace kv
