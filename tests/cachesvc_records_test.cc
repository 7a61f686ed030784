// Records: each legal arrow is taken, each other one ends the process; lists follow.
#include <set>

#include "cachesvc/core/records.h"
#include "tests/support/cachesvc_testing.h"

namespace kv {
namespace {

// The arrows of records.h.
bool is_arrow(Disk from, Disk to) {
  using enum Disk;
  static const std::set<std::pair<Disk, Disk>> arrows = {
      {absent, waiting},   {absent, queued},    {absent, known},       {refused, waiting},
      {refused, queued},   {refused, known},    {waiting, absent},     {waiting, queued},
      {waiting, known},    {queued, writing},   {queued, known},       {writing, renamed},
      {writing, durable},  {writing, failed},   {writing, known},      {failed, waiting},
      {failed, queued},    {failed, known},     {known, absent},       {known, renamed},
      {known, durable},    {known, unreadable}, {renamed, absent},     {renamed, refused},
      {renamed, durable},  {renamed, known},    {renamed, unreadable}, {durable, absent},
      {durable, refused},  {durable, known},    {durable, unreadable}, {unreadable, absent},
      {unreadable, known},
  };
  return arrows.contains({from, to});
}

constexpr Disk kAll[] = {Disk::absent,  Disk::refused,   Disk::waiting, Disk::queued,
                         Disk::writing, Disk::failed,    Disk::known,   Disk::renamed,
                         Disk::durable, Disk::unreadable};

class RecordsTest : public ::testing::Test {
 protected:
  RecordsTest() {
    auto spec = std::make_shared<const ModelSpec>(plain_model());
    auto profile = make_profile(*spec, 0);
    realm_ = index_.realm({"test", spec->fingerprint, profile->id()}, spec, profile).get();
  }
  ~RecordsTest() override { records_.check_invariants(); }

  Object object() {
    Object o;
    o.tokens = random_tokens(rng_, 16);
    o.name.kind = ObjectKind::block;
    stamp(o, realm_->realm);
    return o;
  }
  static RamObject in_ram(const Object& o) { return {std::make_shared<const Object>(o), {}}; }
  Record& fresh(const Object& o) { return *index_.add(*realm_, o, Charge()); }
  Record& given() {
    Object o = object();
    Record& r = fresh(o);
    records_.given(r, in_ram(o));
    r.payload_bytes = 100;
    return r;
  }
  Record& found() {
    Record& r = fresh(object());
    records_.found(r, 100, 4000, 4096, 1);
    return r;
  }
  Record& written(Durability reached = Durability::spilled) {
    Record& r = given();
    records_.enqueue(r);
    records_.begin_write(r);
    records_.written(r, reached, 4096);
    return r;
  }
  Record& in(Disk state) {
    Record* r = nullptr;
    switch (state) {
      case Disk::absent:
        return given();
      case Disk::refused:
        records_.lost(*(r = &written()), true);
        return *r;
      case Disk::waiting:
        records_.wait(*(r = &given()));
        return *r;
      case Disk::queued:
        records_.enqueue(*(r = &given()));
        return *r;
      case Disk::writing:
        records_.begin_write(*(r = &in(Disk::queued)));
        return *r;
      case Disk::failed:
        records_.fail_write(*(r = &in(Disk::writing)));
        return *r;
      case Disk::known:
        return found();
      case Disk::renamed:
        return written();
      case Disk::durable:
        return written(Durability::durable);
      case Disk::unreadable:
        records_.unreadable(*(r = &found()), Records::Clock::now());
        return *r;
    }
    return *r;
  }
  // The arrow to `to`, by the call that is for it.
  void take_arrow(Record& r, Disk to) {
    switch (to) {
      case Disk::absent:
        if (r.disk == Disk::waiting) return records_.forget_wait(r);
        return r.ram ? records_.lost(r) : records_.given(r, in_ram(object()));
      case Disk::refused:
        return records_.lost(r, true);
      case Disk::waiting:
        return records_.wait(r);
      case Disk::queued:
        return records_.enqueue(r);
      case Disk::writing:
        return records_.begin_write(r);
      case Disk::failed:
        return records_.fail_write(r);
      case Disk::known:
        if (!r.on_ssd()) records_.old_file(r, 4096);
        if (r.ram) records_.leave_ram(r);
        return records_.doubt(r);
      case Disk::renamed:
        return r.disk == Disk::known ? records_.read(r, {})
                                     : records_.written(r, Durability::spilled, 4096);
      case Disk::durable:
        if (r.disk == Disk::writing) return records_.written(r, Durability::durable, 4096);
        records_.begin_sync();
        EXPECT_TRUE(records_.synced(records_.syncs(), 10));
        return records_.read(r, {});
      case Disk::unreadable:
        if (r.ram) records_.leave_ram(r);
        return records_.unreadable(r, Records::Clock::now());
    }
  }

  std::mt19937 rng_{11};
  ObjectIndex index_;
  Records records_{index_};
  RealmState* realm_;
};

using RecordsDeathTest = RecordsTest;

TEST_F(RecordsTest, EachStateIsReachedAndListed) {
  for (Disk state : kAll) {
    Record& r = in(state);
    EXPECT_EQ(r.disk, state);
    EXPECT_EQ(records_.lists().count(state), 1u);
    EXPECT_EQ(records_.first(state), &r);
    records_.check_invariants();
    records_.remove(r);
    EXPECT_EQ(records_.lists().count(state), 0u);
    records_.check_invariants();
  }
}

TEST_F(RecordsTest, EachArrowIsTakenAndThereIsNoOther) {
  for (Disk from : kAll) {
    for (Disk to : kAll) {
      SCOPED_TRACE(std::to_string(static_cast<int>(from)) + " to " +
                   std::to_string(static_cast<int>(to)));
      EXPECT_EQ(Records::may_move(from, to), is_arrow(from, to));
      if (!is_arrow(from, to)) continue;
      Record& r = in(from);
      take_arrow(r, to);
      EXPECT_EQ(r.disk, to);
      EXPECT_EQ(records_.first(to), &r);
      records_.check_invariants();
      records_.remove(r);
    }
  }
}

TEST_F(RecordsDeathTest, AWishThatIsNoArrowEndsTheProcess) {
  struct Wish {
    Disk to;
    void (*make)(Records&, Record&);
  };
  const Wish wishes[] = {
      {Disk::waiting, [](Records& all, Record& r) { all.wait(r); }},
      {Disk::queued, [](Records& all, Record& r) { all.enqueue(r); }},
      {Disk::writing, [](Records& all, Record& r) { all.begin_write(r); }},
      {Disk::failed, [](Records& all, Record& r) { all.fail_write(r); }},
      {Disk::known, [](Records& all, Record& r) { all.doubt(r); }},
  };
  for (Disk from : kAll) {
    for (const Wish& wish : wishes) {
      if (from == wish.to) continue;
      Record& r = in(from);
      if (is_arrow(from, wish.to)) {
        if (wish.to != Disk::known) {
          wish.make(records_, r);
          EXPECT_EQ(r.disk, wish.to);
        }
      } else {
        EXPECT_DEATH(wish.make(records_, r), "")
            << static_cast<int>(from) << " to " << static_cast<int>(wish.to);
      }
      records_.remove(r);
    }
  }
}

TEST_F(RecordsTest, QueueBytesAreThoseQueuedAndWritten) {
  Record &a = in(Disk::queued), &b = in(Disk::writing), &c = in(Disk::waiting);
  EXPECT_EQ(records_.lists().queue_bytes(), 200u);
  records_.enqueue(c);
  EXPECT_EQ(records_.lists().queue_bytes(), 300u);
  records_.fail_write(b);
  records_.remove(a);
  EXPECT_EQ(records_.lists().queue_bytes(), 100u);
  EXPECT_TRUE(records_.leave_ram(c)) << "no file of it is there";
  EXPECT_EQ(records_.lists().queue_bytes(), 0u);
}

TEST_F(RecordsTest, WhatLeavesRamWithAnOldFileIsKnownAndNotSaidToBeWritten) {
  for (Disk state : {Disk::absent, Disk::waiting, Disk::queued, Disk::writing, Disk::failed}) {
    Record& r = in(state);
    records_.old_file(r, 4096);
    EXPECT_FALSE(records_.leave_ram(r));
    EXPECT_EQ(r.disk, Disk::known);
    EXPECT_FALSE(r.ram || r.verified());
    records_.check_invariants();
    records_.remove(r);
  }
}

TEST_F(RecordsTest, AFileThatCouldNotBeReadIsWrittenAgainWhenItIsGiven) {
  Record& r = in(Disk::unreadable);
  EXPECT_FALSE(r.usable(Records::Clock::now() - std::chrono::hours(1)));
  records_.given(r, in_ram(object()));
  EXPECT_EQ(r.disk, Disk::absent);
  EXPECT_EQ(r.file.bytes, 4000u) << "the old file";
  records_.enqueue(r);
  EXPECT_EQ(records_.lists().count(Disk::queued), 1u);
}

TEST_F(RecordsTest, AReadVerifiesAndASyncMakesDurable) {
  Record &a = found(), &b = found();
  records_.read(a, in_ram(object()));
  EXPECT_EQ(a.disk, Disk::renamed) << "nobody has synced its folder";
  records_.begin_sync();
  EXPECT_TRUE(records_.synced(records_.syncs(), 10));
  EXPECT_EQ(a.disk, Disk::durable);
  EXPECT_EQ(b.disk, Disk::known) << "nobody has read it";
  records_.read(b, {});
  EXPECT_EQ(b.disk, Disk::durable) << "its folder was synced since it was found";
}

TEST_F(RecordsTest, ASyncMakesDurableWhatWasRenamedBeforeItBegan) {
  Record &a = written(), &b = written();
  records_.begin_sync();
  Record& late = written();
  EXPECT_FALSE(records_.synced(records_.syncs(), 1)) << "one at a time";
  EXPECT_EQ(a.disk, Disk::durable);
  EXPECT_EQ(b.disk, Disk::renamed);
  EXPECT_TRUE(records_.synced(records_.syncs(), 1));
  EXPECT_EQ(b.disk, Disk::durable);
  EXPECT_EQ(late.disk, Disk::renamed);
  records_.lost(a);  // and written anew behind the next sync
  records_.begin_sync();
  records_.enqueue(a);
  records_.begin_write(a);
  records_.written(a, Durability::spilled, 4096);
  EXPECT_TRUE(records_.synced(records_.syncs(), 10));
  EXPECT_EQ(a.disk, Disk::renamed);
  EXPECT_EQ(late.disk, Disk::durable);
}

}  // namespace
}  // namespace kv
