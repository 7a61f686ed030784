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

}  // namespace
}  // namespace kv
