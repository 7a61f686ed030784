// MemoryClient: the smallest honest Client for the engine's tests: objects by id in a map, one
// namespace, models of `full` parts only. One thread. The real cache runs in the service's tests.
#pragma once

#include <algorithm>
#include <map>

#include "codec/codec.h"
#include "proto/client.h"
#include "proto/identity.h"

namespace kv {

class MemoryClient : public Client {
 public:
  bool fail = false;                 ///< every call but open answers busy
  uint32_t max_tokens = UINT32_MAX;  ///< a fetch serves at most so many
  uint64_t puts = 0;
  std::map<Id, ObjectPtr> objects;

  Result<OpenReply> open(const OpenRequest& request, const Until&) override {
    KV_CHECK(request.profile != nullptr);
    KV_RETURN_IF_ERROR(kv::validate(*request.profile, request.model));
    auto profile = profile_ && !request.replace ? profile_ : request.profile;
    if (profile->prefill != request.prefill) return unsupported("another prefill mode in force");
    profile_ = profile;
    model_ = request.model;
    realm_ = {"test", model_.fingerprint, profile_->id()};
    KV_ASSIGN_OR_RETURN(codec_, Codec::create(model_, profile_));
    return OpenReply{1, realm_, profile_, {}};
  }
  Result<ReserveReply> reserve(const ReserveRequest& request, const Until&) override {
    if (fail) return down();
    KV_CHECK(request.profile == realm_.profile && pending_.empty());
    query_ = request.query.tokens;
    ReserveReply reply{++reservation_, {}};
    std::vector<Id> ids = path(query_);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (objects.count(ids[i]) > 0) continue;
      bool block = (i + 1) * block_tokens() <= query_.size();
      reply.needs.push_back(
          {block ? ObjectKind::block : ObjectKind::tail, static_cast<uint32_t>(i), 0, 0, 0, true});
    }
    return reply;
  }
  Status put(PutRequest request, const Until&) override {
    if (fail) return down();
    KV_RETURN_IF_ERROR(kv::validate(request.object, model_, *profile_));
    for (const Plane& p : request.object.planes) KV_RETURN_IF_ERROR(codec_->check(p));
    auto ids = path(query_);
    KV_CHECK(std::count(ids.begin(), ids.end(), request.object.name.id) == 1);
    ++puts;
    pending_.push_back(std::make_shared<const Object>(std::move(request.object)));
    return {};
  }
  Result<CommitReply> commit(uint64_t, Durability wait_for, const Until&) override {
    CommitReply reply{wait_for, {}, {}};
    for (const ObjectPtr& o : pending_) {
      if (!objects.emplace(o->name.id, o).second) reply.foreign.push_back(o->name);
    }
    pending_.clear();
    for (const Id& id : path(query_)) {
      if (objects.count(id) == 0) return invalid_argument("coverage");
    }
    return reply;
  }
  Status abort(uint64_t, const Until&) override {
    pending_.clear();
    return {};
  }
  /// Blocks of the longest path, then a tail that ends at n, else the rows of one more block.
  Result<FetchReply> fetch(const FetchRequest& request, const Until&) override {
    if (fail) return down();
    if (!request.profile.is_zero() && request.profile != realm_.profile) {
      return Status(StatusCode::profile_changed, "in force is " + realm_.profile.hex());
    }
    const auto& query = request.query.tokens;
    auto limit = static_cast<uint32_t>(std::min<size_t>(query.size() - 1, max_tokens));
    FetchReply reply;
    Prefix prefix;
    Id parent;
    while (prefix.tokens + block_tokens() <= limit) {
      auto it = objects.find(block_id(realm_, parent, span(query, prefix.tokens, block_tokens()),
                                      {}, ObjectKind::block));
      if (it == objects.end()) break;
      prefix.tokens += block_tokens();
      prefix.objects.push_back({it->second, prefix.tokens});
      parent = it->first;
    }
    ObjectPtr best;
    uint32_t best_rows = 0;
    for (const auto& [id, o] : objects) {
      if (o->parent != parent || o->first_token != prefix.tokens) continue;
      uint32_t same = 0, most = std::min<uint32_t>(limit - prefix.tokens, o->tokens.size());
      while (same < most && o->tokens[same] == query[prefix.tokens + same]) ++same;
      bool better = same > best_rows ||
                    (same == best_rows && same > 0 && o->tokens.size() < best->tokens.size());
      if (better) best = o, best_rows = same;
    }
    if (best && !request.round_to_block) {
      prefix.tokens += best_rows;
      prefix.objects.push_back({best, prefix.tokens});
      reply.form = best->name.kind == ObjectKind::tail ? HitForm::exact_tail : HitForm::coded;
    }
    reply.tokens = reply.common = prefix.tokens;
    reply.tier = prefix.tokens > 0 ? Tier::ram : Tier::none;
    reply.lease = Lease(std::move(prefix), nullptr);
    return reply;
  }
  Result<LookupReply> lookup(const QueryRequest&, const Until&) override { return down(); }
  Result<LookupReply> prefetch(const PrefetchRequest&, const Until&) override { return down(); }
  Result<DemoteReply> demote(const DemoteRequest&, const Until&) override { return down(); }
  Result<RetainReply> retain(const RetainRequest&, const Until&) override { return down(); }
  Result<ExpireReply> expire(const ExpireRequest&, const Until&) override { return down(); }
  Result<HoldReply> hold(const HoldRequest&, const Until&) override { return down(); }
  Result<std::chrono::milliseconds> renew(uint64_t, std::chrono::milliseconds,
                                          const Until&) override {
    return down();
  }
  Status release(uint64_t, const Until&) override { return down(); }
  Result<uint64_t> erase_entry(const QueryRequest&, const Until&) override { return down(); }
  Result<uint64_t> erase(uint32_t, const Query&, const Until&) override { return down(); }
  Result<StatsReply> stats(const Until&) override { return down(); }
  Result<WhyReply> why(const WhyRequest&, const Until&) override { return down(); }

 private:
  static Status down() { return {StatusCode::busy, "the test's cache is down"}; }
  uint32_t block_tokens() const { return profile_->block_tokens; }
  static std::span<const Token> span(const std::vector<Token>& t, size_t at, size_t count) {
    return std::span<const Token>(t).subspan(at, count);
  }
  std::vector<Id> path(const std::vector<Token>& tokens) const {
    std::vector<Id> ids;
    Id parent;
    for (size_t at = 0; at < tokens.size(); at += block_tokens()) {
      size_t count = std::min<size_t>(block_tokens(), tokens.size() - at);
      parent = block_id(realm_, parent, span(tokens, at, count), {},
                        count == block_tokens() ? ObjectKind::block : ObjectKind::tail);
      ids.push_back(parent);
    }
    return ids;
  }
  std::shared_ptr<const Profile> profile_;
  std::shared_ptr<const Codec> codec_;
  ModelSpec model_;
  Realm realm_;
  uint64_t reservation_ = 0;
  std::vector<Token> query_;
  std::vector<ObjectPtr> pending_;
};

}  // namespace kv
