// Calls by themselves: each is answered once, whoever ends it first.
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

class CallsTest : public ::testing::Test {
 protected:
  std::shared_ptr<Call<Status>> begin(CoreOwners& c, uint64_t session, Deadline deadline = soon()) {
    return c.calls.begin<Status>(session, deadline,
                                 [this](Status s) { ends_.push_back(s.code()); });
  }
  std::vector<StatusCode> ends_;
};

TEST_F(CallsTest, AResultIsGivenOnceAndWhatComesLaterIsDropped) {
  CoreOwners c(small_options());
  auto call = begin(c, *c.calls.connect("test"));
  EXPECT_EQ(c.calls.under_way(), 1u);
  call->finish(Status());
  call->fail({StatusCode::busy, "late"});
  call.reset();
  EXPECT_EQ(ends_, std::vector<StatusCode>{StatusCode::ok});
  EXPECT_EQ(c.calls.under_way(), 0u);
}

TEST_F(CallsTest, ItsDeadlineEndsIt) {
  CoreOwners c(small_options());
  auto call = begin(c, *c.calls.connect("test"), Clock::now() + Milliseconds(5));
  c.run_for(Milliseconds(20));
  EXPECT_TRUE(call->finished());
  EXPECT_EQ(ends_, std::vector<StatusCode>{StatusCode::deadline_exceeded});
}

TEST_F(CallsTest, OneThatComesTooLateHasEndedAlready) {
  CoreOwners c(small_options());
  auto call = begin(c, *c.calls.connect("test"), Clock::now() - Milliseconds(1));
  c.run();
  EXPECT_TRUE(call->finished());
  EXPECT_EQ(ends_, std::vector<StatusCode>{StatusCode::deadline_exceeded});
}

TEST_F(CallsTest, ASessionsEndEndsItsCallsAndNoOthers) {
  CoreOwners c(small_options());
  const uint64_t mine = *c.calls.connect("mine"), yours = *c.calls.connect("yours");
  auto my_call = begin(c, mine), your_call = begin(c, yours);
  c.calls.disconnect(mine);
  EXPECT_TRUE(my_call->finished());
  EXPECT_FALSE(your_call->finished());
  EXPECT_EQ(ends_, std::vector<StatusCode>{StatusCode::unavailable});
  EXPECT_EQ(c.calls.session(mine), nullptr);
  EXPECT_EQ(c.calls.sessions(), 1u);
  your_call->finish(Status());
}

TEST_F(CallsTest, ASessionCancelsThoseOfATagAndNoOthers) {
  CoreOwners c(small_options());
  const uint64_t mine = *c.calls.connect("mine"), yours = *c.calls.connect("yours");
  auto begin_tagged = [&](uint64_t session, std::optional<uint64_t> tag) {
    return c.calls.begin<Status>(session, {soon(), tag},
                                 [this](Status s) { ends_.push_back(s.code()); });
  };
  auto first = begin_tagged(mine, 7), second = begin_tagged(mine, 7), other = begin_tagged(mine, 8);
  auto untagged = begin_tagged(mine, std::nullopt), your_call = begin_tagged(yours, 7);
  second->finish(Status());
  c.calls.cancel(mine, 7);
  c.calls.cancel(mine, 7);
  c.calls.cancel(mine, 0);
  EXPECT_TRUE(first->cancelled);
  EXPECT_EQ(ends_, (std::vector<StatusCode>{StatusCode::ok, StatusCode::cancelled}));
  EXPECT_FALSE(other->finished() || untagged->finished() || your_call->finished());
  EXPECT_EQ(c.calls.under_way(), 3u);
  for (auto& call : {other, untagged, your_call}) call->finish(Status());
}

TEST_F(CallsTest, OneThatNobodyOwnsAnyMoreSaysSo) {
  CoreOwners c(small_options());
  begin(c, *c.calls.connect("test"));
  EXPECT_EQ(ends_, std::vector<StatusCode>{StatusCode::unavailable});
}

TEST_F(CallsTest, ModelsAreKnownByTheHandlesOfTheirSession) {
  CoreOwners c(small_options());
  c.open_model();
  const uint64_t session = c.connect();
  EXPECT_TRUE(c.calls.model(session, 1).ok());
  EXPECT_EQ(c.calls.model(session, 0).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(c.calls.model(session, 2).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(c.calls.model(session + 1, 1).status().code(), StatusCode::not_found);
}

TEST_F(CallsTest, ASessionNeedsANamespaceAPlaceAndACacheThatServes) {
  CacheOptions options = small_options();
  options.max_sessions = 1;
  CoreOwners c(options);
  EXPECT_EQ(c.calls.connect("").status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(c.calls.connect(std::string(kMaxNamespaceBytes + 1, 'n')).status().code(),
            StatusCode::invalid_argument);
  const uint64_t session = *c.calls.connect(std::string(kMaxNamespaceBytes, 'n'));
  EXPECT_EQ(c.calls.connect("test").status().code(), StatusCode::busy);
  c.calls.disconnect(session);
  c.env->drain();
  EXPECT_EQ(c.calls.connect("test").status().code(), StatusCode::unavailable);
}

TEST_F(CallsTest, OneTooManyIsBusyUntilAnotherHasEnded) {
  CacheOptions options = small_options();
  options.max_waiting_calls = 1;
  CoreOwners c(options);
  const uint64_t session = *c.calls.connect("test");
  auto first = begin(c, session), second = begin(c, session);
  EXPECT_EQ(ends_, std::vector<StatusCode>{StatusCode::busy});
  first->finish(Status());
  auto third = begin(c, session);
  EXPECT_FALSE(third->finished());
  third->finish(Status());
}

// Each callback lets go of all calls, those that the list has not come to among them.
TEST_F(CallsTest, CallbacksMayEndOtherCallsOfTheSessionThatEnds) {
  CoreOwners c(small_options());
  const uint64_t session = *c.calls.connect("test");
  std::vector<std::shared_ptr<Call<Status>>> calls;
  int answered = 0;
  for (int i = 0; i < 3; ++i) {
    calls.push_back(c.calls.begin<Status>(session, soon(), [&](Status s) {
      answered += s.code() == StatusCode::unavailable;
      std::exchange(calls, {});
    }));
  }
  c.calls.disconnect(session);
  EXPECT_EQ(answered, 3);
  EXPECT_EQ(c.calls.under_way(), 0u);
}

TEST_F(CallsTest, TheCoresEndAnswersAllThoughACallbackFindsNoMemory) {
  CoreOwners c(small_options());
  int answered = 0;
  std::vector<std::shared_ptr<Call<Status>>> calls;
  for (int i = 0; i < 3; ++i) {
    calls.push_back(c.calls.begin<Status>(0, soon(), [&](Status) {
      if (++answered == 1) throw std::bad_alloc();
    }));
  }
  c.close("the end");
  EXPECT_EQ(answered, 3);
  EXPECT_EQ(c.calls.under_way(), 0u);
  auto late = begin(c, 0);
  EXPECT_EQ(ends_, std::vector<StatusCode>{StatusCode::unavailable});
}

}  // namespace
}  // namespace kv
