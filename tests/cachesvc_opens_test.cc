// Opens by themselves: one at a time, and one profile in force.
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

class OpensTest : public ::testing::Test {
 protected:
  OpensTest() : core_(small_options(dir_.store())) { session_ = *core_.calls.connect("test"); }
  std::shared_ptr<std::optional<Result<OpenReply>>> begin(uint8_t bits, bool replace = false) {
    OpenRequest request;
    request.model = plain_model();
    request.profile = make_profile(request.model, bits);
    request.replace = replace;
    auto reply = std::make_shared<std::optional<Result<OpenReply>>>();
    core_.opens.open(session_, std::move(request), soon(),
                     [reply](Result<OpenReply> r) { reply->emplace(std::move(r)); });
    return reply;
  }
  static Id in_force(const std::optional<Result<OpenReply>>& reply) {
    return reply && reply->ok() ? (*reply)->realm.profile : Id{};
  }
  TempDir dir_;
  CoreOwners core_;
  uint64_t session_ = 0;
};

TEST_F(OpensTest, OfTwoAtOnceBothGetTheProfileThatIsInForceFirst) {
  auto first = begin(4), second = begin(3);
  core_.run_all();
  ASSERT_TRUE(*first && (*first)->ok() && *second && (*second)->ok());
  EXPECT_EQ(in_force(*first), make_profile(plain_model(), 4)->id());
  EXPECT_EQ(in_force(*second), in_force(*first));
}

TEST_F(OpensTest, AReplaceIsInForceForAllThatOpenLater) {
  begin(4);
  auto replaced = begin(3, true), later = begin(4);
  core_.run_all();
  EXPECT_EQ(in_force(*replaced), make_profile(plain_model(), 3)->id());
  EXPECT_EQ(in_force(*later), in_force(*replaced));
}

TEST_F(OpensTest, AnOpenIsAnsweredWhenItsRecordsAreOnTheSsd) {
  core_.hangs = true;
  auto reply = begin(4);
  core_.run_all();
  EXPECT_FALSE(*reply);
  core_.hangs = false;
  core_.run_all();
  ASSERT_TRUE(*reply && (*reply)->ok());
  EXPECT_TRUE(core_.calls.model(session_, (**reply)->model).ok());
}

TEST_F(OpensTest, AModelThatIsNoneIsRefusedByName) {
  OpenRequest request;
  request.model = plain_model();
  request.model.layers[1].parts[0].k_dim = 0;
  auto reply = core_.call<Result<OpenReply>>(
      [&](auto done) { core_.opens.open(session_, request, soon(), done); });
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status().code(), StatusCode::invalid_argument);
  EXPECT_NE(reply->status().message().find("layer 1 part 0"), std::string::npos)
      << reply->status().message();
}

TEST_F(OpensTest, ASessionThatHasGoneIsUnknown) {
  auto reply = begin(4);
  core_.calls.disconnect(session_);
  core_.run_all();
  ASSERT_TRUE(*reply);
  EXPECT_EQ((*reply)->status().code(), StatusCode::unavailable);
}

}  // namespace
}  // namespace kv
