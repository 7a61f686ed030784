// Fields of records and of the messages that carry them, and the names of enumerators.
#include "proto/request_record.h"

#include <array>

#include "proto/fields.h"

namespace kv {
namespace {

constexpr std::array<const char*, kMissings> kNames = {
    "nothing",     "never_stored", "evicted_ram", "evicted_ssd", "evicted_index", "erased",
    "expired",     "damaged",      "file_gone",   "unreadable",  "part",          "other_profile",
    "other_model", "no_room",      "pending",     "asked_less",  "not_there"};

template <typename Io>
void fields(Io& io, Of<Io, RequestRecord>& m) {
  io.number("number", m.number);
  io.number("at_ms", m.at_ms);
  io.choice("kind", m.kind, RequestKind::fetch, RequestKind::question);
  io.text("ns", m.ns, kMaxNamespaceBytes);
  io.text("model", m.model, kMaxModelNameBytes);
  io.id("fingerprint", m.fingerprint);
  io.id("profile", m.profile);
  io.number("block_tokens", m.block_tokens);
  io.number("asked", m.asked);
  io.number("ram_tokens", m.ram_tokens);
  io.number("ssd_tokens", m.ssd_tokens);
  io.number("remote_tokens", m.remote_tokens);
  io.number("common", m.common);
  io.number("end", m.end);
  io.text("label", m.label, kMaxLabelBytes);
  io.choice("missing", m.missing, Missing::nothing, Missing::not_there);
  io.number("missing_from", m.missing_from);
  io.number("since_ms", m.since_ms);
  io.text("by", m.by, kMaxNamespaceBytes);
  io.id("other", m.other);
  io.number("other_tokens", m.other_tokens);
  io.clipped("reason", m.reason, kMaxReasonBytes);
  io.number("total_us", m.total_us);
  io.number("wait_us", m.wait_us);
  io.number("read_us", m.read_us);
  io.number("make_us", m.make_us);
  io.number("saved_ms", m.saved_ms);
  io.number("missed_ms", m.missed_ms);
}

template <typename Io>
void fields(Io& io, Of<Io, WhyRequest>& m) {
  io.number("number", m.number);
  io.number("limit", m.limit, 1, kMaxWhyRecords);
  io.boolean("missed", m.missed);
  io.text("ns", m.ns, kMaxNamespaceBytes);
  io.array("tokens", m.tokens, kMaxTokens);
}

template <typename Io>
void fields(Io& io, Of<Io, WhyReply>& m) {
  io.number("newest", m.newest);
  io.number("kept", m.kept);
  io.list("records", m.records, kMaxWhyRecords, [](Io& item, auto& r) { fields(item, r); });
}

}  // namespace

KV_MESSAGE(RequestRecord)
KV_MESSAGE(WhyRequest)
KV_MESSAGE(WhyReply)

const char* to_string(RequestKind kind) {
  switch (kind) {
    case RequestKind::fetch:
      return "fetch";
    case RequestKind::lookup:
      return "lookup";
    case RequestKind::question:
      return "question";
  }
  return "unknown";
}

const char* to_string(Missing missing) { return kNames[static_cast<size_t>(missing)]; }

}  // namespace kv
