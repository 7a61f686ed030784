// One profile for a fleet: machines that calibrated differently, over a real tier.
#include <gtest/gtest.h>

#include "tests/support/cachesvc_machines.h"

namespace kv {
namespace {

// A profile as a machine's own calibration makes it.
std::shared_ptr<const Profile> calibrated(const ModelSpec& model, float mean) {
  Profile profile = *make_profile(model, 4, 256);
  for (size_t l = 0; l < profile.parts.size(); ++l) {
    const PartSpec& part = model.layers[l].parts[0];
    profile.parts[l][0].key_mean.assign(size_t{part.heads} * part.k_dim, mean);
  }
  return std::make_shared<const Profile>(std::move(profile));
}

Result<OpenReply> replaced(Machine& machine, const ModelSpec& model) {
  OpenRequest request;
  request.model = model;
  request.replace = true;
  Result<OpenReply> reply = machine.client().open(request, soon());
  for (int i = 0; i < 600 && !reply.ok(); ++i) {  // a loaded machine may be late
    ::usleep(100'000);
    reply = machine.client().open(request, soon());
  }
  return reply;
}

// A machine that heard of the fleet's profile when it opened the model.
std::unique_ptr<Machine> joined(const std::string& ns, const ModelSpec& model, float mean) {
  for (int i = 0;; ++i) {
    auto machine = std::make_unique<Machine>(settings());
    machine->open(ns, model, calibrated(model, mean));
    const uint64_t missed =
        machine->stat("remote_profiles_unheard") + machine->stat("remote_profiles_other");
    if (missed == 0 || i == 20) return machine;
  }
}

TEST(RemoteProfiles, MachinesThatCalibratedDifferentlyShareTheFirstOnes) {
  KV_NEEDS_REDIS();
  const ModelSpec model = plain_model();
  const auto tokens = tokens_of(60), own = tokens_of(61);
  // One that has stored under its own before it joins.
  Machine c({});
  ASSERT_TRUE(c.open("fleet", model, calibrated(model, 3)).store(own, Durability::spilled).ok());
  c.kill();

  Machine a(settings());
  Bench at_a = a.open("fleet", model, calibrated(model, 1));
  ASSERT_TRUE(a.becomes("remote_profiles_unheard", 0));
  EXPECT_EQ(at_a.opened.realm.profile, calibrated(model, 1)->id());
  ASSERT_TRUE(at_a.store(tokens, Durability::spilled).ok());
  a.written(kObjects);

  auto b = joined("fleet", model, 2);
  Bench at_b = b->open("fleet", model, calibrated(model, 2));
  EXPECT_EQ(at_b.opened.realm.profile, at_a.opened.realm.profile);
  auto got = heard(*b, at_b, plus_one(tokens));
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ(got->tokens, kTokens);
  at_b.expect_serves(plus_one(tokens), *got);

  c.start(settings());
  Bench at_c = c.open("fleet", model);
  EXPECT_EQ(at_c.opened.realm.profile, calibrated(model, 3)->id());
  EXPECT_TRUE(c.becomes("remote_profiles_other", 1));
  EXPECT_EQ(heard(c, at_c, plus_one(tokens))->tokens, 0u);
  EXPECT_EQ(at_c.fetch(plus_one(own))->tokens, kTokens);
  auto taken = replaced(c, model);
  ASSERT_TRUE(taken.ok()) << taken.status().to_string();
  EXPECT_EQ(taken->realm.profile, at_a.opened.realm.profile);
  EXPECT_EQ(c.stat("remote_profiles_other"), 0u);
  Bench anew = c.open("fleet", model);
  got = heard(c, anew, plus_one(tokens));
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ(got->tokens, kTokens);
  anew.expect_serves(plus_one(tokens), *got);
}

TEST(RemoteProfiles, WithoutAnAnswerItsOwnIsInForceAndItSaysSo) {
  KV_NEEDS_REDIS();
  const ModelSpec model = plain_model();
  const auto tokens = tokens_of(62);
  const uint16_t port = testing::free_port();
  const std::vector<std::string> node = {"nodes = [\"127.0.0.1:" + std::to_string(port) + "\"]"};
  Machine a(node);
  Bench at_a = a.open("absent", model, calibrated(model, 1));
  EXPECT_EQ(at_a.opened.realm.profile, calibrated(model, 1)->id());
  EXPECT_EQ(a.stat("remote_profiles_unheard"), 1u);
  ASSERT_TRUE(at_a.store(tokens, Durability::spilled).ok());
  EXPECT_EQ(at_a.fetch(plus_one(tokens))->tokens, kTokens);
  OpenRequest request;
  request.model = model;
  request.replace = true;
  EXPECT_FALSE(a.client().open(request, soon()).ok());  // nobody says what the fleet's is

  RedisServer server({}, false, port);
  if (!server.runs()) GTEST_SKIP() << "somebody else took the port";
  EXPECT_TRUE(a.becomes("remote_profiles_unheard", 0));  // its own is the fleet's now
  EXPECT_EQ(a.stat("remote_profiles_other"), 0u);
  server.signal(SIGSTOP);
  Machine b(node);
  Bench at_b = b.open("absent", model, calibrated(model, 2));
  EXPECT_EQ(at_b.opened.realm.profile, calibrated(model, 2)->id());
  EXPECT_EQ(b.stat("remote_profiles_unheard"), 1u);
  server.signal(SIGCONT);
  EXPECT_TRUE(b.becomes("remote_profiles_other", 1));
  auto taken = replaced(b, model);
  ASSERT_TRUE(taken.ok()) << taken.status().to_string();
  EXPECT_EQ(taken->realm.profile, at_a.opened.realm.profile);
}

}  // namespace
}  // namespace kv
