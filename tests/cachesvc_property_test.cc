// Every part kind through the real cache and its SSD tier: random stores, extensions, branches,
// trims, erasures, spills, promotions, evictions and restarts, of several models in several
// namespaces at once, against a brute-force oracle (tests/support/cachesvc_oracle.h).
//
// With ample budgets every length that the oracle calls restorable is served, and nothing longer.
// With small ones it may be shorter, but every row, carry and snapshot is still the right one.
// Leases taken on the way are read again at the end: what others stored since has changed nothing.
// A restart may have lost its catalog; until the background has read the files, less may be served.
// In half of the walks some processes end in the middle of their work, nothing is drained, and what
// they left is a catalog without its last changes, or none, and half a file: what a commit called
// spilled is served all the same, and still nothing longer than was stored. In half of the walks
// with small budgets a day's write budget is one of them, and the wall clock jumps back and forward
// between processes, with the times of the files.
// Stores name ends, and a commit's word on each is the oracle's. Some entries go by their time.
// KV_SEEDS=first-last runs other seeds than the fixed ones.
#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <set>
#include <thread>

#include "proto/identity.h"
#include "tests/support/allocated_bytes.h"
#include "tests/support/cachesvc_oracle.h"

namespace kv {
namespace {

using std::chrono::hours;
constexpr uint8_t kWords[] = {0, 4, kTransformWord};  // of codings; no set fits small budgets
constexpr auto kOverwrite = std::filesystem::copy_options::overwrite_existing;

struct Shape {
  const char* name;
  uint32_t block_tokens;
  std::vector<LayerSpec> layers;
};
/// `scale` times as many heads in parts with separate K and V: entries that fill a small store.
std::vector<Shape> shapes(uint32_t scale) {
  auto layer = [](std::vector<PartSpec> parts) { return LayerSpec{std::move(parts)}; };
  LayerSpec full = layer({full_part()});
  LayerSpec checkpoints = layer({state_part(SnapshotPlace::checkpoint)});
  LayerSpec block_ends = layer({state_part(SnapshotPlace::block_end)});
  PartSpec near = window_part(12, 0), sparse = pooled_part(4, true);
  LayerSpec latent = layer({latent_part()}), pooled = layer({pooled_part(4, false)});
  LayerSpec mixed =
      layer({window_part(6, 2), pooled_part(4, true), state_part(SnapshotPlace::checkpoint)});
  std::vector<Shape> all = {
      {"full", 16, {full, full}},
      {"window with sinks + full", 16, {full, layer({window_part(10, 3)})}},
      {"windows only",
       16,
       {layer({window_part(20, 0)}), layer({window_part(33, 5)}), layer({window_part(1, 0)})}},
      {"chunk + full", 16, {full, layer({chunk_part(24)})}},
      {"chunk only", 16, {layer({chunk_part(8)}), layer({chunk_part(40)})}},
      {"latent", 16, {latent, latent}},
      {"state at checkpoints + full", 16, {full, checkpoints}},
      {"state at block ends + full", 16, {full, block_ends}},
      {"states only", 16, {checkpoints, block_ends}},
      {"pooled", 16, {pooled, pooled}},
      {"pooled, overlap", 16, {layer({pooled_part(8, true)}), layer({pooled_part(16, false)})}},
      {"deepseek-v4",
       32,
       {layer({near}), layer({near, pooled_part(32, false)}), layer({near, sparse, sparse})}},
      {"all of it", 16, {mixed, full, layer({chunk_part(8), latent_part()}), layer({})}},
  };
  for (Shape& shape : all) {
    for (LayerSpec& own : shape.layers) {
      for (PartSpec& part : own.parts) part.heads *= part.v_dim > 0 ? scale : 1;
    }
  }
  return all;
}

struct Budgets {
  const char* name;
  uint64_t ram, ssd;
  uint32_t scale;  // of the entries
  bool ample() const { return scale == 1; }
};
constexpr Budgets kAmple{"ample", 64ull << 20, 256ull << 20, 1};
constexpr Budgets kSmall{"small", 2ull << 20, kMinLimitBytes, 24};

// One model in one namespace, as a client has it.
struct Tenant {
  std::string ns;
  Shape shape;
  ModelSpec model;
  std::shared_ptr<const Profile> profile;
  Oracle::Model known;
  OpenReply opened;
  std::shared_ptr<const Codec> codec;
  std::vector<Query> stored;
  std::vector<Query> spilled;  ///< those that a commit said were so, all that they need
};

class Walk {
 public:
  Walk(uint32_t seed, const Budgets& budgets) : rng_(seed), budgets_(budgets) {
    options_ = small_options(dir_.store());
    options_.ram_budget_bytes = budgets.ram;
    options_.ssd_limit_bytes = budgets.ssd;
    options_.room_wait = Milliseconds(20);
    if (below(2)) options_.spill_when = SpillWhen::evict;
    if (below(2)) options_.warm_start_bytes = budgets.ram / 4;
    options_.block_end_interval = below(3);
    options_.pack_codes = static_cast<PackCodes>(below(3));
    crashes_ = below(2);
    if (!budgets.ample() && below(2)) options_.write_bytes_per_day = 2 * budgets.ssd;
    options_.wall_clock = [this] { return wall_.load(); };
    auto all = shapes(budgets.scale);
    // Two models in two namespaces; the second namespace has the first one's fingerprint too.
    add_tenant("a", all[seed % all.size()], 1);
    add_tenant("b", all[seed % all.size()], 1);
    add_tenant("b", all[below(static_cast<uint32_t>(all.size()))], 2);
    start();
    if (!budgets.ample()) sampler_ = std::make_unique<Sampler>(dir_.store());
  }

  void run(int steps) {
    for (int step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      Tenant& t = tenants_[below(static_cast<uint32_t>(tenants_.size()))];
      SCOPED_TRACE(std::string(t.shape.name) + " in namespace " + t.ns);
      uint32_t action = below(100);
      if (action < 30) {
        store(t, sequence(t));
      } else if (action < 90) {
        fetch(t);
      } else if (action < 93) {
        action == 92 && below(2) && all_read() ? expire(t) : erase(t);
      } else if (action < 97 && !t.stored.empty()) {
        spill(t);
      } else {
        restart();
      }
      if (cache_) cache_->check_invariants();
    }
    check_leases();
    if (!::testing::Test::HasFailure()) check_gauges();
    if (sampler_) highest = sampler_->highest();
    EXPECT_LE(highest, options_.ssd_limit_bytes);
  }

  uint64_t fetches = 0, hits = 0, evicted = 0, stores_while_reading = 0;
  uint64_t crashes = 0, held_to_it = 0;  ///< fetches after a crash of what was spilled before it
  uint64_t ends_kept = 0, expired = 0;   ///< named ends that are restorable; calls of expire
  uint64_t highest = 0;                  ///< of the directory's sampled sizes, with small budgets

 private:
  struct Held {
    FetchReply reply;
    std::vector<uint64_t> hashes;
    size_t tenant;
  };

  uint32_t below(uint32_t n) { return static_cast<uint32_t>(rng_() % n); }

  void add_tenant(const std::string& ns, const Shape& shape, uint8_t fingerprint) {
    Tenant t;
    t.ns = ns;
    t.shape = shape;
    t.model = model_of(shape.layers, fingerprint);
    t.profile = make_profile(t.model, kWords[below(budgets_.ample() ? 3 : 2)], shape.block_tokens);
    t.known = {static_cast<uint32_t>(tenants_.size()), shape.block_tokens, part_groups(t.model)};
    tenants_.push_back(std::move(t));
  }

  void start() {
    crash_next_ = crashes_ && below(2);
    options_.drain_timeout = Milliseconds(crash_next_ ? 0 : 10'000);
    cache_ = open_cache(options_, "unused");
    ASSERT_TRUE(cache_);
    clients_.clear();
    for (Tenant& t : tenants_) {
      auto client = cache_->connect(t.ns);
      ASSERT_TRUE(client.ok());
      clients_.push_back(std::move(*client));
      OpenRequest request;
      request.model = t.model;
      request.profile = t.profile;
      auto opened = clients_.back()->open(request, soon());
      ASSERT_TRUE(opened.ok()) << opened.status().to_string();
      t.opened = *opened;
      auto codec = Codec::create(t.model, opened->profile);
      ASSERT_TRUE(codec.ok());
      t.codec = *codec;
    }
  }
  // Every other time without the catalog: some or all files are read in the background.
  void restart() {
    clients_.clear();
    cache_.reset();
    if (crash_next_) leave_as_a_crash_does();
    if (below(2))
      std::filesystem::remove(dir_.store() + "/catalog.db");
    else if (crashes_)
      std::filesystem::copy(catalog(), older_catalog(), kOverwrite);
    if (options_.write_bytes_per_day > 0) jump();
    options_.adopt_at_start = below(20);
    options_.reconcile_rate = below(2) && !crash_next_ ? 200 : 0;
    bool crashed = crash_next_;
    start();
    if (crashed && budgets_.ample()) expect_what_was_spilled();
  }
  void expect_what_was_spilled() {
    while (!all_read()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (Tenant& t : tenants_) {
      for (const Query& q : std::vector(t.spilled)) {
        FetchRequest request;
        request.query = q;
        grow(request.query, 1);
        fetch(t, request);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
  std::string catalog() const { return dir_.store() + "/catalog.db"; }
  std::string older_catalog() const { return dir_.store() + "-catalog"; }
  // Not all that waited was written, and of what was written the catalog may know nothing.
  void leave_as_a_crash_does() {
    ++crashes;
    crashed_ = true;
    if (below(2) && std::filesystem::exists(older_catalog())) {
      std::filesystem::copy(older_catalog(), catalog(), kOverwrite);
    }
    std::ofstream(dir_.store() + "/tmp/7.tmp") << "the first bytes of a file";
  }
  void jump() {
    auto some = [this] { return std::chrono::seconds(below(4 * 86'400)) - hours(48); };
    wall_ = wall_.load() + some();
    for (const auto& e : std::filesystem::recursive_directory_iterator(dir_.store())) {
      if (!e.is_regular_file() || below(2)) continue;
      timespec at{std::chrono::system_clock::to_time_t(wall_.load() + some()), 0},
          times[] = {at, at};
      ASSERT_EQ(::utimensat(AT_FDCWD, e.path().c_str(), times, 0), 0);
    }
  }
  uint64_t stat(const char* name) {
    auto stats = cache_->stats(soon());
    EXPECT_TRUE(stats.ok());
    for (const auto& [own, value] : stats->values) {
      if (own == name) return value;
    }
    return 0;
  }
  bool all_read() { return budgets_.ample() && stat("recovery_unread") == 0; }
  bool serves_all() { return !stored_early_ && !crashed_ && all_read(); }
  Client& client(const Tenant& t) { return *clients_[t.known.realm]; }

  static void cut(Query& q, size_t length) {
    q.tokens.resize(length);
    std::erase_if(q.extras, [&](const Extra& e) { return e.position >= length; });
  }
  // A stored sequence (of any tenant: equal tokens in other realms must not meet), or its prefix.
  Query base(const Tenant& t) {
    const Tenant& from = below(4) ? t : tenants_[below(static_cast<uint32_t>(tenants_.size()))];
    if (from.stored.empty() || below(8) == 0) return {};
    Query q = from.stored[below(static_cast<uint32_t>(from.stored.size()))];
    if (below(3) == 0) cut(q, 1 + below(static_cast<uint32_t>(q.tokens.size())));
    return q;
  }
  void grow(Query& q, uint32_t more) {
    bool media = below(4) == 0;
    for (; more > 0; --more) {
      auto at = static_cast<uint32_t>(q.tokens.size());
      q.tokens.push_back(static_cast<Token>(below(3)));
      if (media && below(8) == 0) q.extras.push_back({at, {static_cast<uint8_t>(below(2))}});
    }
  }
  Query sequence(const Tenant& t) {
    Query q = base(t);
    uint32_t room = 6 * t.shape.block_tokens;
    if (q.tokens.size() >= room) cut(q, 1 + below(room));
    grow(q, 1 + below(t.shape.block_tokens * 2));
    return q;
  }

  // The store of a growing conversation may say where a block's first rows lie already: in a tail.
  void copy_from_tail(const Tenant& t, const Query& query, const Need& need, PutRequest& put) {
    uint32_t first = need.first_row;
    std::vector<const Query*> tails;
    for (const Query& q : t.stored) {
      bool begins = q.tokens.size() > first && q.tokens.size() < need.end_row &&
                    std::equal(q.tokens.begin(), q.tokens.end(), query.tokens.begin());
      if (begins && q.extras.empty() && query.extras.empty()) tails.push_back(&q);
    }
    if (tails.empty()) return;
    const Query& tail = *tails[below(static_cast<uint32_t>(tails.size()))];
    uint32_t block = t.shape.block_tokens, end = static_cast<uint32_t>(tail.tokens.size());
    Id parent;
    std::span<const Token> tokens(tail.tokens);
    for (uint32_t i = 0; i < first / block; ++i) {
      parent =
          block_id(t.opened.realm, parent, tokens.subspan(i * block, block), {}, ObjectKind::block);
    }
    ObjectName name{ObjectKind::tail, {}, 0, 0, 0};
    name.id = block_id(t.opened.realm, parent, tokens.subspan(first), {}, ObjectKind::tail);
    put.copies.push_back({name, first, end});
    std::vector<Plane> planes;
    for (const Plane& p : put.object.planes) {
      const PartSpec& spec = t.model.layers[p.layer].parts[p.part];
      uint32_t from = end / (spec.kind == PartKind::pooled ? spec.rate : 1);
      if (p.end_row() > from) planes.push_back(*slice_rows(p, from, p.end_row()));
    }
    put.object.planes = std::move(planes);
  }

  bool refused(const Status& status) const {
    return !budgets_.ample() &&
           (status.code() == StatusCode::busy || status.code() == StatusCode::resource_exhausted);
  }

  void store(Tenant& t, const Query& query) {
    SCOPED_TRACE("store of " + std::to_string(query.tokens.size()));
    bool early = stat("recovery_unread") > 0;
    auto hashes = query_hashes(query);
    ReserveRequest request{t.opened.model, t.opened.realm.profile, query, some_ends(query)};
    auto reserved = client(t).reserve(request, soon());
    ASSERT_TRUE(reserved.ok() || refused(reserved.status())) << reserved.status().to_string();
    if (!reserved.ok()) return;
    bool welcome = below(3) > 0, copies = below(2) == 0;
    std::vector<Need> put;
    for (const Need& need : reserved->needs) {
      if (!need.required && !welcome) continue;
      PutRequest p = make_put(t.model, t.shape.block_tokens, query.tokens, hashes, need,
                              reserved->reservation);
      PutRequest whole = p;
      bool main = need.kind == ObjectKind::block || need.kind == ObjectKind::tail;
      if (main && copies) copy_from_tail(t, query, need, p);
      Status s = client(t).put(p, soon());
      bool gone = s.code() == StatusCode::not_found && !p.copies.empty();  // its source was erased
      if (gone) s = client(t).put(whole, soon());
      ASSERT_TRUE(s.ok() || refused(s)) << s.to_string();
      if (!s.ok()) {
        ASSERT_TRUE(client(t).abort(reserved->reservation, soon()).ok());
        return;
      }
      put.push_back(need);
    }
    auto level = below(8) ? Durability::accepted : static_cast<Durability>(2 + below(2));
    auto reply = client(t).commit(reserved->reservation, level, soon());
    ASSERT_TRUE(reply.ok()) << reply.status().to_string();
    if (budgets_.ample()) {
      ASSERT_TRUE(reply->lost.empty());
      ASSERT_GE(reply->level, level);
    }
    // Evictions move the branch: then the rows before any block end may have been copied.
    uint32_t interval = budgets_.ample() ? options_.block_end_interval : 1;
    uint32_t branch = oracle_.branch(t.known, hashes);
    for (const Need& need : put) oracle_.add(t.known, hashes, need);
    oracle_.copy_rows(t.known, hashes, interval, branch, request.ends);
    check_ends(t, hashes, request.ends, reply->ends);
    t.stored.push_back(query);
    if (welcome || !crashed_) note_spilled(t, query, reply->level);
    if (early) ++stores_while_reading;
    // Window rows that the oracle took over from a tail may have been in an unread file.
    stored_early_ |= early;
  }

  // From now on this length is served after a crash too.
  void note_spilled(Tenant& t, const Query& query, Durability level) {
    if (level >= Durability::spilled && is_whole(t, query)) t.spilled.push_back(query);
  }
  bool is_whole(const Tenant& t, const Query& query) const {
    return oracle_.serves(t.known, query_hashes(query), static_cast<uint32_t>(query.tokens.size()));
  }

  // What is stored already, now to the SSD.
  void spill(Tenant& t) {
    const Query& query = t.stored[below(static_cast<uint32_t>(t.stored.size()))];
    ReserveRequest request{t.opened.model, t.opened.realm.profile, query};
    auto reserved = client(t).reserve(request, soon());
    ASSERT_TRUE(reserved.ok() || refused(reserved.status()));
    if (!reserved.ok()) return;
    bool there = reserved->needs.empty();
    auto reply = client(t).commit(reserved->reservation, Durability::durable, soon());
    if (!reply.ok()) (void)client(t).abort(reserved->reservation, soon());
    if (!there)
      return;  // a part of it was erased or evicted: an error, or stored as far as it went
    ASSERT_TRUE(reply.ok()) << reply.status().to_string();
    if (budgets_.ample()) {
      ASSERT_EQ(reply->level, Durability::durable);
    }
    if (!crashed_) note_spilled(t, query, reply->level);
  }

  std::vector<uint32_t> some_ends(const Query& query) {
    std::set<uint32_t> ends;
    for (uint32_t i = below(4); i > 0; --i) {
      ends.insert(1 + below(static_cast<uint32_t>(query.tokens.size())));
    }
    return {ends.begin(), ends.end()};
  }

  // Never more than the oracle's, and no less where nothing may be missing.
  void check_ends(const Tenant& t, const std::vector<uint64_t>& hashes,
                  const std::vector<uint32_t>& named, const std::vector<NamedEnd>& told) {
    ASSERT_EQ(told.size(), named.size());
    for (size_t i = 0; i < told.size(); ++i) {
      ASSERT_EQ(told[i].tokens, named[i]);
      const bool there = oracle_.serves(t.known, hashes, named[i]);
      ASSERT_TRUE(there || !told[i].restorable) << named[i];
      if (!budgets_.ample() || !serves_all()) continue;
      ASSERT_EQ(told[i].restorable, there) << named[i] << ": " << told[i].reason;
      ends_kept += there;
    }
  }

  // The objects that an erase of the query would take go by their time.
  void expire(Tenant& t) {
    const Query query = base(t);
    const uint64_t before = stat("expired_objects");
    auto reply =
        client(t).expire({t.opened.model, query, {}, true, std::chrono::seconds(1)}, soon());
    ASSERT_TRUE(reply.ok()) << reply.status().to_string();
    wall_ = wall_.load() + std::chrono::seconds(2);
    while (stat("expired_objects") < before + reply->objects) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ++expired;
    Query nothing{{-77}, {}};  // its erase comes behind that of the rest
    ASSERT_TRUE(client(t).erase(t.opened.model, nothing, soon()).ok());
    oracle_.erase(t.known, query_hashes(query));
    std::erase_if(t.spilled, [&](const Query& own) { return crashed_ || !is_whole(t, own); });
  }

  void erase(Tenant& t) {
    Query query = base(t);
    if (query.tokens.empty() && below(4)) return;
    auto reply = client(t).erase(t.opened.model, query, soon());
    ASSERT_TRUE(reply.ok()) << reply.status().to_string();
    oracle_.erase(t.known, query_hashes(query));
    // After a crash the oracle doesn't know what else may rest on what was erased.
    std::erase_if(t.spilled, [&](const Query& own) { return crashed_ || !is_whole(t, own); });
  }

  // The longest of what was called spilled that this query begins with, and may be served.
  uint32_t spilled_for(const Tenant& t, const std::vector<uint64_t>& hashes, uint32_t most) const {
    uint32_t longest = 0;
    for (const Query& own : t.spilled) {
      auto n = static_cast<uint32_t>(own.tokens.size());
      if (n <= most && query_hashes(own).back() == hashes[n - 1]) longest = std::max(longest, n);
    }
    return longest;
  }

  void fetch(Tenant& t) {
    FetchRequest request;
    request.query = base(t);
    if (request.query.tokens.empty() || below(3)) grow(request.query, 1 + below(20));
    if (below(16) == 0 && !request.query.extras.empty()) request.query.extras[0].bytes[0] ^= 4;
    auto length = static_cast<uint32_t>(request.query.tokens.size());
    if (below(2)) request.max_tokens = below(length + 1);
    request.round_to_block = below(5) == 0;
    if (below(4) == 0) request.form = static_cast<FetchForm>(below(4));
    fetch(t, request);
  }
  void fetch(Tenant& t, FetchRequest request) {
    request.model = t.opened.model;
    auto length = static_cast<uint32_t>(request.query.tokens.size());
    auto hashes = query_hashes(request.query);
    uint32_t step = request.round_to_block ? t.shape.block_tokens : 1;
    uint32_t truth =
        oracle_.restorable(t.known, hashes, std::min(length - 1, request.max_tokens), step);
    SCOPED_TRACE("query of " + std::to_string(length) + ", at most " +
                 std::to_string(request.max_tokens) + (step > 1 ? ", whole blocks" : ""));
    bool all = serves_all(), spilled = all_read() && step == 1;
    auto reply = client(t).fetch(request, soon());
    ASSERT_TRUE(reply.ok()) << "without room it is shorter or a miss: "
                            << reply.status().to_string();
    ASSERT_LE(reply->tokens, truth) << "served what was never stored for it";
    if (all) {
      ASSERT_EQ(reply->tokens, truth) << reply->reason;
    }
    uint32_t least = spilled ? spilled_for(t, hashes, std::min(length - 1, request.max_tokens)) : 0;
    ASSERT_GE(reply->tokens, least) << "what was called spilled is gone: " << reply->reason;
    held_to_it += crashed_ && least > 0;
    ReplyCheck(t.model, *t.codec, hashes).expect(*reply, request.form);
    ++fetches;
    hits += reply->tokens > 0;
    bool keep = request.form == FetchForm::stored && held_.size() < (budgets_.ample() ? 40 : 3);
    if (keep && below(4) == 0) held_.push_back({std::move(*reply), hashes, t.known.realm});
  }

  // Aliasing: what a lease points to is as it was when it was given.
  void check_leases() {
    for (const Held& h : held_) {
      if (::testing::Test::HasFailure()) return;
      SCOPED_TRACE("a lease read again");
      const Tenant& t = tenants_[h.tenant];
      ReplyCheck(t.model, *t.codec, h.hashes).expect(h.reply, FetchForm::stored);
    }
    held_.clear();
  }

  void check_gauges() {
    bool drained = cache_->drain(soon()).ok();
    ASSERT_TRUE(drained || options_.write_bytes_per_day > 0);
    std::map<std::string, uint64_t> value;
    for (int i = 0; i == 0 || (i < 1000 && value["pins"] > 0); ++i) {
      if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));  // a warm start reads
      auto stats = cache_->stats(soon());
      ASSERT_TRUE(stats.ok());
      value = {stats->values.begin(), stats->values.end()};
    }
    EXPECT_LE(value["ram_peak_bytes"], options_.ram_budget_bytes);
    EXPECT_LE(value["ssd_used_bytes"], options_.ssd_limit_bytes);
    EXPECT_EQ(value["pins"], 0u);
    EXPECT_EQ(value["reservations"], 0u);
    EXPECT_TRUE(!drained || value["spill_queue_bytes"] == 0) << value["spill_queue_bytes"];
    EXPECT_EQ(value["ram_staging_bytes"], 0u);
    EXPECT_EQ(value["quarantined"], 0u);
    EXPECT_EQ(value["promotion_failures"], 0u);
    EXPECT_EQ(value["ssd_used_bytes"], allocated_bytes(dir_.store()));
    evicted += value["ram_evicted_clean"] + value["ram_evicted_dirty"] + value["ssd_evicted"];
  }

  std::mt19937 rng_;
  const Budgets& budgets_;
  TempDir dir_;
  CacheOptions options_;
  std::vector<Tenant> tenants_;
  std::unique_ptr<TieredCache> cache_;
  std::unique_ptr<Sampler> sampler_;
  std::vector<std::unique_ptr<Client>> clients_;
  Oracle oracle_;
  std::vector<Held> held_;
  bool stored_early_ = false;  ///< something was stored while files were unread
  bool crashes_ = false, crash_next_ = false;
  bool crashed_ = false;  ///< the oracle may know more than is left
  std::atomic<std::chrono::system_clock::time_point> wall_{
      std::chrono::system_clock::time_point(hours(500'000))};
};

// KV_SEEDS=7 or KV_SEEDS=7-900 walks others.
void walk_all(const Budgets& budgets, uint32_t first, uint32_t last, int steps) {
  const uint32_t usual = last - first;
  if (const char* seeds = std::getenv("KV_SEEDS")) {
    int read = std::sscanf(seeds, "%u-%u", &first, &last);
    if (read == 1) last = first;
    ASSERT_TRUE(read > 0 && first <= last) << "KV_SEEDS: " << seeds;
  }
  uint64_t fetches = 0, hits = 0, evicted = 0, stores_while_reading = 0, highest = 0;
  uint64_t crashes = 0, held_to_it = 0;
  for (uint32_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + budgets.name + " budgets");
    Walk walk(seed, budgets);
    walk.run(steps);
    fetches += walk.fetches;
    hits += walk.hits;
    evicted += walk.evicted;
    stores_while_reading += walk.stores_while_reading;
    crashes += walk.crashes;
    held_to_it += walk.held_to_it;
    highest = std::max(highest, walk.highest);
    if (::testing::Test::HasFailure()) {
      std::cout << "seed " << seed << " failed\n";
      return;
    }
  }
  std::cout << "seeds " << first << "-" << last << ", " << budgets.name << " budgets: " << fetches
            << " fetches, " << hits << " hits, " << evicted << " evictions, "
            << stores_while_reading << " stores beside unread files, " << crashes << " crashes, "
            << held_to_it << " fetches of what was spilled before one, at most " << highest
            << " bytes sampled in a store\n";
  if (last - first < usual) return;  // too few to expect what chance brings
  EXPECT_GT(hits, fetches / 4);
  EXPECT_EQ(evicted == 0, budgets.ample());
  EXPECT_EQ(highest > budgets.ssd / 2, !budgets.ample()) << "too little pressed against the limit";
  EXPECT_GT(stores_while_reading, 0u);
  EXPECT_GT(crashes, (last - first) / 2);
  EXPECT_EQ(held_to_it > 0, budgets.ample());
}

TEST(Property, EveryRestorableLengthIsServedWithItsOwnBytes) { walk_all(kAmple, 1, 26, 150); }

TEST(Property, UnderPressureWhatIsServedIsStillRight) { walk_all(kSmall, 1, 26, 150); }

}  // namespace
}  // namespace kv
