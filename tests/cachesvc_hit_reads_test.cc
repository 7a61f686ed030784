// HitReads by itself: windows, what others bring, missing room; and MadeReplies by itself.
#include "cachesvc/core/hit_reads.h"
#include "cachesvc/core/made_replies.h"
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

constexpr uint32_t kBlocks = 4;

// A hit of four blocks that lie on the SSD.
class HitReadsUnit : public ::testing::Test {
 protected:
  HitReadsUnit()
      : core_(small_options(dir_.store())),
        reads_(*core_.env, core_.index, core_.room, core_.promoter) {
    RealmState& realm = core_.open_model();
    Record* parent = nullptr;
    for (uint32_t i = 0; i < kBlocks; ++i) {
      Record& block = core_.give_block(realm, parent);
      core_.spiller.ask(block);
      core_.spiller.pump();
      core_.run();
      hit_.uses.push_back({&block, realm.tree.end_token(block.node)});
      parent = &block;
    }
    for (const Hit::Use& use : hit_.uses) core_.recency.leave_ram(*use.record);
  }
  // A fetch whose window takes `blocks` of them at a time.
  RunningFetchPtr fetch(uint32_t blocks, bool wait = true) {
    auto f = std::make_shared<RunningFetch>();
    f->realm = core_.model->realm;
    f->request.wait = wait;
    f->deadline = soon();
    f->window_bytes = blocks * Promoter::room_for(*hit_.uses[0].record).promotion;
    return f;
  }
  FetchCost cost() const {
    FetchCost out;
    for (const Hit::Use& use : hit_.uses) {
      out.missing += Promoter::room_for(*use.record).stored;
      out.reading += Promoter::room_for(*use.record).promotion;
    }
    return out;
  }
  void read(const RunningFetchPtr& f, const FetchCost& cost) {
    std::vector<Record*> used;
    for (const Hit::Use& use : hit_.uses) used.push_back(use.record);
    reads_.read(f, hit_, cost, Pins(*core_.env, core_.index, used), [this] { ++ended_; });
  }
  size_t in_ram() const {
    return static_cast<size_t>(
        std::count_if(hit_.uses.begin(), hit_.uses.end(),
                      [](const Hit::Use& use) { return static_cast<bool>(use.record->ram); }));
  }

  TempDir dir_;
  CoreOwners core_;
  HitReads reads_;
  Hit hit_;
  int ended_ = 0;
};

TEST_F(HitReadsUnit, BringsAllThatIsMissingAWindowAtATime) {
  const uint64_t pins = core_.index.tiers().pins();
  read(fetch(1), cost());
  core_.run();
  EXPECT_EQ(in_ram(), kBlocks);
  EXPECT_EQ(ended_, 1);
  EXPECT_EQ(core_.env->count.promotions, kBlocks);
  EXPECT_EQ(core_.index.tiers().pins(), pins) << "nothing is pinned any more";
}

TEST_F(HitReadsUnit, ReadsNothingTwiceForACallThatAsksAgain) {
  core_.hangs = true;
  const RunningFetchPtr first = fetch(kBlocks, false);
  read(first, cost());
  core_.run();
  const uint64_t free = core_.env->pool->free_bytes();
  const RunningFetchPtr again = fetch(kBlocks, false), waits = fetch(kBlocks);
  EXPECT_TRUE(reads_.coming(*again, *hit_.uses[0].record));
  EXPECT_FALSE(reads_.coming(*waits, *hit_.uses[0].record)) << "it is told when they have come";
  read(again, FetchCost());
  core_.run();
  EXPECT_EQ(core_.env->pool->free_bytes(), free);
  core_.hangs = false;
  core_.run();
  EXPECT_EQ(ended_, 1);
  EXPECT_EQ(in_ram(), kBlocks);
  EXPECT_FALSE(reads_.coming(*again, *hit_.uses[0].record));
}

TEST_F(HitReadsUnit, WithoutRoomTheFetchAimsLowerAndNothingStaysPinned) {
  const uint64_t pins = core_.index.tiers().pins();
  const RunningFetchPtr f = fetch(1);
  f->deadline = deadline_in(Milliseconds(0));
  FetchCost more = cost();
  more.missing = core_.env->pool->free_bytes() + 1;
  read(f, more);
  core_.run_for(Milliseconds(20));
  EXPECT_EQ(ended_, 1);
  EXPECT_EQ(f->patience, RunningFetch::Patience::now);
  EXPECT_FALSE(f->limit_reason.empty());
  EXPECT_EQ(in_ram(), 0u);
  EXPECT_FALSE(reads_.coming(*fetch(1, false), *hit_.uses[0].record));
  EXPECT_EQ(core_.index.tiers().pins(), pins);
}

TEST_F(HitReadsUnit, AnObjectErasedMeanwhileIsLeftOut) {
  core_.hangs = true;
  read(fetch(1), cost());
  core_.run();
  core_.records.lost(*hit_.uses[kBlocks - 1].record, true, {Missing::evicted_ssd});
  hit_.uses.pop_back();
  core_.hangs = false;
  core_.run();
  EXPECT_EQ(ended_, 1);
  EXPECT_EQ(in_ram(), kBlocks - 1);
}

// A reply of these blocks in the wanted form, once they are in RAM.
class MadeRepliesUnit : public HitReadsUnit {
 protected:
  MadeRepliesUnit() : replies_(*core_.env, core_.room) {
    read(fetch(kBlocks), cost());
    core_.run();
  }
  RunningFetchPtr wanting(FetchForm form) {
    RunningFetchPtr f = fetch(kBlocks);
    f->request.form = form;
    f->call = core_.calls.begin<Result<FetchReply>>(core_.connect(), soon(),
                                                    [this](auto reply) { failed_ = !reply.ok(); });
    return f;
  }
  FetchReply leased() {
    Prefix prefix;
    for (const Hit::Use& use : hit_.uses) {
      prefix.objects.push_back({use.record->ram.object, use.end_token});
    }
    FetchReply reply;
    reply.lease = Lease(std::move(prefix), nullptr);
    return reply;
  }
  void make(const RunningFetchPtr& f) {
    replies_.make(f, leased(),
                  {[this](FetchReply reply) { made_ = std::move(reply); }, [this] { ++again_; }});
  }

  MadeReplies replies_;
  std::optional<FetchReply> made_;
  int again_ = 0;
  bool failed_ = false;
};

TEST_F(MadeRepliesUnit, EveryObjectIsMadeAsTheFetchWantsIt) {
  make(wanting(FetchForm::f32));
  core_.run();
  ASSERT_TRUE(made_);
  ASSERT_EQ(made_->lease.prefix().objects.size(), kBlocks);
  for (const FetchedObject& each : made_->lease.prefix().objects) {
    for (const Plane& plane : each.object->planes) EXPECT_EQ(plane.dtype, DType::f32);
  }
  EXPECT_GT(core_.env->pool->used_bytes(ChargeKind::reply), 0u);
  made_.reset();
  core_.run();
  EXPECT_EQ(core_.env->pool->used_bytes(ChargeKind::reply), 0u) << "it goes with its lease";
}

TEST_F(MadeRepliesUnit, WithoutRoomTheFetchAimsLower) {
  const uint64_t free = core_.env->pool->free_bytes();
  auto taken = core_.env->pool->try_charge(ChargeKind::model, free);
  ASSERT_TRUE(taken);
  for (const Hit::Use& use : hit_.uses) core_.index.tiers().pin(*use.record);
  const RunningFetchPtr f = wanting(FetchForm::f32);
  f->deadline = deadline_in(Milliseconds(0));
  make(f);
  core_.run_for(Milliseconds(20));
  EXPECT_EQ(again_, 1);
  EXPECT_FALSE(made_);
  EXPECT_EQ(f->patience, RunningFetch::Patience::now);
  for (const Hit::Use& use : hit_.uses) core_.index.tiers().unpin(*use.record);
}

// Objects that it pins may be what another one waits for.
TEST_F(MadeRepliesUnit, AReplyThatWaitsForRoomPinsNothingAndPlansAgain) {
  std::vector<Record*> used;
  for (const Hit::Use& use : hit_.uses) used.push_back(use.record);
  Pins own(*core_.env, core_.index, used);  // of another one: nothing can be evicted
  auto taken = core_.env->pool->try_charge(ChargeKind::model, core_.env->pool->free_bytes());
  ASSERT_TRUE(taken);
  const uint64_t before = core_.index.tiers().pins();
  const RunningFetchPtr f = wanting(FetchForm::f32);
  FetchReply reply = leased();
  reply.lease = Lease(reply.lease.prefix(), keep(*core_.env, Pins(*core_.env, core_.index, used)));
  EXPECT_GT(core_.index.tiers().pins(), before);
  replies_.make(f, std::move(reply),
                {[this](FetchReply r) { made_ = std::move(r); }, [this] { ++again_; }});
  core_.run();
  EXPECT_EQ(again_, 0);
  EXPECT_EQ(core_.index.tiers().pins(), before);
  taken->release();
  core_.run();
  ASSERT_EQ(again_, 1);
  EXPECT_GT(f->reply_room_bytes(), 0u);
  EXPECT_EQ(f->patience, RunningFetch::Patience::wait);
  auto rest = core_.env->pool->try_charge(ChargeKind::model, core_.env->pool->free_bytes());
  make(f);
  core_.run();
  EXPECT_TRUE(made_) << "it has its room";
  EXPECT_EQ(f->reply_room_bytes(), 0u);
}

TEST_F(MadeRepliesUnit, ACallThatHasEndedIsNotAnswered) {
  const RunningFetchPtr f = wanting(FetchForm::f32);
  core_.workers_hang = true;
  make(f);
  core_.run();
  f->call->fail({StatusCode::cancelled, "by the test"});
  core_.workers_hang = false;
  core_.run();
  EXPECT_TRUE(failed_);
  EXPECT_FALSE(made_);
}

}  // namespace
}  // namespace kv
