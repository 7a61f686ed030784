// OpenQuestions by itself: what is asked again, what is given up, and how many wait at most.
#include "cachesvc/core/open_questions.h"
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

using State = OpenQuestion::State;

class OpenQuestionsUnit : public ::testing::Test {
 protected:
  OpenQuestionsUnit()
      : core_(small_options(dir_.store())),
        realm_(core_.open_model()),
        open_(*core_.env, [this](const OpenQuestion& q) { given_up_.push_back(q); }) {}
  // The prompt with this number.
  static Query prompt(uint32_t number) { return {std::vector<Token>(600, number), {}}; }
  void keep(uint32_t number, State state = State::pending) {
    open_.keep(realm_, prompt(number), {.state = state, .number = number, .ssd_tokens = 7});
    open_.check_invariants();
  }
  std::optional<OpenQuestion> take(uint32_t number) {
    auto taken = open_.take(realm_, prompt(number));
    open_.check_invariants();
    return taken;
  }

  TempDir dir_;
  CoreOwners core_;
  RealmState& realm_;
  std::vector<OpenQuestion> given_up_;
  OpenQuestions open_;
};

TEST_F(OpenQuestionsUnit, TheSamePromptTakesItOnce) {
  keep(1);
  EXPECT_FALSE(take(2));
  Query longer = prompt(1);
  longer.tokens.push_back(1);
  EXPECT_FALSE(open_.take(realm_, longer));
  const auto taken = take(1);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->number, 1u);
  EXPECT_EQ(taken->ssd_tokens, 7u);
  EXPECT_EQ(taken->tokens, 600u);
  EXPECT_EQ(taken->model, realm_.model->name);
  EXPECT_FALSE(take(1));
}

TEST_F(OpenQuestionsUnit, WhatNobodyAsksAgainIsGivenUp) {
  keep(1);
  keep(2, State::found_nothing);
  open_.give_up(Clock::now());
  EXPECT_EQ(open_.size(), 2u);
  open_.give_up(Clock::now() + OpenQuestions::kPatience);
  open_.check_invariants();
  EXPECT_EQ(open_.size(), 0u);
  ASSERT_EQ(given_up_.size(), 1u) << "what was counted at once is only forgotten";
  EXPECT_EQ(given_up_[0].number, 1u);
}

TEST_F(OpenQuestionsUnit, KeptAgainItWaitsAnew) {
  keep(1);
  keep(2);
  keep(1);
  EXPECT_EQ(open_.size(), 2u);
  for (uint32_t number = 3; number <= OpenQuestions::kMost; ++number) keep(number);
  EXPECT_TRUE(given_up_.empty());
  keep(OpenQuestions::kMost + 1);
  EXPECT_EQ(open_.size(), OpenQuestions::kMost);
  ASSERT_EQ(given_up_.size(), 1u);
  EXPECT_EQ(given_up_[0].number, 2u) << "the one that waits longest";
}

}  // namespace
}  // namespace kv
