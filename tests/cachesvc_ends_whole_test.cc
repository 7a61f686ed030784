// Ends of entries: which supplements a store is asked for, what a growing conversation copies, and
// what goes first when bytes are short.
#include "cachesvc/core/ends_search.h"
#include "cachesvc/core/needs.h"
#include "cachesvc/core/records.h"
#include "codec/float16.h"
#include "proto/identity.h"
#include "tests/support/cachesvc_testing.h"

namespace kv {
namespace {

ModelSpec window_model(uint32_t window = 10, uint32_t keep = 3) {
  return model_of({LayerSpec{{full_part()}}, LayerSpec{{window_part(window, keep)}}});
}

using Range = std::tuple<ObjectKind, uint32_t, uint32_t, bool>;  // kind, rows, required
std::vector<Range> needs_of(const ModelSpec& model, uint32_t n, uint32_t interval,
                            uint32_t branch = 0) {
  std::vector<Range> out;
  for (const Need& need : attached_needs(part_groups(model), 16, n, {interval, branch}, {})) {
    out.emplace_back(need.kind, need.first_row, need.end_row, need.required);
  }
  std::sort(out.begin(), out.end());
  return out;
}

// The same rows in f32.
Plane widened(const Plane& p) {
  std::vector<float> values(p.bytes.size() / 2);
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half;
    std::memcpy(&half, p.bytes.data() + 2 * i, sizeof(half));
    values[i] = half_to_float(half);
  }
  Plane out = p;
  std::vector<uint8_t> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  out.dtype = DType::f32;
  out.bytes = Bytes::owning(std::move(bytes));
  return out;
}

TEST(Ends, AStoreIsAskedForItsOwnEndsAndEveryIntervalsBlockEnd) {
  constexpr auto kRows = ObjectKind::supplement, kState = ObjectKind::snapshot;
  ModelSpec window = model_of({LayerSpec{{window_part(6, 2)}}});
  // Sinks, the last 5 rows before 70, the one more that 69 sees, those before the block end 64.
  std::vector<Range> own{
      {kRows, 0, 2, true}, {kRows, 59, 64, false}, {kRows, 64, 65, false}, {kRows, 65, 70, true}};
  EXPECT_EQ(needs_of(window, 70, 0), own);
  std::vector<Range> every_second = own;
  every_second.insert(every_second.begin() + 1, {kRows, 27, 32, false});
  EXPECT_EQ(needs_of(window, 70, 2), every_second);
  EXPECT_EQ(needs_of(window, 70, 0, 32), every_second) << "where another entry leaves its path";
  EXPECT_EQ(needs_of(window, 70, 0, 64), own);
  EXPECT_EQ(needs_of(window, 70, 1).size(), own.size() + 3) << "16, 32 and 48";
  ModelSpec pooled = model_of({LayerSpec{{pooled_part(4, true)}}});
  EXPECT_EQ(
      needs_of(pooled, 40, 0),
      (std::vector<Range>{{kRows, 32, 32, false}, {kRows, 39, 39, false}, {kRows, 40, 40, true}}));
  EXPECT_EQ(needs_of(pooled, 40, 1).size(), 4u) << "and at 16";
  ModelSpec state = model_of({LayerSpec{{state_part(SnapshotPlace::checkpoint)}}});
  EXPECT_EQ(needs_of(state, 40, 0), (std::vector<Range>{{kState, 40, 40, true}}));
  std::vector<Range> at_32_too{{kState, 32, 32, false}, {kState, 40, 40, true}};
  EXPECT_EQ(needs_of(state, 40, 2), at_32_too);
  EXPECT_EQ(needs_of(state, 40, 0, 32), at_32_too);
}

TEST(Ends, TheSettingReachesReserveAndCodedPrefillMeansEveryBlockEnd) {
  ModelSpec model = window_model();
  std::mt19937 rng(1);
  auto tokens = random_tokens(rng, 70);
  auto welcome = [&](uint32_t interval, PrefillMode prefill) {
    CacheOptions options = small_options();
    options.block_end_interval = interval;
    auto cache = open_cache(options);
    OpenRequest request;
    request.model = model;
    request.prefill = prefill;
    auto opened = cache->open(request, soon());
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    auto reserved = cache->reserve({opened->model, opened->realm.profile, {tokens, {}}}, soon());
    EXPECT_TRUE(reserved.ok());
    return std::count_if(reserved->needs.begin(), reserved->needs.end(),
                         [](const Need& n) { return !n.required; });
  };
  auto own = welcome(0, PrefillMode::exact);
  EXPECT_EQ(welcome(2, PrefillMode::exact), own + 1);
  EXPECT_EQ(welcome(1, PrefillMode::exact), own + 3);
  EXPECT_EQ(welcome(0, PrefillMode::coded), own + 3);
}

// One system prompt, many questions, and nobody names its end: by default the second one is a hit,
// and what makes it one takes no more than the entry.
TEST(Ends, ByPriceServeTheSecondQuestionOfASystemPrompt) {
  for (const PartSpec& part : {window_part(10, 3), chunk_part(24), pooled_part(4, true)}) {
    SCOPED_TRACE(to_string(part.kind));
    ModelSpec model = model_of({LayerSpec{{full_part()}}, LayerSpec{{part}}});
    uint64_t bytes[2];
    for (bool by_price : {false, true}) {
      CacheOptions options = small_options();
      if (by_price) options.block_end_interval = CacheOptions().block_end_interval;
      auto cache = open_cache(options);
      auto b = Bench::open(*cache, model);
      std::mt19937 rng(6);
      auto first = random_tokens(rng, 95), second = first;
      second[55] = -5;
      ASSERT_TRUE(b.store(first).ok());
      bytes[by_price] = b.stat("ram_stored_bytes");
      auto hit = b.fetch(second);
      ASSERT_TRUE(hit.ok());
      if (by_price) {
        EXPECT_GE(hit->tokens, 32u) << hit->reason;
        b.expect_serves(second, *hit);
      } else if (part.kind != PartKind::chunk) {  // of which no row is needed at 48
        EXPECT_LT(hit->tokens, 16u);
      }
    }
    EXPECT_LE(bytes[1], 2 * bytes[0]);
  }
}

// One system prompt, many questions: the second one shows that it is shared, the third one profits.
TEST(Ends, ThePlaceWhereTwoEntriesPartServesTheThird) {
  auto cache = open_cache(small_options());
  ModelSpec model = window_model();
  auto b = Bench::open(*cache, model);
  std::mt19937 rng(6);
  auto shared = random_tokens(rng, 55);
  auto question = [&](size_t length) {
    auto tokens = shared, end = random_tokens(rng, length);
    tokens.insert(tokens.end(), end.begin(), end.end());
    return tokens;
  };
  ASSERT_TRUE(b.store(question(40)).ok());
  auto second = question(60);
  EXPECT_EQ(b.fetch(second)->tokens, 3u) << "the sinks: the first one had no end there";
  EXPECT_EQ(b.fetch(second)->common, 55u);
  ASSERT_TRUE(b.store(second).ok());
  auto third = question(30);
  auto hit = b.fetch(third);
  ASSERT_TRUE(hit.ok());
  EXPECT_EQ(hit->tokens, 48u) << hit->reason;
  b.expect_serves(third, *hit);
}

TEST(Ends, AGrownConversationServesEveryTurnsEndWithoutItsTails) {
  for (uint8_t bits : {uint8_t{0}, uint8_t{4}}) {
    CacheOptions options = small_options();
    auto cache = open_cache(options);
    ModelSpec model = window_model();
    auto b = Bench::open(*cache, model, make_profile(model, bits));
    std::mt19937 rng(2);
    auto tokens = random_tokens(rng, 100);
    std::vector<uint32_t> turns{21, 26, 40, 73, 100};
    for (uint32_t n : turns) {
      ASSERT_TRUE(b.store({tokens.begin(), tokens.begin() + n}).ok());
    }
    EXPECT_EQ(b.stat("superseded_tails"), 4u) << "one each";
    EXPECT_GT(b.stat("copied_supplements"), 0u);
    for (uint32_t n : turns) {
      std::vector<Token> query(tokens.begin(), tokens.begin() + n);
      query.push_back(-1);
      auto hit = b.fetch(query);
      ASSERT_TRUE(hit.ok());
      EXPECT_EQ(hit->tokens, n) << hit->reason;
      EXPECT_EQ(hit->form, HitForm::exact_tail);
      b.expect_serves(query, *hit);
    }
  }
}

// Each turn takes over what its predecessor has in one piece, however often that was done before.
TEST(Ends, AConversationThatGrowsByATokenCopiesOneRunATurn) {
  ModelSpec model = window_model(200, 0);
  auto cache = open_cache(small_options());
  auto b = Bench::open(*cache, model, make_profile(model, 4, 64));
  std::mt19937 rng(7);
  auto tokens = random_tokens(rng, 60);
  for (uint32_t n = 21; n <= 60; ++n) {
    ASSERT_TRUE(b.store({tokens.begin(), tokens.begin() + n}).ok());
  }
  EXPECT_EQ(b.stat("copied_supplements"), 39u);
  EXPECT_EQ(b.stat("ram_objects"), 40u + 40u + 39u) << "tails, each one's own rows, copied ones";
  tokens.push_back(-1);
  auto hit = b.fetch(tokens);
  ASSERT_EQ(hit->tokens, 60u) << hit->reason;
  b.expect_serves(tokens, *hit);
}

// A client may give exact rows in f32, also those that stay exact; they are stored in the raw
// dtype, so that other entries' rows go with them.
TEST(Ends, RowsGivenInF32AreStoredLikeAllOthers) {
  auto cache = open_cache(small_options());
  auto b = Bench::open(*cache, window_model());
  std::mt19937 rng(8);
  auto tokens = random_tokens(rng, 30);
  std::vector<Token> second(tokens.begin(), tokens.begin() + 26);
  ASSERT_TRUE(b.store({tokens.begin(), tokens.begin() + 20}).ok());
  auto reserved = b.reserve(second);
  ASSERT_TRUE(reserved.ok());
  for (const Need& need : reserved->needs) {
    PutRequest put = make_put(b.model, 16, second, need, reserved->reservation);
    for (Plane& p : put.object.planes) p = widened(p);
    Status s = b.client.put(std::move(put), soon());
    ASSERT_TRUE(s.ok()) << s.to_string();
  }
  ASSERT_TRUE(b.client.commit(reserved->reservation, Durability::accepted, soon()).ok());
  second.push_back(-1);
  auto hit = b.fetch(second);
  ASSERT_TRUE(hit.ok());
  EXPECT_EQ(hit->tokens, 26u) << hit->reason;
  b.expect_serves(second, *hit);
  uint64_t before = b.stat("copied_supplements");
  ASSERT_TRUE(b.store(tokens).ok());
  EXPECT_EQ(b.stat("copied_supplements") - before, 1u) << "16-25 in one piece";
}

// Pressure that takes the superseded tails and no more leaves every turn's end servable.
void expect_lengths_outlive_tails(const ModelSpec& model) {
  CacheOptions options = small_options();
  options.ram_budget_bytes = 6ull << 20;
  options.index_fraction = 0.9;  // many small entries
  options.room_wait = Milliseconds(10);
  auto cache = open_cache(options);
  auto b = Bench::open(*cache, model, make_profile(model, 4));
  std::mt19937 rng(3);
  auto tokens = random_tokens(rng, 90), other = random_tokens(rng, 60);
  auto prefix = [&](uint32_t n) { return std::vector<Token>(tokens.begin(), tokens.begin() + n); };
  ASSERT_TRUE(b.store(other).ok());
  ASSERT_TRUE(b.store(prefix(30)).ok());
  ASSERT_TRUE(b.store(prefix(90)).ok());
  auto query = prefix(30);
  query.push_back(-1);
  ASSERT_EQ(b.fetch(query)->form, HitForm::exact_tail) << "the most recently used of all";
  uint64_t before = b.stat("ram_evicted_dirty");
  for (int i = 0; i < 4000 && b.stat("ram_evicted_dirty") == before; ++i) {
    ASSERT_TRUE(b.store(random_tokens(rng, 3)).ok());
  }
  ASSERT_GT(b.stat("ram_evicted_dirty"), before);
  auto hit = b.fetch(query);
  ASSERT_TRUE(hit.ok());
  EXPECT_EQ(hit->form, HitForm::coded) << "the superseded tail went first";
  EXPECT_EQ(hit->tokens, 30u) << "what hung on it is the block's now: " << hit->reason;
  b.expect_serves(query, *hit);
  other.push_back(-1);
  EXPECT_EQ(b.fetch(other)->tokens, 60u) << "older, but superseded by nobody";
}

TEST(Ends, SupersededTailsAreTheFirstVictimsAndTheirLengthsStay) {
  expect_lengths_outlive_tails(window_model());
}
TEST(Ends, CarriesAndBlockEndStatesOfSupersededTailsOutliveThem) {
  LayerSpec full{{full_part(8)}};  // a tail is worth more than what one small store takes
  expect_lengths_outlive_tails(model_of({full, LayerSpec{{pooled_part(4, true)}}}));
  expect_lengths_outlive_tails(model_of({full, LayerSpec{{state_part(SnapshotPlace::block_end)}}}));
}

// Room for the copies is made like any other: a full RAM is its usual state.
TEST(Ends, ATailCopiesRowsInAFullRam) {
  CacheOptions options = small_options();
  options.ram_budget_bytes = 4ull << 20;
  options.room_wait = Milliseconds(10);
  auto cache = open_cache(options);
  auto small = Bench::open(*cache, plain_model(2, 8));
  ModelSpec model = window_model();  // a row of its window is larger than the other's objects
  PartSpec& window = model.layers[1].parts[0];
  window.heads = 8;
  window.k_dim = window.v_dim = 256;
  auto b = Bench::open(*cache, model, make_profile(model, 4));
  std::mt19937 rng(5);
  auto tokens = random_tokens(rng, 30);
  for (int i = 0; i < 4000 && b.stat("ram_evicted_dirty") < 4; ++i) {
    ASSERT_TRUE(small.store(random_tokens(rng, 2)).ok());
  }
  uint64_t before = b.stat("copied_supplements");
  for (uint32_t n : {20u, 26u, 30u}) {
    ASSERT_TRUE(b.store({tokens.begin(), tokens.begin() + n}).ok());
  }
  EXPECT_EQ(b.stat("copied_supplements") - before, 2u) << "16-19, then these and 20-25";
}

// The index alone: one entry's path, what hangs on it, and the order in which it would go.
struct Shelf {
  ObjectIndex index;
  Ends ends{index};
  Records records{index};
  RealmState* realm;
  std::mt19937 rng{5};

  explicit Shelf(const ModelSpec& model) {
    auto spec = std::make_shared<const ModelSpec>(model);
    auto profile = make_profile(model, 0);
    realm = index.realm({"test", model.fingerprint, profile->id()}, spec, profile).get();
  }
  Object object(ObjectKind kind, const std::vector<Token>& tokens, uint32_t index_in_path) {
    Object o;
    Id parent;
    auto n = static_cast<uint32_t>(tokens.size());
    for (uint32_t i = 0; i <= index_in_path; ++i) {
      o.parent = parent;
      o.first_token = i * 16;
      o.tokens.assign(tokens.begin() + i * 16, tokens.begin() + std::min(n, i * 16 + 16));
      o.name.kind = o.tokens.size() == 16 ? ObjectKind::block : ObjectKind::tail;
      stamp(o, realm->realm);
      parent = o.name.id;
    }
    o.name.kind = kind;
    return o;
  }
  Record* add(Object o) {
    Record* r = index.add(*realm, o, Charge());
    if (!r || r->ram) return r;
    records.given(*r, {std::make_shared<const Object>(std::move(o)), {}});
    records.enqueue(*r);
    records.begin_write(*r);
    records.written(*r, Durability::spilled, 4096);
    return r;
  }
  /// An entry with its path; then `n` is an end.
  void store(const std::vector<Token>& tokens) {
    auto n = static_cast<uint32_t>(tokens.size());
    for (uint32_t i = 0; i * 16 < n; ++i) {
      add(object(n - i * 16 < 16 ? ObjectKind::tail : ObjectKind::block, tokens, i));
    }
  }
  Record* supplement(const std::vector<Token>& tokens, uint32_t first, uint32_t end) {
    Object o = object(ObjectKind::supplement, tokens, (end - 1) / 16);
    o.name.group = 1;  // the window's
    o.name.first_row = first;
    o.name.end_row = end;
    return add(std::move(o));
  }
  /// A snapshot of all checkpoint parts, after these tokens.
  Record* snapshot(const std::vector<Token>& tokens) {
    auto whole = static_cast<uint32_t>(tokens.size()) / 16;
    Object o;
    o.name.kind = ObjectKind::snapshot;
    if (whole > 0) o.parent = object(ObjectKind::block, tokens, whole - 1).name.id;
    o.first_token = whole * 16;
    o.tokens.assign(tokens.begin() + o.first_token, tokens.end());
    stamp(o, realm->realm);
    return add(std::move(o));
  }
  void end(const std::vector<Token>& tokens) {
    ends.mark(*realm, realm->tree.find_path(tokens, {}), static_cast<uint32_t>(tokens.size()));
  }
  /// The search of a start, in the smallest steps.
  void search() {
    EndsSearch search(index, ends);
    while (search.step(1)) {
    }
  }
  /// Names of the first victims of a tier.
  std::vector<ObjectName> victims(Shares& order, size_t count) {
    std::vector<ObjectName> out;
    for (EntryKey key : order.next_victims(UINT64_MAX, true).keys) {
      if (out.size() < count) out.push_back(index.find_key(key)->name);
    }
    return out;
  }
};

TEST(Ends, FarSupplementsGoFirstTheFarthestFirstInBothTiersAndAfterARestart) {
  for (bool restart : {false, true}) {
    Shelf shelf(model_of({LayerSpec{{full_part()}}, LayerSpec{{window_part(10, 3)}}}));
    auto tokens = random_tokens(shelf.rng, 16 * 5 + 7);
    auto branch = tokens;
    branch.resize(16 * 2);
    branch.push_back(-7);
    std::vector<Token> turn(tokens.begin(), tokens.begin() + 40);
    shelf.store(turn);
    Record* turns_rows = shelf.supplement(turn, 32, 40);
    shelf.store(tokens);
    Record* sinks = shelf.supplement(tokens, 0, 3);
    Record* far = shelf.supplement(tokens, 7, 16);
    Record* nearer = shelf.supplement(tokens, 39, 48);
    Record* newest_block_end = shelf.supplement(tokens, 71, 80);
    Record* last = shelf.supplement(tokens, 80, 87);
    shelf.store(branch);
    Record* branchs = shelf.supplement(branch, 24, 32);
    if (restart) {
      shelf.search();
    } else {
      shelf.end(turn);
      shelf.end(branch);
      NodeId tail = *shelf.realm->node_of.find(shelf.object(ObjectKind::tail, turn, 2).name.id);
      shelf.ends.supersede(*shelf.realm->nodes.at(tail).main);
      shelf.end(tokens);
    }
    shelf.index.tiers().touch({far, nearer, turns_rows});  // recency does not help them
    ObjectName tail = shelf.object(ObjectKind::tail, turn, 2).name;
    std::vector<ObjectName> first{turns_rows->name, tail, far->name, nearer->name};
    if (restart) first = {turns_rows->name, tail, nearer->name, far->name};
    EXPECT_EQ(nearer->attachment->end_distance, 3u);
    // The nearest end below the first block is the branch's, two blocks away; at run time it is the
    // entry stored last.
    EXPECT_EQ(far->attachment->end_distance, restart ? 2u : 5u);
    EXPECT_EQ(shelf.victims(shelf.index.tiers().ram(), 4), first);
    EXPECT_EQ(shelf.victims(shelf.index.tiers().ssd(), 4), first);
    for (Record* r : {sinks, newest_block_end, last, branchs})
      EXPECT_EQ(r->attachment->end_distance, 0u);
  }
}

// A conversation of two turns with checkpoints on its way, an entry that leaves it at 32, and
// another conversation: their first snapshots hang on the root alike.
TEST(Ends, SnapshotsOfSupersededTurnsGoFirstTheFarthestFirstInBothTiersAndAfterARestart) {
  for (bool restart : {false, true}) {
    LayerSpec recurrent{{state_part(SnapshotPlace::checkpoint)}};
    Shelf shelf(model_of({LayerSpec{{full_part()}}, recurrent}));
    auto tokens = random_tokens(shelf.rng, 16 * 6 + 7), other = random_tokens(shelf.rng, 49);
    auto prefix = [&](size_t n) {
      return Sequence(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n));
    };
    auto branch = prefix(32);
    branch.resize(52, -7);
    std::vector<Record*> far;
    shelf.store(prefix(40));
    for (size_t n : {9u, 16u, 39u, 40u}) far.push_back(shelf.snapshot(prefix(n)));
    far.push_back(shelf.snapshot({other.begin(), other.begin() + 9}));
    if (!restart) shelf.end(prefix(40));
    EXPECT_EQ(far[3]->attachment->end_distance, 0u);
    std::vector<Record*> kept;
    shelf.store(branch);
    for (const Sequence& at : {prefix(32), branch}) kept.push_back(shelf.snapshot(at));
    shelf.store(other);
    kept.push_back(shelf.snapshot(other));
    shelf.store(tokens);
    for (size_t n : {102u, 103u}) kept.push_back(shelf.snapshot(prefix(n)));
    ObjectName tail = shelf.object(ObjectKind::tail, prefix(40), 2).name;
    if (restart) {
      shelf.search();
    } else {
      shelf.end(branch);
      shelf.end(other);
      shelf.ends.supersede(*shelf.index.find(tail));
      shelf.end(tokens);
    }
    shelf.index.tiers().touch(far);  // recency does not help them
    // After a restart the first blocks' nearest end is the branch's; before, the one stored last.
    std::vector<uint32_t> distances{6, 6, 4, 4, 3};
    std::vector<size_t> order{0, 1, 2, 3, 4};
    if (restart) {
      distances = {3, 3, 4, 4, 3};
      order = {2, 3, 0, 1, 4};
    }
    std::vector<ObjectName> first{tail};
    for (size_t i : order) first.push_back(far[i]->name);
    for (size_t i = 0; i < far.size(); ++i)
      EXPECT_EQ(far[i]->attachment->end_distance, distances[i]) << i;
    for (size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(kept[i]->attachment->end_distance, 0u) << i;
    EXPECT_EQ(shelf.victims(shelf.index.tiers().ram(), first.size()), first);
    EXPECT_EQ(shelf.victims(shelf.index.tiers().ssd(), first.size()), first);
  }
}

// Snapshots of superseded turns go before objects used longer ago; then the conversation still
// resumes from its newest checkpoint.
TEST(Ends, SnapshotsOfSupersededTurnsGoBeforeOlderEntries) {
  CacheOptions options = small_options();
  options.ram_budget_bytes = 4ull << 20;
  options.room_wait = Milliseconds(10);
  auto cache = open_cache(options);
  LayerSpec full{{full_part(8)}};  // a turn's share is worth more than what one small store takes
  LayerSpec recurrent{{state_part(SnapshotPlace::checkpoint)}};
  auto b = Bench::open(*cache, model_of({full, recurrent}));
  std::mt19937 rng(9);
  auto other = random_tokens(rng, 60), tokens = random_tokens(rng, 90);
  auto prefix = [&](uint32_t n) { return Sequence(tokens.begin(), tokens.begin() + n); };
  ASSERT_TRUE(b.store(other).ok());
  for (uint32_t n : {30u, 50u, 90u}) ASSERT_TRUE(b.store(prefix(n)).ok());
  uint32_t served = 50;
  for (int i = 0; i < 4000 && served == 50; ++i) {
    ASSERT_TRUE(b.store(random_tokens(rng, 3)).ok());
    for (const Sequence& whole : {tokens, other}) {
      ASSERT_EQ(b.fetch(plus_one(whole))->tokens, whole.size());
    }
    served = b.fetch(plus_one(prefix(50)))->tokens;
  }
  EXPECT_LT(served, 50u) << "its snapshot went, though it was used last";
  EXPECT_EQ(b.fetch(plus_one(prefix(30)))->tokens, 0u) << "and the older one's before it";
  for (const Sequence& whole : {tokens, other}) {
    auto query = plus_one(whole);
    auto hit = b.fetch(query);
    ASSERT_TRUE(hit.ok());
    EXPECT_EQ(hit->tokens, whole.size()) << hit->reason;
    b.expect_serves(query, *hit);
  }
}

// Every block end keeps its window rows until RAM is short; then those between go, the first ones
// first, whatever was used last, and the entry's own end and its newest block end are still served.
TEST(Ends, UnderPressureInteriorBlockEndsGoAndTheEntrysOwnStay) {
  CacheOptions options = small_options();
  options.ram_budget_bytes = 3ull << 20;
  options.index_fraction = 0.9;  // many small entries
  options.room_wait = Milliseconds(10);
  options.block_end_interval = 1;
  auto cache = open_cache(options);
  auto b = Bench::open(*cache, window_model());
  std::mt19937 rng(11);
  auto tokens = random_tokens(rng, 90);
  auto expect_served = [&](uint32_t length, uint32_t n) {
    auto query = plus_one({tokens.begin(), tokens.begin() + length});
    auto hit = b.fetch(query);
    ASSERT_TRUE(hit.ok()) << hit.status().to_string();
    EXPECT_EQ(hit->tokens, n) << "of " << length << ": " << hit->reason;
    b.expect_serves(query, *hit);
  };
  ASSERT_TRUE(b.store(tokens).ok());
  for (uint32_t end : {16u, 32u, 48u, 64u, 80u, 90u}) expect_served(end, end);
  auto served = [&](uint32_t n) {
    return b.fetch(plus_one({tokens.begin(), tokens.begin() + n}))->tokens;
  };
  for (int i = 0; i < 2000 && served(16) == 16; ++i) {
    expect_served(90, 90);
    ASSERT_TRUE(b.store(random_tokens(rng, 3)).ok());
  }
  expect_served(64, 64);  // the nearest to the end goes last
  for (int i = 0; i < 2000 && served(64) == 64; ++i) {
    expect_served(90, 90);
    ASSERT_TRUE(b.store(random_tokens(rng, 3)).ok());
  }
  for (uint32_t end : {16u, 32u, 48u, 64u}) expect_served(end, 3);  // the sinks
  for (uint32_t end : {80u, 89u, 90u}) expect_served(end, end);
}

// Beside the whole conversation's bytes, each turn that it has superseded costs one tail.
TEST(Ends, ASupersededTurnCostsOneTailInBytes) {
  std::mt19937 rng(10);
  auto tokens = random_tokens(rng, 100);
  const std::vector<uint32_t> turns{21, 26, 40, 73, 100};
  uint64_t tails = 0, grown = 0, whole = 0;
  for (bool at_once : {false, true}) {
    auto cache = open_cache(small_options());
    ModelSpec model = plain_model();
    auto b = Bench::open(*cache, model);
    for (uint32_t n : turns) {
      if (at_once && n != turns.back()) continue;
      ASSERT_TRUE(b.store({tokens.begin(), tokens.begin() + n}).ok());
      Need tail{ObjectKind::tail, n / 16, 0, n / 16 * 16, n, true};
      uint64_t bytes = need_bytes(model, *b.opened.profile, part_groups(model), tail);
      if (n != turns.back()) tails += RamPool::slab_bytes(bytes);
    }
    (at_once ? whole : grown) = b.stat("ram_stored_bytes");
  }
  EXPECT_EQ(grown - whole, tails);
}

TEST(Ends, ASupplementOfAnEndThatGrewIsFarFromThenOn) {
  Shelf shelf(window_model());
  auto tokens = random_tokens(shelf.rng, 16 * 4);
  std::vector<Token> turn(tokens.begin(), tokens.begin() + 32);
  shelf.store(turn);
  Record* rows = shelf.supplement(turn, 22, 32);
  shelf.end(turn);
  EXPECT_EQ(rows->attachment->end_distance, 0u);
  shelf.store(tokens);
  shelf.end(tokens);
  EXPECT_EQ(rows->attachment->end_distance, 2u);
}

}  // namespace
}  // namespace kv
