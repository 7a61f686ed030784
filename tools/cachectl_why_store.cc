// Why a directory's files serve no more of a sequence.
#include <algorithm>
#include <span>

#include "index/holdings.h"
#include "proto/identity.h"
#include "tools/cachectl_why.h"

namespace kv::cachectl {
namespace {

bool is_damaged(const StoreView& store, const Id& id) {
  const Inspection& all = store.inspection();
  const bool in_place =
      std::any_of(all.files.begin(), all.files.end(), [&](const InspectedFile& f) {
        return f.name.id == id && f.status.code() == StatusCode::corruption;
      });
  return in_place ||
         std::any_of(all.quarantined.begin(), all.quarantined.end(), [&](const StrayFile& f) {
           return f.path.find(id.hex()) != std::string::npos;
         });
}

/// The walk from the root along a sequence, through the files of one (namespace, model, profile):
/// what they hold for it, as the service would plan it.
class Walk {
 public:
  Walk(const StoreView& store, const ModelRecord& model, uint32_t block_tokens,
       std::span<const Token> tokens)
      : store_(store),
        realm_{model.ns, model.model.fingerprint, model.profile},
        groups_(part_groups(model.model)),
        block_(block_tokens),
        tokens_(tokens) {
    while (step()) {
    }
  }
  /// The longest common prefix with anything that is there.
  uint32_t common() const { return common_; }
  /// The block or tail that would go on from the last complete block.
  const Id& next() const { return next_; }
  RestorePlan plan() const {
    RestorableQuery query;
    query.block_tokens = block_;
    query.query_tokens = static_cast<uint32_t>(tokens_.size());
    query.common = common_;
    return plan_restore(groups_, query, holdings_);
  }

 private:
  // True: the block after parent_ is there.
  bool step() {
    for (const InspectedFile* file : store_.children_of(parent_)) look(*file);
    const auto left = static_cast<uint32_t>(tokens_.size()) - at_, own = std::min(block_, left);
    next_ = own == 0 ? Id{}
                     : block_id(realm_, parent_, tokens_.subspan(at_, own), {},
                                own == block_ ? ObjectKind::block : ObjectKind::tail);
    if (own < block_ || store_.block(next_) == nullptr) return false;
    at_ += block_;
    parent_ = next_;
    return true;
  }
  // A block, tail or snapshot that goes on from the path.
  void look(const InspectedFile& file) {
    const Object& o = file.header;
    if (!file.status.ok() || o.ns != realm_.ns || o.fingerprint != realm_.fingerprint ||
        o.profile != realm_.profile || o.first_token != at_) {
      return;
    }
    auto rest = tokens_.subspan(at_);
    if (!o.extras.empty())
      rest = rest.first(std::min<size_t>(rest.size(), o.extras[0].position - at_));
    const auto end =
        std::mismatch(o.tokens.begin(), o.tokens.end(), rest.begin(), rest.end()).first;
    const auto same = static_cast<uint32_t>(end - o.tokens.begin());
    const bool whole = same == o.tokens.size();
    Holding like;
    like.common = at_ + same;
    like.tier = Tier::ssd;
    if (o.name.kind == ObjectKind::snapshot && !whole) return;
    if (o.name.kind == ObjectKind::tail) like.place = HoldingPlace::tail;
    if (o.name.kind == ObjectKind::block && !whole) like.place = HoldingPlace::other;
    common_ = std::max(common_, like.common);
    for (const InspectedFile* each : store_.with_id(o.name.id)) {
      if (!each->status.ok()) continue;
      append_holdings(groups_, each->name, o.first_token, o.end_token(), like, holdings_);
    }
  }

  const StoreView& store_;
  const Realm realm_;
  const std::vector<PartGroup> groups_;
  const uint32_t block_;
  const std::span<const Token> tokens_;
  Id parent_{}, next_{};
  uint32_t at_ = 0, common_ = 0;
  std::vector<Holding> holdings_;
};

bool lacks_part(ShortReason reason) {
  return reason == ShortReason::missing_rows || reason == ShortReason::missing_carry ||
         reason == ShortReason::missing_snapshot;
}

// The sequence as far as the files serve it, and the first token that they don't.
RequestRecord of_realm(const StoreView& store, const ModelRecord& model, uint32_t block,
                       const std::vector<Token>& tokens) {
  RequestRecord r;
  r.kind = RequestKind::question;
  r.ns = model.ns;
  r.model = model.model.name;
  r.fingerprint = model.model.fingerprint;
  r.profile = model.profile;
  r.block_tokens = block;
  r.asked = static_cast<uint32_t>(tokens.size());
  const Walk walk(store, model, block, tokens);
  const RestorePlan plan = walk.plan();
  r.common = walk.common();
  r.ssd_tokens = plan.tokens;
  r.missing_from = plan.tokens;
  if (plan.tokens + 1 >= r.asked) return r;
  r.missing = is_damaged(store, walk.next())      ? Missing::damaged
              : lacks_part(plan.shortfall.reason) ? Missing::part
                                                  : Missing::not_there;
  if (r.missing == Missing::part) r.reason = plan.shortfall.text;
  return r;
}

}  // namespace

std::vector<RequestRecord> why_of(const StoreView& store, const std::vector<Token>& tokens,
                                  const std::string& ns) {
  std::vector<RequestRecord> out;
  for (const auto& model : store.models()) {
    auto profile = store.profile(model->profile);
    if (!profile || (!ns.empty() && model->ns != ns)) continue;
    out.push_back(of_realm(store, *model, profile->block_tokens, tokens));
  }
  std::stable_sort(out.begin(), out.end(), [](const RequestRecord& a, const RequestRecord& b) {
    return a.common > b.common;
  });
  for (RequestRecord& r : out) {  // another one of the namespace that has more of them
    if (r.missing != Missing::not_there) continue;
    for (const RequestRecord& other : out) {
      if (other.ns != r.ns || other.common <= r.common) continue;
      r.missing = Missing::other_model;
      r.other = other.fingerprint;
      r.other_tokens = other.common;
      break;
    }
  }
  return out;
}

}  // namespace kv::cachectl
