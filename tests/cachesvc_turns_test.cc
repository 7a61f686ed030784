// Turns: a party with much to do leaves others theirs. By costs that the tests give, and on a loop
// that they pump.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cachesvc/daemon/turns.h"
#include "cachesvc/loop/fair_queue.h"

namespace kv {
namespace {

using Queue = FairQueue<std::string, uint64_t>;  // an item is what it costs

// Pops until so much was spent in all. Returns: what "modest" had of it.
uint64_t modest_part(Queue& queue, uint64_t most) {
  uint64_t all = 0, modest = 0;
  while (all < most && !queue.empty()) {
    auto [party, cost] = queue.pop();
    queue.spend(party, cost);
    all += cost;
    if (party == "modest") modest += cost;
  }
  return modest;
}

// However many items the greedy one has, and however large they are.
TEST(FairQueue, SharesHoldWithinATenth) {
  std::mt19937 random(11);
  for (uint64_t largest : {1u, 10u, 1000u}) {
    Queue queue;
    for (int i = 0; i < 20'000; ++i) queue.push("greedy", 1 + random() % largest);
    for (int i = 0; i < 2'000; ++i) queue.push("modest", 10);
    const uint64_t modest = modest_part(queue, 20'000);
    EXPECT_NEAR(static_cast<double>(modest), 10'000, 1'000) << largest;
  }
}

TEST(FairQueue, WhoAskedForNothingSavedNothingUp) {
  Queue queue;
  for (int i = 0; i < 1000; ++i) queue.push("greedy", 10);
  EXPECT_EQ(modest_part(queue, 5'000), 0u);
  for (int i = 0; i < 1000; ++i) queue.push("modest", 10);
  EXPECT_NEAR(static_cast<double>(modest_part(queue, 1'000)), 500, 50);
}

// One item at a time, each costly: it comes back to what it has spent, not to where others are.
TEST(FairQueue, WhoGoesAndComesGainsNothing) {
  Queue queue;
  for (int i = 0; i < 5000; ++i) queue.push("steady", 1);
  queue.push("jumpy", 50);
  uint64_t all = 0, jumpy = 0;
  while (all < 4'000) {
    auto [party, cost] = queue.pop();
    queue.spend(party, cost);
    all += cost;
    if (party != "jumpy") continue;
    jumpy += cost;
    queue.push("jumpy", 50);
  }
  EXPECT_NEAR(static_cast<double>(jumpy), 2'000, 200);
}

TEST(FairQueue, OnesOwnItemsKeepTheirOrderAndWhatNoOneWaitsForIsForgotten) {
  FairQueue<std::shared_ptr<int>, int> queue;
  std::vector<std::weak_ptr<int>> parties;
  for (int round = 0; round < 1000; ++round) {
    const auto own = std::make_shared<int>(round);
    parties.push_back(own);
    for (int i = 0; i < 3; ++i) queue.push(own, i);
    for (int i = 0; i < 3; ++i) {
      auto [party, item] = queue.pop();
      EXPECT_EQ(party, own);
      EXPECT_EQ(item, i);
      queue.spend(party, 1);
    }
  }
  EXPECT_TRUE(queue.empty());
  const auto kept = std::count_if(parties.begin(), parties.end(),
                                  [](const auto& party) { return !party.expired(); });
  EXPECT_LT(kept, 100) << "parties that the queue still has";
}

TEST(Turns, OneRunsInEachHandlerAndANewPartyWaitsForOneOnly) {
  boost::asio::io_context loop;
  auto turns = std::make_shared<Turns>(loop.get_executor());
  std::string ran;
  for (int i = 0; i < 5; ++i) turns->ask("greedy", [&] { ran += 'g'; });
  loop.poll_one();
  turns->ask("modest", [&] { ran += 'm'; });
  loop.poll_one();
  EXPECT_EQ(ran, "gm");
  loop.poll();
  EXPECT_EQ(ran, "gmgggg");
}

TEST(Turns, ATurnMayAskForMoreAndNoneRunsAfterTheEnd) {
  boost::asio::io_context loop;
  auto turns = std::make_shared<Turns>(loop.get_executor());
  int ran = 0;
  turns->ask("one", [&] {
    ++ran;
    turns->ask("one", [&] { ++ran; });
  });
  loop.poll();
  EXPECT_EQ(ran, 2);
  loop.restart();
  turns->ask("one", [&] { ++ran; });
  turns.reset();
  loop.poll();
  EXPECT_EQ(ran, 2);
}

}  // namespace
}  // namespace kv
