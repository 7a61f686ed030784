// Ends that a client names at reserve: what they need is asked for, stays in both tiers while the
// entry grows, is known after a restart, and the commit says which are restorable.
#include "cachesvc/core/ends_search.h"
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

using Lengths = std::vector<uint32_t>;

ModelSpec window_model() {
  return model_of({LayerSpec{{full_part()}}, LayerSpec{{window_part(10, 3)}}});
}
ModelSpec model_with(const PartSpec& part) {
  return model_of({LayerSpec{{full_part()}}, LayerSpec{{part}}});
}

class NamedEnds : public ::testing::Test {
 protected:
  void start(const ModelSpec& model) {
    core_.reset();
    core_ = std::make_unique<CoreOwners>(small_options(dir_.store()));
    core_->open_model(model);
    core_->run_all();
    session_ = core_->connect();
  }
  Result<ReserveReply> reserve(const std::vector<Token>& tokens, Lengths ends) {
    const ReserveRequest request{1, core_->model->realm->realm.profile, {tokens, {}}, ends};
    auto reply = core_->call<Result<ReserveReply>>(
        [&](auto done) { core_->reservations.reserve(session_, request, soon(), done); });
    KV_CHECK(reply.has_value());
    return std::move(*reply);
  }
  /// `bring`: which of the needs the client puts.
  std::vector<NamedEnd> store(const std::vector<Token>& tokens, Lengths ends,
                              const std::function<bool(const Need&)>& bring = nullptr) {
    auto reserved = reserve(tokens, std::move(ends));
    KV_CHECK(reserved.ok());
    if (bring) std::erase_if(reserved->needs, [&](const Need& need) { return !bring(need); });
    core_->put(session_, tokens, *reserved);
    auto reply = std::make_shared<std::optional<Result<CommitReply>>>();
    core_->commits.commit(session_, reserved->reservation, Durability::durable, soon(),
                          [reply](Result<CommitReply> r) { reply->emplace(std::move(r)); });
    for (core_->run_all(); !*reply; core_->go_on()) core_->run_for(Milliseconds(1));
    KV_CHECK((*reply)->ok());
    return (**reply)->ends;
  }
  Lengths restorable(const std::vector<NamedEnd>& told) {
    Lengths ends;
    for (const NamedEnd& end : told) {
      EXPECT_EQ(end.restorable, end.reason.empty()) << end.reason;
      if (end.restorable) ends.push_back(end.tokens);
    }
    return ends;
  }
  /// Supplements and snapshots on the path of the tokens, those for an end of n first.
  struct Hung {
    std::vector<const Record*> needed, others;
  };
  Hung hung(const std::vector<Token>& tokens, uint32_t n) {
    Hung out;
    RealmState& realm = *core_->index.realms().find(core_->model->realm->realm);
    std::vector<NodeId> nodes = realm.tree.find_path(tokens, {});
    nodes.push_back(kRootNode);
    for (NodeId node : nodes) {
      std::vector<Record*> all;
      realm.nodes.at(node).attached.list(SIZE_MAX, all);
      for (const Record* r : all) (demanded_at(*r, n) ? out.needed : out.others).push_back(r);
    }
    return out;
  }
  void expect_named(const std::vector<Token>& tokens, uint32_t n) {
    const Hung found = hung(tokens, n);
    EXPECT_FALSE(found.needed.empty());
    for (const Record* r : found.needed) {
      EXPECT_TRUE(r->attachment->named) << r->name.first_row << " " << n;
      EXPECT_EQ(r->attachment->end_distance, 0u);
      EXPECT_EQ(drop_urgency(*r), kDropLast);
    }
  }
  std::vector<Token> fresh(size_t n) { return random_tokens(rng_, n); }

  TempDir dir_;
  std::mt19937 rng_{71};
  std::unique_ptr<CoreOwners> core_;
  uint64_t session_ = 0;
};

TEST_F(NamedEnds, OfEveryKindStayWhileTheEntryGrowsAndAfterARestart) {
  for (const ModelSpec& model :
       {window_model(), model_with(state_part(SnapshotPlace::checkpoint)),
        model_with(state_part(SnapshotPlace::block_end)), model_with(pooled_part(4, true))}) {
    SCOPED_TRACE(to_string(model.layers[1].parts[0].kind));
    start(model);
    auto tokens = fresh(16 * 6 + 5);
    EXPECT_EQ(restorable(store(tokens, {20, 41})), (Lengths{20, 41}));
    expect_named(tokens, 41);
    const auto more = fresh(16 * 5);
    tokens.insert(tokens.end(), more.begin(), more.end());
    EXPECT_TRUE(store(tokens, {}).empty());
    for (uint32_t n : {20u, 41u}) expect_named(tokens, n);
    start(model);
    for (uint32_t n : {20u, 41u}) expect_named(tokens, n);
    auto other = tokens;
    other.resize(41);
    other.push_back(-5);
    EXPECT_EQ((*core_->fetch(session_, other))->tokens, 41u);
  }
}

TEST_F(NamedEnds, WhatNobodyNamedGoesBeforeThem) {
  start(window_model());
  auto tokens = fresh(16 * 6 + 5);
  store(tokens, {41});
  const auto more = fresh(16 * 5);
  tokens.insert(tokens.end(), more.begin(), more.end());
  store(tokens, {});
  std::set<EntryKey> far;
  const Hung found = hung(tokens, 41);
  for (const Record* r : found.others) {
    if (r->attachment->end_distance > 0) far.insert(r->key);
  }
  ASSERT_FALSE(far.empty());
  std::set<EntryKey> needed;
  for (const Record* r : found.needed) needed.insert(r->key);
  for (Shares* order : {&core_->index.tiers().ram(), &core_->index.tiers().ssd()}) {
    std::set<EntryKey> before;
    for (EntryKey key : order->next_victims(UINT64_MAX, true).keys) {
      if (needed.contains(key)) break;
      before.insert(key);
    }
    EXPECT_TRUE(std::includes(before.begin(), before.end(), far.begin(), far.end()));
  }
}

// An object that lies on the SSD before it is named gets its note there.
TEST_F(NamedEnds, OfWhatIsOnTheSsdAlreadyAreKnownAfterARestart) {
  start(window_model());
  const auto tokens = fresh(16 * 3 + 9);
  store(tokens, {});
  for (const Record* r : hung(tokens, 57).needed) EXPECT_FALSE(r->attachment->named);
  EXPECT_EQ(restorable(store(tokens, {57})), (Lengths{57}));
  const uint64_t written = core_->lane.ssd()->stats().catalog_bytes_written;
  store(tokens, {57});
  EXPECT_EQ(core_->lane.ssd()->stats().catalog_bytes_written, written) << "told once";
  start(window_model());
  expect_named(tokens, 57);
}

TEST_F(NamedEnds, WhatTheClientLeavesOutIsNotRestorableAndWhyIsSaid) {
  start(window_model());
  const auto told =
      store(fresh(100), {20, 60, 100}, [](const Need& need) { return need.required; });
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(restorable(told), (Lengths{100}));
  EXPECT_NE(told[1].reason.find("layer 1"), std::string::npos) << told[1].reason;
  EXPECT_EQ(core_->env->count.ends_kept, 1u);
  EXPECT_EQ(core_->env->count.ends_missed, 2u);
}

TEST_F(NamedEnds, OfALongEntryAreToldInTheirOrder) {
  start(window_model());
  Lengths ends;
  for (uint32_t i = 1; i <= kMaxNamedEnds; ++i) ends.push_back(i * 9);
  EXPECT_EQ(restorable(store(fresh(16 * 40), ends)), ends);
}

TEST_F(NamedEnds, ThatAreNoLengthsOfTheQueryAreRefused) {
  start(window_model());
  const auto tokens = fresh(400);
  Lengths many(kMaxNamedEnds + 1);
  for (uint32_t i = 0; i < many.size(); ++i) many[i] = i + 1;
  for (const Lengths& ends : {Lengths{0}, Lengths{401}, Lengths{5, 5}, Lengths{6, 5}, many}) {
    auto reply = reserve(tokens, ends);
    EXPECT_EQ(reply.status().code(), StatusCode::invalid_argument);
    EXPECT_NE(reply.status().message().find("ends"), std::string::npos);
  }
  EXPECT_TRUE(reserve(tokens, {1, 400}).ok());
}

}  // namespace
}  // namespace kv
