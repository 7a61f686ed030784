// Records of the ring, and records made for a question.
#include "cachesvc/core/why.h"

#include <algorithm>

namespace kv {
namespace {

constexpr size_t kRealmsAsked = 16;  // of one question: each is a plan

bool may_see(const SessionState& asker, const std::string& ns) {
  return asker.right == Right::all || asker.ns == ns;
}

// The record as this asker may see it: the names of other namespaces are not told.
RequestRecord as_seen(RequestRecord r, const SessionState& asker) {
  if (!r.by.empty() && !may_see(asker, r.by)) r.by.clear();
  return r;
}

}  // namespace

void Why::why(uint64_t session, WhyRequest request, CallTerms terms,
              std::function<void(Result<WhyReply>)> done) {
  auto call = calls_.begin<Result<WhyReply>>(session, terms, std::move(done));
  if (call->finished()) return;
  const SessionState* asker = calls_.session(session);
  if (!asker) return call->fail({StatusCode::not_found, "no such session"});
  if (request.limit == 0 || request.limit > kMaxWhyRecords) {
    return call->fail(invalid_argument("why: limit " + std::to_string(request.limit) +
                                       ", expected 1 to " + std::to_string(kMaxWhyRecords)));
  }
  if (!request.ns.empty() && !may_see(*asker, request.ns)) {
    return call->fail(
        invalid_argument("why: namespace \"" + request.ns + "\" is not this client's"));
  }
  call->finish(request.tokens.empty() ? records(request, *asker)
                                      : question(std::move(request), *asker));
}

Result<WhyReply> Why::records(const WhyRequest& request, const SessionState& asker) const {
  WhyReply reply{ring_.newest(), ring_.size()};
  auto add = [&](const RequestRecord* r) {
    if (!r || !may_see(asker, r->ns) || (!request.ns.empty() && r->ns != request.ns)) return;
    if (request.missed && r->missing == Missing::nothing) return;
    reply.records.push_back(as_seen(*r, asker));
  };
  if (request.number > 0) {
    add(ring_.find(request.number));
    if (!reply.records.empty()) return reply;
    return Status(StatusCode::not_found,
                  "request " + std::to_string(request.number) + " is not remembered; the last of " +
                      std::to_string(ring_.size()) + " is " + std::to_string(ring_.newest()));
  }
  for (uint64_t n = ring_.newest(); n > 0 && reply.records.size() < request.limit; --n) {
    const RequestRecord* r = ring_.find(n);
    if (!r) break;
    add(r);
  }
  return reply;
}

// Hits in every model of the namespace; those that know most of the tokens first.
Result<WhyReply> Why::question(WhyRequest request, const SessionState& asker) const {
  WhyReply reply{ring_.newest(), ring_.size()};
  const Query query{std::move(request.tokens), {}};
  const PlanOptions options = plan_options(env_, query);
  for (const auto& realm : index_.realms().all()) {
    if (!realm->in_force || !may_see(asker, realm->realm.ns)) continue;
    if (!request.ns.empty() && realm->realm.ns != request.ns) continue;
    if (reply.records.size() == kRealmsAsked) break;
    KV_ASSIGN_OR_RETURN(Hit hit, plan(*realm, query, options));
    RequestRecord r;
    r.kind = RequestKind::question;
    r.at_ms = env_.wall_ms();
    misses_.explain(*realm, query, hit, hit.plan.tokens, Missing::nothing, r);
    r.reason = shortfall_of(*realm, hit).substr(0, kMaxReasonBytes);
    split_tiers(*realm, hit, r);
    reply.records.push_back(as_seen(std::move(r), asker));
  }
  std::stable_sort(
      reply.records.begin(), reply.records.end(),
      [](const RequestRecord& a, const RequestRecord& b) { return a.common > b.common; });
  if (reply.records.size() > request.limit) reply.records.resize(request.limit);
  return reply;
}

}  // namespace kv
