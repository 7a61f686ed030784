// The doctor's sentences: each rule speaks when its counters say so, and not before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/cachectl_findings.h"

namespace kv::cachectl {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kGib = 1ull << 30, kMinute = 60'000;

// A daemon that is used and has nothing wrong with it.
Seen healthy() {
  Seen seen;
  seen.at_ms = 1'000'000'000;
  seen.stats = {{"fetches", 100},
                {"commits", 50},
                {"hit_tokens_ram", 5000},
                {"hit_tokens_ssd", 500},
                {"ssd_limit_bytes", kGib}};
  return seen;
}

Seen with(std::map<std::string, uint64_t> more) {
  Seen seen = healthy();
  for (const auto& [name, value] : more) seen.stats[name] = value;
  return seen;
}

RequestRecord missed(const Seen& seen, Missing missing, uint64_t gone_since) {
  RequestRecord r;
  r.at_ms = seen.at_ms;
  r.missing = missing;
  r.since_ms = seen.at_ms - gone_since;
  return r;
}

auto says(const std::string& text) { return Contains(HasSubstr(text)); }

TEST(Findings, NothingToSay) {
  EXPECT_THAT(findings(healthy()), ElementsAre(HasSubstr("it is large enough")));
  EXPECT_THAT(findings(with({{"ssd_limit_bytes", 0}})), ElementsAre("Nothing is wrong."));
  EXPECT_THAT(findings(with({{"fetches", 19}})), says("Only 19 requests so far"));
}

TEST(Findings, WhatIsStoredAndNeverRead) {
  const auto none = with({{"hit_tokens_ram", 0}, {"hit_tokens_ssd", 0}});
  EXPECT_THAT(findings(none), says("Stores steadily, nothing is read"));
  EXPECT_THAT(findings(with({{"hit_tokens_ram", 0}, {"hit_tokens_ssd", 0}, {"commits", 0}})),
              Not(says("nothing is read")));
  EXPECT_THAT(findings(with({{"hit_tokens_ssd", 0}, {"ssd_written_bytes", 3 * kGib}})),
              says("The SSD tier was written 3.0 GiB and nothing was read of it"));
  EXPECT_THAT(findings(with({{"ssd_written_bytes", 3 * kGib}})), Not(says("nothing was read")));
}

TEST(Findings, ReuseThatComesLaterThanTheBudgetHolds) {
  Seen seen = with({{"short_evicted_ssd", 3}});
  for (const uint64_t minutes : {1, 15, 90}) {
    seen.missed.push_back(missed(seen, Missing::evicted_ssd, minutes * kMinute));
  }
  EXPECT_THAT(findings(seen), AllOf(says("The SSD tier is too small: 3 recent requests"),
                                    says("half of them within 15 min"), Not(says("large enough"))));
  // 36 GiB a day: a GiB is full after 40 minutes.
  seen.stats["ssd_written_day_bytes"] = 36 * kGib;
  EXPECT_THAT(findings(seen), says("Reuse comes after 55 min, the SSD's 1.0 GiB hold 40 min"));
  EXPECT_THAT(findings(seen), says("tier.ssd.limit of 1.4 GiB"));
  Seen ram = healthy();
  ram.missed.push_back(missed(ram, Missing::evicted_ram, kMinute));
  EXPECT_THAT(findings(ram), says("had left RAM before it was on the SSD"));
  ram.stats["ssd_limit_bytes"] = 0;
  EXPECT_THAT(findings(ram), says("an SSD tier would have it"));
  EXPECT_THAT(findings(with({{"short_evicted_index", 2}})), says("The index is full (2 requests"));
  EXPECT_THAT(findings(with({{"short_no_room", 2}})), says("RAM had no room"));
}

TEST(Findings, WearOfADay) {
  EXPECT_THAT(findings(with({{"ssd_written_day_bytes", 100 * kGib}})),
              says("The last day wrote 100.0 GiB to the SSD, 35.6 TiB in a year at that rate: 15 "
                   "years of a drive"));
  EXPECT_THAT(findings(with({{"ssd_written_day_bytes", 4000 * kGib}})), says("less than a year"));
  EXPECT_THAT(findings(with({{"ssd_written_day_bytes", 1}})), says("more than 100 years"));
  EXPECT_THAT(findings(healthy()), Not(says("The last day wrote")));
}

TEST(Findings, DevicesThatFail) {
  EXPECT_THAT(findings(with({{"ssd_hangs", 1}})), says("The SSD hangs"));
  EXPECT_THAT(findings(with({{"quarantined", 2}})), says("2 files did not verify"));
  EXPECT_THAT(findings(with({{"ram_damaged", 1}})), says("1 object in RAM lost their checksum"));
  EXPECT_THAT(findings(with({{"remote_profiles_other", 2}})), says("another profile of 2 models"));
  EXPECT_THAT(findings(with({{"remote_profiles_unheard", 1}})),
              says("which profile it has of 1 m"));
  EXPECT_THAT(findings(with({{"spills_failed", 3}})), says("3 writes to the SSD failed"));
}

TEST(Findings, TransformsThatDoNotFit) {
  Seen seen = healthy();
  seen.misfits = {"model X: its rows take 0.310 of fp16 where the profile promises 0.220"};
  EXPECT_THAT(findings(seen), says("The model X: its rows take 0.310 of fp16"));
}

TEST(Findings, ServersThatDisagreeAndEndsThatNobodyNamed) {
  EXPECT_THAT(findings(with({{"short_other_model", 6}, {"short_other_profile", 5}})),
              says("11 requests asked for tokens that are stored under another model"));
  EXPECT_THAT(findings(with({{"short_other_model", 10}})), Not(says("another model")));
  EXPECT_THAT(findings(with({{"short_part", 51}})), says("name the ends that shall be restorable"));
  EXPECT_THAT(findings(with({{"short_part", 50}})), Not(says("name the ends")));
}

}  // namespace
}  // namespace kv::cachectl
