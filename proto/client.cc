// Names and the trim of client values. Trimming shares planes: no byte is copied or written.
#include "proto/client.h"

#include <algorithm>

namespace kv {

const char* to_string(Tier tier) {
  switch (tier) {
    case Tier::none:
      return "none";
    case Tier::ram:
      return "ram";
    case Tier::ssd:
      return "ssd";
    case Tier::mixed:
      return "mixed";
    case Tier::remote:
      return "remote";
  }
  return "unknown";
}

const char* to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::accepted:
      return "accepted";
    case Outcome::clipped:
      return "clipped";
    case Outcome::deferred:
      return "deferred";
    case Outcome::rejected:
      return "rejected";
    case Outcome::missing:
      return "missing";
  }
  return "unknown";
}

const char* to_string(HitForm form) {
  switch (form) {
    case HitForm::none:
      return "none";
    case HitForm::exact_tail:
      return "exact_tail";
    case HitForm::coded:
      return "coded";
  }
  return "unknown";
}

const char* to_string(Durability level) {
  switch (level) {
    case Durability::none:
      return "none";
    case Durability::accepted:
      return "accepted";
    case Durability::spilled:
      return "spilled";
    case Durability::durable:
      return "durable";
  }
  return "unknown";
}

Result<Prefix> Prefix::trimmed(uint32_t n) const {
  if (n > tokens) {
    return invalid_argument("trim to " + std::to_string(n) + " of " + std::to_string(tokens));
  }
  Prefix out{n, {}};
  for (const auto& o : objects) {
    ObjectKind kind = o.object->name.kind;
    if (kind == ObjectKind::supplement || kind == ObjectKind::snapshot) {
      return unsupported("trim: the prefix holds a " + std::string(to_string(kind)) +
                         ", whose length is no row count; fetch again with max_tokens");
    }
    if (o.object->first_token >= n) continue;
    out.objects.push_back({o.object, std::min(o.end_token, n)});
  }
  return out;
}

std::vector<Result<LookupReply>> Client::lookup_all(std::span<const QueryRequest> requests,
                                                    const Until& until) {
  std::vector<Result<LookupReply>> replies;
  for (const QueryRequest& r : requests) replies.push_back(lookup(r, until));
  return replies;
}

std::vector<Result<FetchReply>> Client::fetch_all(std::span<const FetchRequest> requests,
                                                  const Until& until) {
  std::vector<Result<FetchReply>> replies;
  for (const FetchRequest& r : requests) replies.push_back(fetch(r, until));
  return replies;
}

std::vector<Status> Client::put_all(std::vector<PutRequest> requests, const Until& until) {
  std::vector<Status> replies;
  for (PutRequest& r : requests) replies.push_back(put(std::move(r), until));
  return replies;
}

}  // namespace kv
