// Random holding, late reading, releasing and dying clients over a RAM tier that is too small: no
// byte changes under a valid lease, and in the end all memory is back.
#include <algorithm>

#include "tests/support/mapped_testing.h"

namespace kv {
namespace {

// Clients of a namespace, and what they hold of what.
class MappedPropertyTest : public MappedTest {
 protected:
  static constexpr size_t kClients = 3;
  struct Held {
    size_t entry = 0;
    FetchReply reply;
  };
  struct Tenant {
    std::string ns;
    std::unique_ptr<SocketClient> client;
    std::unique_ptr<Bench> bench;
    std::vector<Held> held;
  };

  void enter(Tenant& t, const std::string& ns) {
    t.ns = ns;
    t.held.clear();
    t.bench.reset();
    t.client = connect(ns);
    t.bench = std::make_unique<Bench>(Bench::open(*t.client, wide_model()));
  }
  void begin_all() {
    start({}, {"handshake_timeout=200"});
    enter(tenants_[0], "one");
    enter(tenants_[1], "one");
    enter(tenants_[2], "two");
  }
  Tenant& any() { return tenants_[rng_() % kClients]; }

  void store() {
    auto tokens = random_tokens(rng_, 16 + rng_() % 400);
    if (!entries_.empty() && rng_() % 3 == 0) {  // goes on from another
      const auto& from = entries_[rng_() % entries_.size()];
      tokens.insert(tokens.begin(), from.begin(),
                    from.begin() + static_cast<long>(from.size() / 2));
    }
    auto stored = any().bench->store(tokens);
    const bool may = stored.ok() || stored.status().code() == StatusCode::busy;
    ASSERT_TRUE(may) << stored.status().to_string();
    entries_.push_back(std::move(tokens));
  }
  void hold() {
    Tenant& t = any();
    if (entries_.empty()) return;
    const size_t entry = entries_.size() - 1 - rng_() % std::min<size_t>(entries_.size(), 12);
    const auto form = rng_() % 4 == 0 ? FetchForm::f16 : FetchForm::stored;
    auto reply = t.bench->fetch(plus_one(entries_[entry]), form);
    ASSERT_TRUE(reply.ok()) << reply.status().to_string();
    t.held.push_back({entry, std::move(*reply)});
    if (t.held.size() > 40) release(t);
  }
  static void release(Tenant& t) {
    if (!t.held.empty()) t.held.erase(t.held.begin());
  }
  void read_late(Tenant& t) {
    if (t.held.empty()) return;
    const Held& h = t.held[rng_() % t.held.size()];
    std::vector<Plane> planes;  // copies: they may be taken back while they are read
    const Prefix& prefix = h.reply.lease.prefix();
    if (prefix.objects.empty()) return;
    const FetchedObject& o = prefix.objects[rng_() % prefix.objects.size()];
    for (const Plane& p : o.object->planes) {
      planes.push_back(p);
      planes.back().bytes = Bytes::copy_of(p.bytes.span());
    }
    ++reads_;
    if (!h.reply.lease.valid()) {
      ++late_;
      return;
    }
    const auto hashes = prefix_hashes(plus_one(entries_[h.entry]));
    for (const Plane& p : planes) expect_rows(*t.bench, p, o.end_token, hashes);
  }
  static void expect_rows(const Bench& bench, const Plane& p, uint32_t end,
                          const std::vector<uint64_t>& hashes) {
    const auto sides = sides_of(bench.model.layers[p.layer].parts[p.part]);
    const auto side = std::find_if(sides.begin(), sides.end(),
                                   [&](const SideSpec& each) { return each.side == p.side; });
    const uint32_t last = std::min(end, p.end_row());
    if (last <= p.first_row) return;
    const Plane expected =
        exact_rows(bench.model, hashes, p.layer, p.part, *side, p.first_row, last);
    const auto got = p.bytes.span().first(expected.bytes.size());
    ASSERT_TRUE(std::equal(got.begin(), got.end(), expected.bytes.span().begin()))
        << "another's bytes under a valid lease";
  }
  void erase() {
    Tenant& t = any();
    if (entries_.empty()) return;
    QueryRequest request{t.bench->opened.model, {entries_[rng_() % entries_.size()], {}}, {}};
    auto erased = t.client->erase_entry(request, soon());
    ASSERT_TRUE(erased.ok()) << erased.status().to_string();
  }
  void step() {
    const uint32_t kind = static_cast<uint32_t>(rng_() % 100);
    if (kind < 25) return store();
    if (kind < 60) return hold();
    if (kind < 85) return read_late(any());
    if (kind < 93) return release(any());
    if (kind < 98) return erase();
    Tenant& t = any();
    enter(t, t.ns);
  }

  std::array<Tenant, kClients> tenants_;
  std::vector<std::vector<Token>> entries_;
  size_t reads_ = 0, late_ = 0;
};

TEST_F(MappedPropertyTest, NoByteChangesUnderAValidLease) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  rng_.seed(seed);
  begin_all();
  for (int i = 0; i < 600; ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    ASSERT_NO_FATAL_FAILURE(step());
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(reads_, 30u);
  for (Tenant& t : tenants_) {
    t.held.clear();
    ASSERT_TRUE(t.client->erase(0, {}, soon()).ok());
  }
  tenants_ = {};
  wait_for("pins", 0);
  wait_for("ram_stored_bytes", 0);
  const Deadline deadline = soon();  // more than an eighth of the budget goes back with a sweep
  while (stat("ram_recycled_bytes") > 8u << 20) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
}

}  // namespace
}  // namespace kv
