// Recovery: any damage to the catalog, any stray file; files are the truth. Kills and failed calls:
// storage_kill_test.cc, storage_fault_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "storage/ssd_tier.h"
#include "tests/support/storage_decode_file.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

using namespace kv::testing;
namespace fs = std::filesystem;

class CatalogDamage : public ::testing::Test {
 protected:
  void SetUp() override {
    std::mt19937_64 rng(21);
    images_ = sample_chain(rng, 40);
    auto tier = SsdTier::open(dir_.store(), small_options());
    ASSERT_TRUE(tier.ok() && (*tier)->recover().ok());
    for (const auto& r : (*tier)->put(images_, Durability::spilled)) ASSERT_TRUE(r.status.ok());
    ASSERT_TRUE((*tier)->checkpoint().ok());
  }
  Recovery reopen() {
    auto tier = SsdTier::open(dir_.store(), small_options());
    KV_CHECK(tier.ok());
    auto found = (*tier)->recover();
    KV_CHECK(found.ok());
    EXPECT_EQ((*tier)->stats().used_bytes, du(dir_.store()));
    EXPECT_EQ((*tier)->stats().catalog_failures, 0u);
    return std::move(*found);
  }
  void expect_all(const Recovery& found) {
    std::set<ObjectName> names;
    for (const auto& object : found.objects) {
      names.insert(object.header.name);
      auto image = std::find_if(images_.begin(), images_.end(), [&](const FileImage& i) {
        return i.header.name == object.header.name;
      });
      ASSERT_NE(image, images_.end());
      EXPECT_EQ(object.header.tokens, image->header.tokens);
      EXPECT_EQ(object.header.parent, image->header.parent);
    }
    EXPECT_EQ(names.size(), images_.size());
  }
  std::string catalog() const { return dir_.store() + "/catalog.db"; }
  void sql(const std::string& text) {
    sqlite3* db = nullptr;
    KV_CHECK(sqlite3_open(catalog().c_str(), &db) == SQLITE_OK);
    char* error = nullptr;
    EXPECT_EQ(sqlite3_exec(db, text.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
    sqlite3_close(db);
  }

  TempDir dir_;
  std::vector<FileImage> images_;
};

TEST_F(CatalogDamage, DeletedEmptiedTruncatedOrForeignIsRebuilt) {
  auto size = fs::file_size(catalog());
  std::vector<std::pair<const char*, std::function<void()>>> cases = {
      {"deleted", [&] { fs::remove(catalog()); }},
      {"truncated in the middle", [&] { fs::resize_file(catalog(), size / 2 + 100); }},
      {"truncated in the header", [&] { fs::resize_file(catalog(), 50); }},
      {"text", [&] { std::ofstream(catalog()) << "this is no database at all, sorry"; }},
      {"other version", [&] { sql("PRAGMA user_version=77"); }},
      {"other application", [&] { sql("PRAGMA application_id=77"); }},
      {"other columns", [&] { sql("ALTER TABLE objects RENAME COLUMN tokens TO words"); }},
      {"no table", [&] { sql("DROP TABLE objects"); }},
      {"a directory", [&] {
         fs::remove(catalog());
         fs::create_directory(catalog());
       }}};
  for (const auto& [name, damage] : cases) {
    SCOPED_TRACE(name);
    damage();
    Recovery found = reopen();
    EXPECT_NE(found.catalog_rebuilt, "");
    EXPECT_EQ(found.adopted, images_.size());
    expect_all(found);
    found = reopen();
    EXPECT_EQ(found.catalog_rebuilt, "");
    EXPECT_EQ(found.rows_used, images_.size());
  }
}

// Somebody looks into it with a tool of his own: no reason to throw it away.
TEST_F(CatalogDamage, ACatalogInUseElsewhereIsLeftAloneAndTheFilesServe) {
  sqlite3* reader = nullptr;
  ASSERT_EQ(sqlite3_open(catalog().c_str(), &reader), SQLITE_OK);
  auto exec = [&](const char* text) {
    return sqlite3_exec(reader, text, nullptr, nullptr, nullptr);
  };
  ASSERT_EQ(exec("BEGIN; SELECT count(*) FROM objects"), SQLITE_OK);
  {
    auto tier = SsdTier::open(dir_.store(), small_options());
    ASSERT_TRUE(tier.ok());
    auto found = (*tier)->recover();
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    EXPECT_THAT(found->catalog_rebuilt, ::testing::HasSubstr("locked"));
    EXPECT_EQ((*tier)->stats().quarantine_files, 0u);
    EXPECT_GT((*tier)->stats().catalog_failures, 0u);
    expect_all(*found);
  }
  sqlite3_close(reader);
  Recovery found = reopen();
  EXPECT_EQ(found.catalog_rebuilt, "");
  EXPECT_EQ(found.rows_used, images_.size());
}

// What a lying row says, the headers correct; what only rows tell, stays.
TEST_F(CatalogDamage, ReindexReadsEveryHeaderAndKeepsTheOrderOfUse) {
  Recovery before = reopen();
  std::map<ObjectName, uint64_t> recency;
  for (const auto& o : before.objects) recency[o.header.name] = o.recency;
  sql("UPDATE objects SET unpacked_bytes = 1 WHERE rowid = 3; DELETE FROM objects WHERE rowid = 4");
  SsdOptions options = small_options();
  options.reindex = true;
  auto tier = SsdTier::open(dir_.store(), options);
  ASSERT_TRUE(tier.ok());
  auto found = (*tier)->recover();
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->rows_used, 0u);
  EXPECT_EQ(found->adopted, images_.size());
  expect_all(*found);
  uint64_t kept = 0;
  for (const auto& o : found->objects) {
    EXPECT_EQ(o.unpacked_bytes, images_[0].unpacked_bytes());
    kept += recency[o.header.name] == o.recency;
  }
  EXPECT_EQ(kept, images_.size() - 1);
  EXPECT_EQ((*tier)->stats().used_bytes, du(dir_.store()));
  (*tier).reset();
  EXPECT_EQ(reopen().rows_used, images_.size());
}

TEST_F(CatalogDamage, AnEmptiedCatalogIsFilledAgain) {
  fs::resize_file(catalog(), 0);
  Recovery found = reopen();
  EXPECT_EQ(found.adopted, images_.size());
  expect_all(found);
}

TEST_F(CatalogDamage, FlippedBytesNeverChangeWhatIsFound) {
  uint64_t seed = 31;
  std::mt19937_64 rng(seed);
  fs::copy(catalog(), dir_.path() + "/good.db");
  auto size = fs::file_size(catalog());
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed) + " round " + std::to_string(round));
    fs::copy_file(dir_.path() + "/good.db", catalog(), fs::copy_options::overwrite_existing);
    fs::remove_all(dir_.store() + "/quarantine");
    std::fstream file(catalog(), std::ios::in | std::ios::out | std::ios::binary);
    for (int flips = 0; flips < 1 + round % 5; ++flips) {
      file.seekp(static_cast<long>(rng() % size));
      file.put(static_cast<char>(rng()));
    }
    file.close();
    expect_all(reopen());
  }
}

// A store as a crash leaves it: what was put and erased last is in the catalog's log only.
class CatalogLog : public ::testing::Test {
 protected:
  void SetUp() override {
    std::mt19937_64 rng(22);
    images_ = sample_chain(rng, 60);
    auto tier = open_tier(dir_, small_options());
    put({0, 20}, *tier);
    copy(dir_.store(), "/older");
    ASSERT_TRUE(tier->checkpoint().ok());
    put({20, 50}, *tier);
    copy(dir_.store(), "/middle");
    put({50, 60}, *tier);
    std::vector<ObjectName> erased;  // some of each part
    for (size_t i = 5; i < images_.size(); i += 9) erased.push_back(images_[i].header.name);
    ASSERT_TRUE(tier->erase(erased).ok());
    left_ = names_of(images_);
    for (const auto& name : erased) left_.erase(name);
    copy(dir_.store(), "/torn");
    ASSERT_GT(fs::file_size(dir_.path() + "/torn/catalog.db-wal"), 10000u);
  }
  void put(std::pair<size_t, size_t> range, SsdTier& tier) {
    put_all(tier, {images_.begin() + static_cast<long>(range.first),
                   images_.begin() + static_cast<long>(range.second)});
  }
  void copy(const std::string& from, const std::string& to) {
    fs::copy(from, dir_.path() + to, fs::copy_options::recursive);
  }
  void take_log_of(const std::string& other) {
    fs::copy_file(dir_.path() + other + "/catalog.db-wal", log(),
                  fs::copy_options::overwrite_existing);
  }
  std::string log() const { return torn() + "/catalog.db-wal"; }
  std::string torn() const { return dir_.path() + "/case"; }
  /// What a start on a copy of the torn store finds after `damage`: all that is left, nothing that
  /// was erased, whatever the rows say.
  Recovery start_after(const std::function<void()>& damage) {
    fs::remove_all(torn());
    copy(dir_.path() + "/torn", "/case");
    damage();
    auto tier = SsdTier::open(torn(), small_options());
    KV_CHECK(tier.ok());
    auto found = (*tier)->recover();
    KV_CHECK(found.ok());
    EXPECT_EQ(names_of(*found), left_);
    for (const auto& image : images_) {
      if (!left_.contains(image.header.name)) continue;
      auto read = (*tier)->read(image.header.name);
      EXPECT_TRUE(read.ok()) << read.status().to_string();
      if (read.ok()) expect_same(image, *read);
    }
    EXPECT_EQ((*tier)->stats().used_bytes, du(torn()));
    return std::move(*found);
  }

  TempDir dir_{true};
  std::vector<FileImage> images_;
  std::set<ObjectName> left_;
};

TEST_F(CatalogLog, DeletedTruncatedOrOfAnotherTimeChangesNothingThatIsFound) {
  Recovery whole = start_after([] {});
  EXPECT_EQ(whole.rows_used, left_.size());
  EXPECT_EQ(whole.adopted + whole.rows_dropped, 0u) << "the log was read";
  auto size = fs::file_size(dir_.path() + "/torn/catalog.db-wal");
  std::vector<std::pair<const char*, std::function<void()>>> cases = {
      {"deleted", [&] { fs::remove(log()); }},
      {"emptied", [&] { fs::resize_file(log(), 0); }},
      {"cut in its header", [&] { fs::resize_file(log(), 20); }},
      {"cut after its first pages", [&] { fs::resize_file(log(), size / 3); }},
      {"cut in its last page", [&] { fs::resize_file(log(), size - 100); }},
      {"of before the checkpoint", [&] { take_log_of("/older"); }},
      {"of before the erase", [&] { take_log_of("/middle"); }}};
  for (const auto& [name, damage] : cases) {
    SCOPED_TRACE(name);
    Recovery found = start_after(damage);
    EXPECT_GT(found.adopted + found.rows_dropped, 0u) << "rows were missing, or too many";
    EXPECT_EQ(found.rows_used + found.adopted, left_.size());
  }
}

TEST_F(CatalogLog, FlippedBytesNeverChangeWhatIsFound) {
  constexpr uint64_t kSeed = 33;
  std::mt19937_64 rng(kSeed);
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE("seed " + std::to_string(kSeed) + " round " + std::to_string(round));
    start_after([&] {
      for (int flips = 0; flips < 1 + round % 5; ++flips) {
        flip_byte(log(), static_cast<long>(rng() % fs::file_size(log())));
      }
    });
    if (HasFailure()) return;
  }
}

// A row that lies consistently with SQLite's own checks is found out by its id.
TEST_F(CatalogDamage, RowsThatLieAreReplacedFromTheFiles) {
  sql("UPDATE objects SET tokens = zeroblob(64) WHERE rowid = 3;"
      "UPDATE objects SET parent = zeroblob(32) WHERE rowid = 4;"
      "UPDATE objects SET file_bytes = 5 WHERE rowid = 5;"
      "UPDATE objects SET kind = 2 WHERE rowid = 6;"
      "UPDATE objects SET namespace = 'other' WHERE rowid = 7;"
      "DELETE FROM objects WHERE rowid = 8;");
  Recovery found = reopen();
  EXPECT_EQ(found.adopted, 6u);
  EXPECT_EQ(found.rows_dropped, 5u);
  EXPECT_EQ(found.rows_used, images_.size() - 6);
  expect_all(found);
}

TEST_F(CatalogDamage, RowsWithoutFilesGoAndDamagedFilesAreQuarantined) {
  std::string store = dir_.store() + "/";
  fs::remove(store + relative_path(images_[0].header.name));
  fs::resize_file(store + relative_path(images_[1].header.name), 100);
  Recovery found = reopen();
  EXPECT_EQ(found.rows_dropped, 2u);
  EXPECT_EQ(found.quarantined, 1u);
  ASSERT_EQ(found.rejected.size(), 1u);
  EXPECT_EQ(found.rejected[0].file, file_name(images_[1].header.name));
  EXPECT_THAT(found.rejected[0].reason.message(), ::testing::HasSubstr("file length: expected"));
  EXPECT_EQ(found.objects.size(), images_.size() - 2);
  EXPECT_FALSE(fs::is_empty(store + "quarantine"));
}

// Orphans stay; files of strangers and of other versions stay and count; stale temporaries go.
// Puts and erases go on meanwhile; what is damaged goes to quarantine with its reason.
TEST_F(CatalogDamage, FilesBeyondTheFirstAreReadLaterTheOldestFirst) {
  fs::remove(dir_.store() + "/catalog.db");
  auto written = fs::file_time_type::clock::now() - std::chrono::hours(1);
  for (const auto& image : images_) {
    fs::last_write_time(path_of(dir_, image.header.name), written += std::chrono::seconds(1));
  }
  flip_byte(path_of(dir_, images_[30].header.name), 60);
  SsdOptions options = small_options();
  options.adopt_at_start = 10;
  auto tier = SsdTier::open(dir_.store(), options);
  ASSERT_TRUE(tier.ok());
  auto found = (*tier)->recover();
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->objects.size(), 10u);
  EXPECT_EQ(found->unread, 30u);
  EXPECT_EQ((*tier)->stats().used_bytes, du(dir_.store())) << "what is unread counts";
  EXPECT_TRUE((*tier)->put({&images_[20], 1}, Durability::spilled)[0].existed);
  ASSERT_TRUE((*tier)->erase({&images_[39].header.name, 1}).ok());
  for (uint64_t unread = found->unread; unread > 0;) {
    Recovery more = (*tier)->adopt_more(7);
    EXPECT_EQ(more.unread, unread - std::min<uint64_t>(unread, 7));
    EXPECT_EQ(more.rejected.size(), more.quarantined);
    found->quarantined += more.quarantined;
    unread = more.unread;
    std::move(more.objects.begin(), more.objects.end(), std::back_inserter(found->objects));
  }
  EXPECT_EQ(found->quarantined, 1u);
  std::sort(found->objects.begin(), found->objects.end(),
            [](const auto& a, const auto& b) { return a.recency < b.recency; });
  std::vector<ObjectName> order, expected;
  for (const auto& object : found->objects) order.push_back(object.header.name);
  for (size_t i = 0; i < images_.size(); ++i) {
    if (i != 30 && i != 39) expected.push_back(images_[i].header.name);
  }
  EXPECT_EQ(order, expected) << "as they were written";
  tier->reset();
  Recovery again = reopen();
  EXPECT_EQ(again.rows_used, 38u);
  EXPECT_EQ(again.adopted, 0u);
}

TEST_F(CatalogDamage, NothingValidOrForeignIsDeleted) {
  std::string store = dir_.store() + "/";
  fs::remove(store + relative_path(images_[0].header.name));  // the root of the chain
  fs::remove(catalog());
  std::ofstream(store + "notes.txt") << std::string(9000, 'x');
  std::ofstream(store + "3/stranger") << "x";
  std::ofstream(store + "tmp/17.tmp") << std::string(50000, 'x');
  std::string other = store + relative_path(images_[5].header.name);
  std::fstream file(other, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(8);
  file.put(9);  // the version
  file.close();
  Recovery found = reopen();
  EXPECT_EQ(found.objects.size(), images_.size() - 2);
  EXPECT_EQ(found.temps_removed, 1u);
  EXPECT_EQ(found.unknown_files, 3u);
  EXPECT_GE(found.unknown_bytes, 9000u);
  EXPECT_EQ(found.quarantined, 0u);
  EXPECT_TRUE(fs::exists(other));
  EXPECT_TRUE(fs::exists(store + "notes.txt"));
  EXPECT_TRUE(fs::exists(store + "3/stranger"));
}

TEST_F(CatalogDamage, ALowerLimitDeletesNothing) {
  auto tier = SsdTier::open(dir_.store(), small_options(nullptr, kMinLimitBytes));
  ASSERT_TRUE(tier.ok());
  auto found = (*tier)->recover();
  ASSERT_TRUE(found.ok());
  expect_all(*found);
}

// Whole directories that earlier builds wrote, plain and sealed: read as they are, catalog and all.
// A change that breaks this needs a new version. KV_WRITE_GOLDEN=1 writes those that are missing.
class GoldenStore : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::mt19937_64 rng(77);
    images_ = sample_chain(rng, 3, 2);
    const Object& last = images_[2].header;
    Object tail = sample_block(rng, last.name.id, 48, 3, 2);
    tail.name.kind = ObjectKind::tail;
    stamp(tail, sample_realm());
    for (const Object& o :
         {tail, sample_supplement(rng, last, 1, 40, 48), sample_snapshot(rng, last, 2)}) {
      images_.push_back(raw_image(o));
    }
    if (GetParam() == std::string("store_of_catalog_3")) {  // and a file of version 4
      FileImage& split = images_[1];
      const uint64_t size = split.pieces[1].bytes.size();
      split.pieces[1] = {Packing::split, size, random_payload(rng, size / 2)};
    }
    options_ = small_options();
    if (GetParam() == std::string("sealed_store")) options_.key = sample_key(7);
    std::string golden = std::string(KV_GOLDEN_DIR) + "/" + GetParam();
    if (std::getenv("KV_WRITE_GOLDEN") != nullptr && !fs::exists(golden)) write(golden);
    fs::copy(golden, dir_.store(), fs::copy_options::recursive);
  }
  void write(const std::string& golden) {
    auto tier = *SsdTier::open(golden, options_);
    ASSERT_TRUE(tier->recover().ok());
    ASSERT_TRUE(tier->put_profile(sample_profile(1)).ok());
    ASSERT_TRUE(tier->put_model_record(sample_record(1)).ok());
    put_all(*tier, images_);
    tier->keep(kept_);
  }
  std::map<std::string, std::string> files() {  // but the catalog's
    std::map<std::string, std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(dir_.store())) {
      std::string name = entry.path().filename();
      if (!entry.is_regular_file() || name.starts_with("catalog.db") || name == "LOCK") continue;
      std::ifstream in(entry.path(), std::ios::binary);
      out[entry.path()] = {std::istreambuf_iterator<char>(in), {}};
    }
    return out;
  }

  TempDir dir_;
  SsdOptions options_;
  std::vector<FileImage> images_;
  KeptState kept_{{{493'000, 1000}, {493'001, 77}}, 0xfedc};
};

TEST_P(GoldenStore, IsReadWholeByItsCatalogAndWithoutIt) {
  for (bool catalog : {true, false}) {
    SCOPED_TRACE(catalog);
    if (!catalog) fs::remove(dir_.store() + "/catalog.db");
    Recovery found;
    auto tier = open_tier(dir_, options_, &found);
    ASSERT_TRUE(tier);
    EXPECT_EQ(found.catalog_rebuilt, catalog ? "" : "catalog: missing");
    EXPECT_EQ(found.rows_used, catalog ? images_.size() : 0);
    EXPECT_EQ(found.adopted, catalog ? 0 : images_.size());
    EXPECT_EQ(names_of(found), names_of(images_));
    bool kept = catalog && std::string(GetParam()).starts_with("store_of_catalog_");
    EXPECT_EQ(found.state, kept ? std::optional(kept_) : std::nullopt);
    ASSERT_EQ(found.profiles.size(), 1u);
    EXPECT_EQ(*found.profiles[0], sample_profile(1));
    EXPECT_EQ(found.models, std::vector<ModelRecord>{sample_record(1)});
    for (const auto& image : images_) {
      auto read = tier->read(image.header.name);
      ASSERT_TRUE(read.ok()) << read.status().to_string();
      expect_same(image, *read);
    }
  }
}

// What a later version would be, to this one: all of it a miss that stays as it is.
TEST_P(GoldenStore, OfALaterVersionIsAMissAndStays) {
  for (const auto& [path, bytes] : files()) {
    std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(8).put(9);
  }
  auto before = files();
  ASSERT_EQ(before.size(), images_.size() + 2);
  for (bool catalog : {true, false}) {
    SCOPED_TRACE(catalog);
    if (!catalog) fs::remove(dir_.store() + "/catalog.db");
    Recovery found;
    auto tier = open_tier(dir_, options_, &found);
    ASSERT_TRUE(tier);
    EXPECT_TRUE(found.profiles.empty() && found.models.empty());
    EXPECT_EQ(found.quarantined, 0u);
    if (!catalog) {
      EXPECT_TRUE(found.objects.empty());
      EXPECT_EQ(found.newer_files, before.size());
    }
    for (const auto& image : images_) {
      EXPECT_EQ(tier->read(image.header.name).status().code(), StatusCode::unsupported);
    }
    EXPECT_EQ(tier->stats().used_bytes, du(dir_.store()));
    tier.reset();
    EXPECT_EQ(files(), before);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, GoldenStore,
                         ::testing::Values("store", "sealed_store", "store_of_catalog_2",
                                           "store_of_catalog_3"),
                         [](const auto& of) { return std::string(of.param); });

// The golden files of streams (version 7) as a directory: its catalog is made anew.
TEST(GoldenStreams, AStoreOfThemIsReadWhole) {
  TempDir dir;
  const auto file = [](const char* name) {
    std::ifstream in(std::string(KV_GOLDEN_DIR) + "/../streams/" + name, std::ios::binary);
    return Bytes::owning({std::istreambuf_iterator<char>(in), {}});
  };
  const auto place = [&](const std::string& path, const Bytes& bytes) {
    fs::create_directories(fs::path(dir.store() + "/" + path).parent_path());
    std::ofstream out(dir.store() + "/" + path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
  };
  const auto profile = decode_profile_file(file("profile.bin"));
  const auto record = decode_model_record(file("model.bin"));
  ASSERT_TRUE(profile.ok() && record.ok());
  const Id id = profile->id(), model = model_id(record->ns, record->model.fingerprint);
  place(folder_name(folder_of(id)) + "/" + profile_file_name(id), file("profile.bin"));
  place(folder_name(folder_of(model)) + "/" + model_record_file_name(model, record->serial),
        file("model.bin"));
  std::ofstream(dir.store() + "/LOCK");
  std::vector<FileImage> images;
  for (const char* name : {"block.bin", "tail.bin"}) {
    EXPECT_EQ(file(name).span()[8], kStreamVersion);
    images.push_back(*decode_file(file(name)));
    place(relative_path(images.back().header.name), file(name));
  }
  Recovery found;
  auto tier = open_tier(dir, small_options(), &found);
  ASSERT_TRUE(tier);
  EXPECT_EQ(names_of(found), names_of(images));
  ASSERT_EQ(found.profiles.size(), 1u);
  EXPECT_EQ(*found.profiles[0], *profile);
  EXPECT_EQ(found.models, std::vector<ModelRecord>{*record});
  for (const FileImage& image : images) {
    auto read = tier->read(image.header.name);
    ASSERT_TRUE(read.ok()) << read.status().to_string();
    expect_same(image, *read);
  }
}

// What is kept free for others is kept by the catalog too: its rows wait, a compaction is refused.
TEST(Recovery, ARebuiltCatalogLeavesMinFreeAlone) {
  TempDir dir;
  std::mt19937_64 rng(12);
  auto images = sample_chain(rng, 12);
  put_all(*open_tier(dir, small_options()), images);
  fs::remove(dir.store() + "/catalog.db");
  SsdOptions full = small_options();
  full.min_free_bytes = 1ull << 60;
  Recovery found;
  {
    auto tier = open_tier(dir, full, &found);
    EXPECT_EQ(found.adopted, images.size()) << "all the same";
    Status refused = tier->wipe();
    EXPECT_EQ(refused.code(), StatusCode::resource_exhausted);
    EXPECT_NE(refused.message().find("min_free_bytes"), std::string::npos) << refused.message();
  }
  for (uint64_t rows : {size_t{0}, images.size()}) {
    auto tier = open_tier(dir, small_options(), &found);
    EXPECT_EQ(found.rows_used, rows);
    EXPECT_EQ(found.adopted, images.size() - rows);
    EXPECT_TRUE(tier->wipe().ok());
  }
}

}  // namespace
}  // namespace kv
