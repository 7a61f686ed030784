// Eraser beside others: whose writes pass, what of the same names is stored meanwhile, which blocks
// one conversation takes with it, and where a namespace's name is left.
#include <fstream>

#include "storage/inspect.h"
#include "tests/support/cachesvc_stepped.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

using testing::FaultFiles;
using Sequence = std::vector<Token>;

Sequence followed_by(Sequence a, const Sequence& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class EraseBeside : public ::testing::Test {
 protected:
  CacheOptions options() {
    CacheOptions o = small_options(dir_.store());
    o.ssd_files = &faults_;
    o.durable_group_delay = Milliseconds(0);
    return o;
  }
  void count_unlinks() {
    faults_.script = [this](const char* call, const std::string& path) -> Status {
      bool object = path.ends_with(".block") || path.ends_with(".tail");
      unlinked_ += object && std::string(call) == "unlink";
      return {};
    };
  }
  TempDir dir_;
  FaultFiles faults_;
  std::mt19937 rng_{7};
  int unlinked_ = 0;
};

TEST_F(EraseBeside, OthersWritesPassUnlinks) {
  Stepped client(options());
  auto mine = Bench::open(client, plain_model(1));
  ASSERT_TRUE(mine.store(random_tokens(rng_, 300 * 16), Durability::durable).ok());
  std::optional<Result<uint64_t>> erased;
  uint64_t my_session = client.session;
  client.session = *client.core->connect("yours");
  auto yours = Bench::open(client, plain_model(1));
  ASSERT_TRUE(yours.store(random_tokens(rng_, 8), Durability::durable).ok());  // its records too
  std::optional<Result<CommitReply>> committed;
  auto tokens = random_tokens(rng_, 40);
  auto reserved = yours.reserve(tokens);
  ASSERT_TRUE(reserved.ok());
  for (const Need& need : reserved->needs) {
    ASSERT_TRUE(
        client.put(make_put(yours.model, 16, tokens, need, reserved->reservation), soon()).ok());
  }
  count_unlinks();
  client.core->erase(my_session, mine.opened.model, {}, soon(),
                     [&](Result<uint64_t> done) { erased.emplace(std::move(done)); });
  while (client.loop.poll() > 0) client.loop.restart();  // all of it has left the index
  client.core->commit(client.session, reserved->reservation, Durability::durable, soon(),
                      [&](Result<CommitReply> r) { committed.emplace(std::move(r)); });
  int jobs = 0;
  for (; !committed && jobs < 1'000; ++jobs) {  // one job of the disk at a time
    client.loop.restart(), client.workers.restart(), client.disk.restart();
    if (client.loop.poll() + client.workers.poll() == 0 && client.disk.poll_one() == 0) {
      client.loop.run_one();
    }
  }
  ASSERT_TRUE(committed && committed->ok());
  EXPECT_EQ((*committed)->level, Durability::durable);
  EXPECT_LT(unlinked_, 200) << "most of the erase is still to come";
  EXPECT_FALSE(erased) << "an erase is acked when all of it is gone";
  client.run();
  ASSERT_TRUE(erased && erased->ok());
  EXPECT_EQ(unlinked_, 300);
}

// Its own names are written after their unlinks.
TEST_F(EraseBeside, WhatIsStoredAgainMeanwhileStays) {
  for (Durability level : {Durability::accepted, Durability::spilled, Durability::durable}) {
    auto tokens = random_tokens(rng_, 100 * 16 + 5);
    {
      Stepped client(options());
      auto b = Bench::open(client, plain_model(1));
      ASSERT_TRUE(b.store(tokens, Durability::durable).ok());
      count_unlinks();
      unlinked_ = 0;
      std::optional<Result<uint64_t>> erased;
      client.core->erase(client.session, b.opened.model, {}, soon(),
                         [&](Result<uint64_t> done) { erased.emplace(std::move(done)); });
      client.hangs = true;  // all of it leaves the index, no file the SSD
      client.run();
      auto reserved = b.reserve(tokens);
      ASSERT_TRUE(reserved.ok());
      EXPECT_EQ(reserved->needs.size(), 101u);
      for (const Need& need : reserved->needs) {
        auto put = make_put(b.model, 16, tokens, need, reserved->reservation);
        ASSERT_TRUE(client.put(std::move(put), soon()).ok());
      }
      std::optional<Result<CommitReply>> stored;
      client.core->commit(client.session, reserved->reservation, level, soon(),
                          [&](Result<CommitReply> reply) { stored.emplace(std::move(reply)); });
      client.run();
      EXPECT_EQ(unlinked_, 0);
      client.hangs = false;
      while (!stored) {
        if (!client.run_once()) client.loop.run_one();
      }
      client.run();
      ASSERT_TRUE(stored->ok() && erased && erased->ok());
      EXPECT_GE((*stored)->level, level);
      EXPECT_EQ(unlinked_, 101);
      EXPECT_EQ(b.fetch(plus_one(tokens))->tokens, tokens.size());
      ASSERT_TRUE(client.call<Status>([&](auto done) { client.core->drain(soon(), done); }).ok());
    }
    Stepped again(options());
    auto b = Bench::open(again, plain_model(1));
    EXPECT_EQ(b.fetch(plus_one(tokens))->tokens, tokens.size()) << static_cast<int>(level);
    ASSERT_TRUE(again.erase(0, {}, soon()).ok());
  }
}

bool some_file_has(const std::string& directory, const std::string& wanted) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::string bytes(std::istreambuf_iterator<char>(in), {});
    if (bytes.find(wanted) != std::string::npos) return true;
  }
  return false;
}

TEST_F(EraseBeside, OfANamespaceLeavesItsNameInNoFile) {
  const std::string name = "a name that nobody else has";
  auto tokens = random_tokens(rng_, 40);
  {
    Stepped client(options());
    client.session = *client.core->connect(name);
    auto b = Bench::open(client, plain_model(1));
    ASSERT_TRUE(b.store(tokens, Durability::durable).ok());
    client.core->disconnect(client.session);
    client.session = *client.core->connect(name);  // one model rests
    auto open = Bench::open(client, plain_model(2, 5));
    ASSERT_TRUE(open.store(tokens, Durability::durable).ok());
    EXPECT_TRUE(some_file_has(dir_.store(), name));
    ASSERT_TRUE(client.erase(0, {}, soon()).ok());
    EXPECT_FALSE(some_file_has(dir_.store(), name));
    auto stored = open.store(tokens, Durability::durable);  // its record is written anew
    ASSERT_TRUE(stored.ok());
    EXPECT_EQ(stored->level, Durability::durable);
  }
  Stepped client(options());
  client.session = *client.core->connect(name);
  EXPECT_EQ(Bench::open(client, plain_model(2, 5)).fetch(plus_one(tokens))->tokens, 40u);
}

// ---- one conversation

TEST_F(EraseBeside, AnEntryTakesWhatNoOtherEntryHas) {
  Stepped client(options());
  auto b = Bench::open(client, plain_model(1));
  auto system = random_tokens(rng_, 32);
  auto mine = followed_by(system, random_tokens(rng_, 40)),
       yours = followed_by(system, random_tokens(rng_, 20));
  auto first_turn = Sequence(mine.begin(), mine.begin() + 45);
  for (const auto& entry : {first_turn, mine, yours}) {
    ASSERT_TRUE(b.store(entry, Durability::durable).ok());
  }
  auto half = Sequence(mine.begin(), mine.begin() + 50);
  EXPECT_EQ(*client.erase_entry({b.opened.model, {half, {}}}, soon()), 0u) << "nothing ends there";
  auto erased = client.erase_entry({b.opened.model, {mine, {}}}, soon());
  ASSERT_TRUE(erased.ok()) << erased.status().to_string();
  EXPECT_EQ(*erased, 4u) << "blocks [32, 64), the tail at 72 and the turn's at 45";
  EXPECT_EQ(b.fetch(plus_one(mine))->tokens, 32u);
  EXPECT_EQ(b.fetch(plus_one(yours))->tokens, 52u);
  for (size_t at : {32, 48})
    EXPECT_FALSE(on_disk(dir_.store(), Sequence(&mine[at], &mine[at] + 16)));
  EXPECT_EQ(*client.erase_entry({b.opened.model, {yours, {}}}, soon()), 4u) << "with the system's";
  EXPECT_EQ(b.stat("ram_objects") + b.stat("ssd_objects"), 0u);
}

TEST_F(EraseBeside, AnEntryThatOthersGoOnFromKeepsItsBlocks) {
  Stepped client(options());
  auto b = Bench::open(client, plain_model(1));
  auto prompt = random_tokens(rng_, 40), longer = followed_by(prompt, random_tokens(rng_, 20));
  ASSERT_TRUE(b.store(prompt, Durability::durable).ok());
  ASSERT_TRUE(b.store(longer, Durability::durable).ok());
  EXPECT_EQ(*client.erase_entry({b.opened.model, {prompt, {}}}, soon()), 1u) << "its tail";
  EXPECT_EQ(b.fetch(plus_one(longer))->tokens, 60u);
  auto empty = client.erase_entry({b.opened.model, {}}, soon());
  EXPECT_EQ(empty.status().code(), StatusCode::invalid_argument);
}

TEST_F(EraseBeside, AnEntryOfStatesTakesItsSnapshots) {
  for (const ModelSpec& model :
       {model_of({LayerSpec{{full_part(), window_part(8, 2)}}}),
        model_of({LayerSpec{{full_part()}}, LayerSpec{{state_part(SnapshotPlace::checkpoint)}}})}) {
    Stepped client(options());
    auto b = Bench::open(client, model);
    auto mine = random_tokens(rng_, 50);
    auto yours = followed_by(Sequence(mine.begin(), mine.begin() + 16), random_tokens(rng_, 30));
    ASSERT_TRUE(b.store(mine, Durability::durable).ok());
    ASSERT_TRUE(b.store(yours, Durability::durable).ok());
    ASSERT_GT(*client.erase_entry({b.opened.model, {mine, {}}}, soon()), 2u);
    auto hit = b.fetch(plus_one(yours));
    ASSERT_EQ(hit->tokens, 46u);
    b.expect_serves(yours, *hit);
    EXPECT_LE(b.fetch(plus_one(mine))->tokens, 16u);
    ASSERT_GT(*client.erase_entry({b.opened.model, {yours, {}}}, soon()), 2u);
    EXPECT_EQ(b.stat("ram_objects") + b.stat("ssd_objects"), 0u);
  }
}

}  // namespace
}  // namespace kv
