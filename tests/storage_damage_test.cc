// Damage: any bit, any length, any file: a miss with a reason, never another answer.
#include "tests/support/storage_damage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "storage/block_file.h"
#include "storage/ssd_tier.h"
#include "tests/support/soak.h"
#include "tests/support/storage_decode_file.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

using namespace kv::testing;
namespace fs = std::filesystem;

// Under a sanitizer every so many-th bit is enough: release flips them all.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kBitStride = 97;
#else
constexpr size_t kBitStride = 1;
#endif

// The file of a block: exactly 64 KiB with its header.
std::vector<uint8_t> sample_file(FileImage& image) {
  std::mt19937_64 rng(23);
  Object block = sample_block(rng, {}, 0, 16, 200);
  image = raw_image(block);
  size_t head = encode_file(image)->flatten().size() - image.stored_bytes() + 12;
  block.states = {{0, 0, random_payload(rng, (64 << 10) - head - 17 - image.stored_bytes())}};
  image = raw_image(block);
  return encode_file(image)->flatten();
}

TEST(Damage, EveryBitOfABlockFileFlippedIsNoticed) {
  FileImage image;
  std::vector<uint8_t> bytes = sample_file(image);
  ASSERT_GE(bytes.size(), (64u << 10) - 64);
  ASSERT_LE(bytes.size(), (64u << 10) + 64);
  auto whole = decode_file(Bytes::copy_of(bytes));
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  expect_same(image, *whole);
  auto shared = std::make_shared<std::vector<uint8_t>>(bytes);
  Bytes file(shared, shared->data(), shared->size());
  uint64_t flipped = 0;
  for (size_t bit = 0; bit < bytes.size() * 8; bit += kBitStride) {
    (*shared)[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    auto decoded = decode_file(file);
    ASSERT_FALSE(decoded.ok()) << "bit " << bit << " went unnoticed";
    (*shared)[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    ++flipped;
  }
  if (kBitStride == 1) {
    EXPECT_EQ(flipped, bytes.size() * 8);
  }
  ASSERT_TRUE(decode_file(file).ok()) << "the test put every bit back";
}

TEST(Damage, EveryLengthOfABlockFileButItsOwnIsNoticed) {
  FileImage image;
  std::vector<uint8_t> bytes = sample_file(image);
  Bytes longer = [&] {
    std::vector<uint8_t> more = bytes;
    more.resize(more.size() + 100, 0);
    return Bytes::owning(std::move(more));
  }();
  for (size_t size = 0; size <= longer.size(); ++size) {
    if (size == bytes.size()) continue;
    ASSERT_FALSE(decode_file(longer.slice(0, size)).ok()) << size;
  }
}

// Listings and recovery read headers only: no flip in what they read changes what they say.
TEST(Damage, EveryBitThatAHeaderIsReadFromFlippedIsNoticed) {
  FileImage image;
  std::vector<uint8_t> bytes = sample_file(image);
  size_t head = bytes.size() - image.stored_bytes();
  constexpr size_t kFileHashAt = 40;  // of the payload: who reads only the header can't check it
  for (size_t bit = 0; bit < head * 8; bit += 1) {
    if (bit / 8 >= kFileHashAt && bit / 8 < kPrefixBytes) continue;
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    ASSERT_FALSE(decode_head(std::span(bytes).first(head), bytes.size()).ok()) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
  }
}

TEST(RandomDamage, NeverChangesAnAnswer) {
  constexpr uint64_t kSeed = 41;
  const int kRounds = soaked(kBitStride == 1 ? 300 : 30);
  std::mt19937_64 rng(kSeed);
  auto images = sample_chain(rng, 6, 64);
  images.push_back(raw_image(sample_supplement(rng, images[1].header, 1, 16, 24)));
  images.push_back(raw_image(sample_snapshot(rng, images[5].header, 2)));
  uint64_t whole = 0, missed = 0;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE("seed " + std::to_string(kSeed) + " round " + std::to_string(round));
    TempDir dir(true);
    {
      auto tier = open_tier(dir, small_options());
      put_all(*tier, images);
      ASSERT_TRUE(tier->put_profile(sample_profile(1)).ok());
      ASSERT_TRUE(tier->put_model_record(sample_record(1)).ok());
      if (round % 2 == 0) {
        ASSERT_TRUE(tier->checkpoint().ok());
      }
    }
    damage_some(rng, dir.store());
    Recovery found;
    auto tier = open_tier(dir, small_options(), &found);
    ASSERT_TRUE(tier);
    for (const auto& object : found.objects) {
      EXPECT_TRUE(names_of(images).contains(object.header.name)) << "never stored";
    }
    for (const auto& profile : found.profiles) EXPECT_EQ(*profile, sample_profile(1));
    for (const auto& model : found.models) EXPECT_EQ(model, sample_record(1));
    for (const auto& image : images) {
      auto read = tier->read(image.header.name);
      ++(read.ok() ? whole : missed);
      if (read.ok()) expect_same(image, *read);
    }
    EXPECT_EQ(tier->stats().used_bytes, du(dir.store()));
    if (HasFailure()) return;
  }
  EXPECT_GT(whole, missed) << "most files were not touched";
  EXPECT_GT(missed, 0u);
}

TEST(SsdTier, WhatACallerFindsWrongGoesToQuarantineForGood) {
  TempDir dir;
  std::mt19937_64 rng(8);
  auto images = sample_chain(rng, 3);
  auto tier = open_tier(dir, small_options());
  put_all(*tier, images);
  ASSERT_TRUE(tier->quarantine(images[1].header.name).ok());
  EXPECT_EQ(tier->quarantine(images[1].header.name).code(), StatusCode::not_found);
  EXPECT_EQ(tier->read(images[1].header.name).status().code(), StatusCode::not_found);
  EXPECT_EQ(tier->stats().quarantine_files, 1u);
  EXPECT_EQ(tier->stats().used_bytes, du(dir.store()));
  tier.reset();
  Recovery found;
  tier = open_tier(dir, small_options(), &found);
  EXPECT_EQ(found.objects.size(), 2u);
  EXPECT_EQ(found.rows_dropped, 0u) << "the row went too";
}

TEST(SsdTier, ACorruptFileIsAMissQuarantinedWithinItsBound) {
  TempDir dir;
  std::mt19937_64 rng(15);
  auto images = sample_chain(rng, 30, 64);
  FileImage good = raw_image(sample_block(rng));
  SsdOptions options = small_options();
  options.quarantine_bytes = 128 << 10;
  auto tier = open_tier(dir, options);
  put_all(*tier, images);
  put_all(*tier, {good});
  for (size_t i = 0; i < images.size(); ++i) {
    const ObjectName& name = images[i].header.name;
    std::string path = path_of(dir, name);
    if (i % 3 == 0) fs::resize_file(path, fs::file_size(path) - 1 - i);
    if (i % 3 == 1) flip_byte(path, static_cast<long>(fs::file_size(path)) - 5);
    if (i % 3 == 2) {
      fs::copy_file(path_of(dir, good.header.name), path, fs::copy_options::overwrite_existing);
    }
    EXPECT_EQ(tier->read(name).status().code(), StatusCode::corruption) << i;
    EXPECT_EQ(tier->read(name).status().code(), StatusCode::not_found) << i;
    EXPECT_LE(tier->stats().quarantine_bytes, 128u << 10);
  }
  SsdStats stats = tier->stats();
  EXPECT_EQ(stats.corruptions, images.size());
  EXPECT_GT(stats.quarantine_files, 1u);
  put_all(*tier, images);  // the names are free again
  put_all(*tier, {good});
  flip_byte(path_of(dir, images[0].header.name), 100);
  EXPECT_EQ(tier->read(images[0].header.name).status().code(), StatusCode::corruption) << "twice";
  tier.reset();
  Recovery found;
  tier = open_tier(dir, options, &found);
  EXPECT_EQ(found.objects.size(), images.size());
  EXPECT_EQ(tier->stats().quarantine_files, stats.quarantine_files);
  EXPECT_EQ(tier->stats().used_bytes, du(dir.store()));
}

TEST(SsdTier, OneBadReadIsReadAgainAndAnIoErrorKeepsTheFile) {
  TempDir dir;
  FaultFiles files;
  std::mt19937_64 rng(16);
  FileImage image = raw_image(sample_block(rng));
  auto tier = open_tier(dir, small_options(&files));
  put_all(*tier, {image});
  int left = 1;
  files.script = [&](const char* call, const std::string&) -> Status {
    bool hit = std::string(call) == "pread" && left > 0 && left-- > 0;
    return hit ? corruption("injected") : Status();
  };
  EXPECT_TRUE(tier->read(image.header.name).ok());
  EXPECT_EQ(tier->stats().rereads_saved, 1u);
  left = 1;
  files.script = [&](const char* call, const std::string&) -> Status {
    bool hit = std::string(call) == "pread" && left > 0 && left-- > 0;
    return hit ? Status(StatusCode::io_error, "injected") : Status();
  };
  EXPECT_EQ(tier->read(image.header.name).status().code(), StatusCode::io_error);
  EXPECT_TRUE(tier->read(image.header.name).ok()) << "the file stayed";
  SsdStats stats = tier->stats();
  EXPECT_EQ(stats.read_errors, 1u);
  EXPECT_EQ(stats.corruptions, 0u);
  EXPECT_EQ(stats.quarantine_files, 0u);
}

// As damaged as one that can't be read: putting the profile again is right.
TEST(Damage, AProfileFileThatHoldsAnotherIsWrittenAnew) {
  TempDir dir;
  auto tier = open_tier(dir, small_options());
  Profile one = sample_profile(1), other = sample_profile(2);
  ASSERT_TRUE(tier->put_profile(one).ok());
  ASSERT_TRUE(tier->put_profile(other).ok());
  auto path = [&](const Profile& p) {
    return dir.store() + "/" + folder_name(folder_of(p.id())) + "/" + profile_file_name(p.id());
  };
  fs::copy_file(path(other), path(one), fs::copy_options::overwrite_existing);
  EXPECT_EQ(tier->read_profile(one.id()).status().code(), StatusCode::corruption);
  ASSERT_TRUE(tier->put_profile(one).ok());
  auto read = tier->read_profile(one.id());
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ((*read)->id(), one.id());
}

TEST(Damage, AWipeGoesOnBehindWhatItCannotRemoveAndSaysHowMuchIsLeft) {
  TempDir dir;
  FaultFiles files;
  std::mt19937_64 rng(24);
  auto images = sample_chain(rng, 4);
  auto tier = open_tier(dir, small_options(&files));
  put_all(*tier, images);
  for (const auto& image : images) {
    flip_byte(path_of(dir, image.header.name), 300);
    EXPECT_FALSE(tier->read(image.header.name).ok());
  }
  for (const char* name : {"/tmp/1000.tmp", "/tmp/1001.tmp", "/tmp/1002.tmp"}) {
    std::ofstream(dir.store() + name) << "left over";
  }
  int temps = 0, moved = 0;  // the first of each is in the way
  files.script = [&](const char* call, const std::string& path) -> Status {
    bool temp = path.find("/tmp/") != path.npos, bad = path.find("/quarantine/") != path.npos;
    bool hit = std::string(call) == "unlink" && ((temp && temps++ == 0) || (bad && moved++ == 0));
    return hit ? Status(StatusCode::io_error, "injected") : Status();
  };
  Status wiped = tier->wipe();
  EXPECT_EQ(wiped.code(), StatusCode::io_error);
  EXPECT_NE(wiped.message().find("1 temporary files are left: injected"), std::string::npos)
      << wiped.message();
  auto count = [](const std::string& folder) {
    return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
  };
  EXPECT_EQ(count(dir.store() + "/tmp"), 1);
  EXPECT_EQ(count(dir.store() + "/quarantine"), 1);
  EXPECT_EQ(tier->stats().quarantine_files, 1u);
  files.script = nullptr;
  EXPECT_TRUE(tier->wipe().ok());
  EXPECT_EQ(count(dir.store() + "/tmp") + count(dir.store() + "/quarantine"), 0);
}

// In steps of any size; and what a reader would find, this finds.
TEST(Damage, EveryFileOfAStoreIsVerifiedInTurn) {
  TempDir dir;
  std::mt19937_64 rng(11);
  auto images = sample_chain(rng, 40);
  auto tier = open_tier(dir, small_options());
  put_all(*tier, images);
  Profile profile = sample_profile(1);
  ASSERT_TRUE(tier->put_profile(profile).ok());
  std::ofstream(dir.store() + "/3/a stranger") << "not ours";
  std::set<std::string> expected{profile_file_name(profile.id())};
  for (const auto& image : images) expected.insert(file_name(image.header.name));
  for (size_t most : {1u, 2u, 7u, 1000u}) {
    std::vector<std::string> seen;
    while (true) {
      auto files = tier->files_after(seen.empty() ? "" : seen.back(), most);
      ASSERT_TRUE(files.ok()) << files.status().to_string();
      ASSERT_LE(files->size(), most);
      if (files->empty()) break;
      for (const ListedFile& f : *files) {
        EXPECT_EQ(f.info.bytes, fs::file_size(dir.store() + "/" + f.name[0] + "/" + f.name));
        EXPECT_TRUE(tier->verify(f.name).ok());
        seen.push_back(f.name);
      }
    }
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
    EXPECT_EQ(std::set<std::string>(seen.begin(), seen.end()), expected);
    EXPECT_EQ(seen.size(), expected.size()) << "each once";
  }
  for (const std::string& name : expected) {
    std::string path = dir.store() + "/" + name[0] + "/" + name;
    flip_byte(path, static_cast<long>(fs::file_size(path)) - 1);
    EXPECT_EQ(tier->verify(name).code(), StatusCode::corruption) << name;
    EXPECT_FALSE(fs::exists(path)) << name << " is in quarantine";
    EXPECT_EQ(tier->verify(name).code(), StatusCode::not_found);
  }
  EXPECT_EQ(tier->stats().corruptions, expected.size());
  EXPECT_EQ(tier->stats().quarantine_files, expected.size());
  fs::remove(dir.store() + "/3/a stranger");  // the tier never knew it
  EXPECT_EQ(tier->stats().used_bytes, du(dir.store()));
}

}  // namespace
}  // namespace kv
