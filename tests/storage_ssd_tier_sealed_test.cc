// A tier with a key: nothing of a prompt in plain in its directory; plain and sealed files side by
// side; files of other keys stay until their room is needed; a key in memory is gone with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "storage/file_reader.h"
#include "storage/inspect.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

using namespace kv::testing;
namespace fs = std::filesystem;

SsdOptions options_with(std::shared_ptr<const SealKey> key, uint64_t limit_bytes = 64 << 20) {
  SsdOptions options = small_options(nullptr, limit_bytes);
  options.key = std::move(key);
  return options;
}

// Canaries: patterns that stand for the prompt in each thing that is stored of it.
constexpr const char* kTokens = "TOKNTOKN";
constexpr const char* kRows = "ROWSROWS";
constexpr const char* kNamespace = "tenant-canary";
constexpr const char* kModel = "model-canary";
constexpr const char* kExtra = "EXTRAEXTRA";

Bytes canary_rows(size_t size) {
  std::vector<uint8_t> out(size);
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<uint8_t>(kRows[i % 8]);
  return Bytes::owning(std::move(out));
}

Object canary_block(std::mt19937_64& rng, const Id& parent, uint32_t first_token) {
  Object o = sample_block(rng, parent, first_token);
  for (auto& token : o.tokens) token = 0x4e4b4f54;  // "TOKN"
  for (auto& plane : o.planes) plane.bytes = canary_rows(plane.bytes.size());
  std::string extra = kExtra;
  o.extras = {{first_token, {extra.begin(), extra.end()}}};
  stamp(o, sample_realm(kNamespace));
  return o;
}

// Stores canaries in every kind of file, among them one in quarantine and one that stays in tmp/;
// returns which of them lie in plain in which folder or file of the directory.
std::set<std::pair<std::string, std::string>> canaries_found(std::shared_ptr<const SealKey> key) {
  TempDir dir;
  FaultFiles files;
  std::mt19937_64 rng(71);
  SsdOptions options = options_with(std::move(key));
  options.files = &files;
  auto tier = open_tier(dir, options);
  std::vector<FileImage> images;
  Id parent;
  for (uint32_t i = 0; i < 4; ++i) {
    Object block = canary_block(rng, parent, i * 16);
    parent = block.name.id;
    images.push_back(raw_image(block));
  }
  Object supplement = sample_supplement(rng, images[0].header, 1, 0, 4);
  supplement.planes[0].bytes = canary_rows(supplement.planes[0].bytes.size());
  images.push_back(raw_image(supplement));
  Object snapshot = sample_snapshot(rng, images[0].header, 2);
  for (auto& token : snapshot.tokens) token = 0x4e4b4f54;
  snapshot.states[0].bytes = canary_rows(100);
  stamp(snapshot, sample_realm(kNamespace));
  images.push_back(raw_image(snapshot));
  put_all(*tier, images);
  ModelRecord record = sample_record(1);
  record.ns = kNamespace;
  record.model.name = kModel;
  EXPECT_TRUE(tier->put_model_record(record).ok());
  Profile profile = sample_profile(1);
  float mean;
  std::memcpy(&mean, kRows, sizeof(mean));
  profile.parts[0][0].key_mean.assign(8, mean);
  EXPECT_TRUE(tier->put_profile(profile).ok());
  EXPECT_TRUE(tier->checkpoint().ok());  // so that both the database and its log are there
  put_all(*tier, {raw_image(canary_block(rng, parent, 64))});
  std::string damaged = path_of(dir, images[3].header.name);
  flip_byte(damaged, static_cast<long>(fs::file_size(damaged)) - 20);
  EXPECT_EQ(tier->read(images[3].header.name).status().code(), StatusCode::corruption);
  files.script = [](const char* call, const std::string& path) -> Status {
    bool hit = path.ends_with(".tmp") &&
               (std::string(call) == "unlink" || std::string(call) == "fdatasync");
    return hit ? Status(StatusCode::io_error, "injected") : Status();
  };
  FileImage failing = raw_image(canary_block(rng, parent, 80));
  EXPECT_FALSE(tier->put({&failing, 1}, Durability::spilled)[0].status.ok());
  std::set<std::pair<std::string, std::string>> found;
  for (const auto& entry : fs::recursive_directory_iterator(dir.store())) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), {});
    std::string folder = entry.path().parent_path().filename();
    std::string where = entry.path().extension();  // of its kind
    if (folder == "tmp" || folder == "quarantine") where = folder;
    if (entry.path().filename() == "catalog.db-wal") where = "log";
    for (const char* canary : {kTokens, kRows, kNamespace, kModel, kExtra}) {
      if (bytes.find(canary) != std::string::npos) found.emplace(where, canary);
    }
  }
  return found;
}

TEST(SealedTier, NothingOfAPromptLiesInPlainInAnyFile) {
  using Found = std::set<std::pair<std::string, std::string>>;
  Found plain = canaries_found(nullptr);
  for (auto where : {".block", "log", ".db", "tmp", "quarantine"}) {
    EXPECT_TRUE(plain.contains({where, kTokens})) << "without a key there is one in " << where;
    EXPECT_TRUE(plain.contains({where, kNamespace})) << where;
    EXPECT_TRUE(plain.contains({where, kExtra})) << where;
  }
  for (auto where : {".block", ".supplement", ".snapshot", ".profile", "tmp", "quarantine"}) {
    EXPECT_TRUE(plain.contains({where, kRows})) << where;
  }
  EXPECT_TRUE(plain.contains({".model", kModel}));
  EXPECT_TRUE(plain.contains({".model", kNamespace}));
  EXPECT_EQ(canaries_found(sample_key(1)), Found()) << "with a key there is none";
}

// The same object, the same name, the same key: the salts are all that differs.
TEST(SealedTier, EveryFileHasASaltOfItsOwn) {
  std::mt19937_64 rng(78);
  auto images = sample_chain(rng, 3);
  std::set<std::string> salts, heads;
  for (int store : {1, 2}) {
    TempDir dir;
    put_all(*open_tier(dir, options_with(sample_key(1))), images);
    for (const auto& image : images) {
      std::ifstream in(path_of(dir, image.header.name), std::ios::binary);
      std::string bytes((std::istreambuf_iterator<char>(in)), {});
      salts.insert(bytes.substr(40, 32));
      heads.insert(bytes.substr(72));  // tags and what is encrypted
    }
    EXPECT_EQ(salts.size(), static_cast<size_t>(store) * images.size());
  }
  EXPECT_EQ(heads.size(), 2 * images.size());
}

TEST(SealedTier, ARestartKnowsAllByItsSealedRowsOrFromTheFiles) {
  TempDir dir;
  std::mt19937_64 rng(72);
  auto images = sample_chain(rng, 40);
  images[3].header.extras = {};
  {
    auto tier = open_tier(dir, options_with(sample_key(1)));
    put_all(*tier, images);
    ASSERT_TRUE(tier->put_profile(sample_profile(1)).ok());
    ASSERT_TRUE(tier->put_model_record(sample_record(1)).ok());
  }
  for (bool catalog : {true, false}) {
    if (!catalog) fs::remove(dir.store() + "/catalog.db");
    Recovery found;
    auto tier = open_tier(dir, options_with(sample_key(1)), &found);
    EXPECT_EQ(found.rows_used, catalog ? images.size() : 0u);
    EXPECT_EQ(found.adopted, catalog ? 0u : images.size());
    EXPECT_EQ(names_of(found), names_of(images));
    EXPECT_THAT(found.models, ::testing::ElementsAre(sample_record(1)));
    ASSERT_EQ(found.profiles.size(), 1u);
    EXPECT_EQ(**tier->read_profile(sample_profile(1).id()), sample_profile(1));
    for (const auto& image : images) {
      auto read = tier->read(image.header.name);
      ASSERT_TRUE(read.ok()) << read.status().to_string();
      expect_same(image, *read);
    }
    EXPECT_EQ(tier->stats().used_bytes, du(dir.store()));
  }
}

// The key comes later, goes, and another comes: what each owner can read it reads, what it can't it
// leaves alone.
TEST(SealedTier, PlainAndSealedFilesAndThoseOfOtherKeysLieSideBySide) {
  TempDir dir;
  std::mt19937_64 rng(73);
  std::vector<std::vector<FileImage>> stored;  // by no key, key 1, key 2
  for (uint8_t key = 0; key < 3; ++key) {
    auto tier = open_tier(dir, options_with(key == 0 ? nullptr : sample_key(key)));
    stored.push_back(sample_chain(rng, 5));
    put_all(*tier, stored.back());
    ASSERT_TRUE(tier->put_profile(sample_profile(key)).ok());
    ASSERT_TRUE(tier->put_model_record(sample_record(1)).ok()) << "above all others";
  }
  for (uint8_t key : {0, 1, 2, 0}) {
    SCOPED_TRACE("key " + std::to_string(key));
    Recovery found;
    auto tier = open_tier(dir, options_with(key == 0 ? nullptr : sample_key(key)), &found);
    uint64_t others = key == 0 ? 14 : 7;  // five blocks, a profile and a record each
    EXPECT_EQ(found.other_key_files, others);
    EXPECT_EQ(tier->stats().other_key_files, others);
    EXPECT_EQ(tier->stats().other_key_bytes, found.other_key_bytes);
    EXPECT_GE(found.other_key_bytes, others * 4096);
    EXPECT_EQ(found.quarantined + found.unknown_files + found.unreadable, 0u);
    EXPECT_EQ(found.objects.size(), key == 0 ? 5u : 10u);
    ASSERT_EQ(found.models.size(), key == 1 ? 1u : key == 2 ? 1u : 0u);
    for (const auto& model : found.models) EXPECT_EQ(model.serial, key + 1u);
    for (uint8_t by = 0; by < 3; ++by) {
      for (const auto& image : stored[by]) {
        auto read = tier->read(image.header.name);
        if (by == 0 || by == key) {
          ASSERT_TRUE(read.ok()) << read.status().to_string();
          expect_same(image, *read);
        } else {
          EXPECT_EQ(read.status().code(), StatusCode::unsupported);
        }
      }
    }
    EXPECT_EQ(tier->stats().corruptions, 0u);
    EXPECT_EQ(tier->stats().used_bytes, du(dir.store()));
  }
  // Stored again by the owner of now: its own, under the same name.
  auto tier = open_tier(dir, options_with(sample_key(2)));
  put_all(*tier, stored[1]);
  for (const auto& image : stored[1]) EXPECT_TRUE(tier->read(image.header.name).ok());
  EXPECT_EQ(tier->stats().other_key_files, 2u);
  EXPECT_EQ(tier->stats().used_bytes, du(dir.store()));
}

// Every start but the first has a key that is wrong for some of the files.
TEST(SealedTier, RowsOfOtherKeysStayAsLongAsTheirFiles) {
  TempDir dir;
  std::mt19937_64 rng(77);
  std::vector<std::vector<FileImage>> stored{{}, sample_chain(rng, 5), sample_chain(rng, 3)};
  std::map<ObjectName, uint64_t> recency;
  for (size_t key : {1, 2}) {
    auto tier = open_tier(dir, options_with(sample_key(static_cast<uint8_t>(key))));
    put_all(*tier, stored[key]);
    tier->touch(std::span(&stored[key][0].header.name, 1));
  }
  for (size_t key : {0, 1, 2, 1, 0, 2, 1}) {
    SCOPED_TRACE("key " + std::to_string(key));
    Recovery found;
    auto with = key == 0 ? nullptr : sample_key(static_cast<uint8_t>(key));
    open_tier(dir, options_with(with), &found);
    EXPECT_EQ(found.rows_used, stored[key].size());
    EXPECT_EQ(found.adopted + found.rows_dropped, 0u);
    EXPECT_EQ(found.other_key_files, 8 - stored[key].size());
    for (const auto& o : found.objects) {
      uint64_t first = recency.try_emplace(o.header.name, o.recency).first->second;
      EXPECT_EQ(o.recency, first);
    }
  }
  ASSERT_TRUE(fs::remove(dir.store() + "/" + relative_path(stored[1][4].header.name)));
  Recovery found;
  auto tier = open_tier(dir, options_with(sample_key(2)), &found);
  EXPECT_EQ(found.rows_dropped, 1u) << "that of the file that went";
  put_all(*tier, {stored[1][0]});  // in place of the other key's
  tier.reset();
  open_tier(dir, options_with(sample_key(2)), &found);
  EXPECT_EQ(found.rows_used, 4u);
  tier = open_tier(dir, options_with(sample_key(1)), &found);
  EXPECT_EQ(found.rows_used, 3u);
  EXPECT_EQ(found.rows_dropped, 0u);
}

TEST(SealedTier, FilesOfOtherKeysMakeRoomTheNewestFirstAndRecordsLast) {
  constexpr uint64_t kLimitBytes = kMinLimitBytes + (2 << 20);  // for one or two of the first
  TempDir dir;
  std::mt19937_64 rng(74);
  auto first = sample_chain(rng, 4, 1 << 13), second = sample_chain(rng, 4, 1 << 13);  // 1 MiB each
  {
    auto tier = open_tier(dir, options_with(sample_key(1), kLimitBytes));
    put_all(*tier, first);
    ASSERT_TRUE(tier->put_profile(sample_profile(1)).ok());
    ASSERT_TRUE(tier->put_model_record(sample_record(1)).ok());  // the newest
  }
  auto time = fs::file_time_type::clock::now() - std::chrono::hours(1);
  for (const auto& image : first) {
    fs::last_write_time(path_of(dir, image.header.name), time += std::chrono::seconds(1));
  }
  auto tier = open_tier(dir, options_with(sample_key(2), kLimitBytes));
  EXPECT_GE(tier->room_left(), 4u << 20) << "their room counts as left";
  put_all(*tier, {second.begin(), second.begin() + 1});
  put_all(*tier, {first[3]});  // one of them becomes this owner's own
  put_all(*tier, {second.begin() + 1, second.end()});
  EXPECT_FALSE(fs::exists(path_of(dir, first[2].header.name))) << "the newest goes first";
  EXPECT_TRUE(fs::exists(path_of(dir, first[0].header.name))) << "the root last";
  EXPECT_EQ(tier->stats().other_key_dropped + tier->stats().other_key_files, 5u);
  EXPECT_GT(tier->stats().other_key_dropped, 0u);
  EXPECT_TRUE(tier->read(first[3].header.name).ok()) << "and never what took its name";
  for (const auto& image : second) EXPECT_TRUE(tier->read(image.header.name).ok());
  EXPECT_EQ(tier->stats().used_bytes, du(dir.store()));
  EXPECT_LE(du(dir.store()), kLimitBytes);
  tier.reset();
  Recovery found;
  (void)open_tier(dir, options_with(sample_key(1), kLimitBytes), &found);
  EXPECT_EQ(found.profiles.size(), 1u) << "its key is back";
  EXPECT_EQ(found.models.size(), 1u);
  EXPECT_TRUE(names_of(found).contains(first[0].header.name));
}

// Somebody put another file in the place of one that was listed: it is not this owner's to remove.
TEST(SealedTier, OnlyWhatIsStillOfAnotherKeyMakesRoom) {
  TempDir dir;
  std::mt19937_64 rng(77);
  auto first = sample_chain(rng, 4, 1 << 13), second = sample_chain(rng, 4, 1 << 13);
  put_all(*open_tier(dir, options_with(sample_key(1), kMinLimitBytes)), first);
  fs::last_write_time(path_of(dir, first[0].header.name),  // so that it is the first to go
                      fs::file_time_type::clock::now() + std::chrono::hours(1));
  auto tier = open_tier(dir, options_with(sample_key(2), kMinLimitBytes));
  auto plain = encode_file(first[0])->flatten();
  std::ofstream(path_of(dir, first[0].header.name), std::ios::binary)
      .write(reinterpret_cast<const char*>(plain.data()), static_cast<long>(plain.size()));
  put_all(*tier, second);
  EXPECT_TRUE(fs::exists(path_of(dir, first[0].header.name)));
  EXPECT_GT(tier->stats().other_key_dropped, 0u);
}

TEST(SealedTier, ProfilesAndRecordsOfAnotherKeyAreNotErasedWhatIsErasedByNameIsCountedNoMore) {
  TempDir dir;
  std::mt19937_64 rng(79);
  auto images = sample_chain(rng, 2);
  Id profile = sample_profile(1).id(), model = model_id("tenant", sample_realm().fingerprint);
  {
    auto tier = open_tier(dir, options_with(sample_key(1)));
    put_all(*tier, images);
    ASSERT_TRUE(tier->put_profile(sample_profile(1)).ok());
    ASSERT_TRUE(tier->put_model_record(sample_record(1)).ok());
  }
  {
    auto tier = open_tier(dir, options_with(sample_key(2)));
    EXPECT_TRUE(tier->erase_profile(profile).ok());
    EXPECT_TRUE(tier->erase_model_records(model).ok());
    EXPECT_EQ(tier->stats().other_key_files, 4u);
    std::vector<ObjectName> name = {images[1].header.name};
    ASSERT_TRUE(tier->erase(name).ok());
    EXPECT_EQ(tier->stats().other_key_files, 3u);
    EXPECT_EQ(tier->stats().used_bytes, du(dir.store()));
  }
  Recovery found;
  auto tier = open_tier(dir, options_with(sample_key(1)), &found);
  EXPECT_EQ(found.profiles.size(), 1u);
  EXPECT_EQ(found.models.size(), 1u);
  EXPECT_EQ(found.objects.size(), 1u);
  EXPECT_TRUE(tier->erase_profile(profile).ok());
  EXPECT_FALSE(tier->read_profile(profile).ok()) << "its owner erases it";
}

TEST(SealedTier, WhatAKeyInMemorySealedIsDroppedByTheNextOne) {
  TempDir dir;
  std::mt19937_64 rng(75);
  auto kept = sample_chain(rng, 2), gone = sample_chain(rng, 3);
  auto key = *SealKey::make_ephemeral();
  put_all(*open_tier(dir, options_with(sample_key(1))), kept);
  {
    auto tier = open_tier(dir, options_with(key));
    put_all(*tier, gone);
    ASSERT_TRUE(tier->put_model_record(sample_record(1)).ok());
    ASSERT_TRUE(tier->put_profile(sample_profile(1)).ok());
  }
  Recovery found;
  (void)open_tier(dir, options_with(key), &found);
  EXPECT_EQ(found.objects.size(), 3u) << "as long as the key is there";
  (void)open_tier(dir, options_with(sample_key(1)), &found);
  EXPECT_EQ(found.ephemeral_dropped, 0u) << "an owner with a key in a file deletes nothing";
  EXPECT_EQ(found.other_key_files, 5u);
  auto tier = open_tier(dir, options_with(*SealKey::make_ephemeral()), &found);
  EXPECT_EQ(found.ephemeral_dropped, 5u);
  EXPECT_EQ(found.other_key_files, 2u) << "a key in a file may come back";
  EXPECT_EQ(found.quarantined + found.objects.size() + found.unknown_files, 0u);
  for (const auto& file : found.rejected) EXPECT_FALSE(file.reason.message().empty());
  EXPECT_EQ(found.rejected.size(), 2u) << "what was dropped is counted only";
  EXPECT_EQ(tier->stats().used_bytes, du(dir.store()));
  for (const auto& image : gone) EXPECT_FALSE(fs::exists(path_of(dir, image.header.name)));
  ASSERT_TRUE(tier->put_model_record(sample_record(1)).ok()) << "its name is free again";
  tier.reset();
  (void)open_tier(dir, options_with(sample_key(1)), &found);
  EXPECT_EQ(names_of(found), names_of(kept));
}

TEST(SealedTier, DamageUnderItsOwnKeyGoesToQuarantineAndIsInspectedThere) {
  TempDir dir;
  std::mt19937_64 rng(76);
  auto images = sample_chain(rng, 3);
  auto key = sample_key(1);
  auto tier = open_tier(dir, options_with(key));
  put_all(*tier, images);
  flip_byte(path_of(dir, images[1].header.name), 200);
  EXPECT_EQ(tier->read(images[1].header.name).status().code(), StatusCode::corruption);
  ASSERT_TRUE(tier->quarantine(images[2].header.name).ok());
  for (const SealKey* with : {key.get(), static_cast<const SealKey*>(nullptr)}) {
    auto seen = inspect_directory(dir.store(), InspectDepth::verify, with);
    ASSERT_TRUE(seen.ok());
    ASSERT_EQ(seen->files.size(), 1u);
    EXPECT_EQ(seen->files[0].status.ok(), with != nullptr);
    EXPECT_EQ(seen->files[0].other_key.has_value(), with == nullptr);
    EXPECT_EQ(seen->totals.other_key_files, with == nullptr ? 1u : 0u);
    EXPECT_EQ(seen->totals.damaged_files + seen->totals.unknown_files, 0u);
    ASSERT_EQ(seen->quarantined.size(), 2u);
    auto why = [&](size_t i) {
      return inspect_quarantined(dir.store(), seen->quarantined[i], with).code();
    };
    EXPECT_EQ(why(0), with != nullptr ? StatusCode::corruption : StatusCode::unsupported);
    EXPECT_EQ(why(1), with != nullptr ? StatusCode::ok : StatusCode::unsupported);
    auto image = inspect_object(dir.store(), images[0].header.name, with);
    EXPECT_EQ(image.ok(), with != nullptr);
  }
}

}  // namespace
}  // namespace kv
