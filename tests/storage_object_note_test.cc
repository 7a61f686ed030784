// Notes of objects: what the catalog has of them, in plain and with a key, and how a catalog of an
// earlier version gets them.
#include <sqlite3.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "tests/support/storage_testing.h"

namespace kv::testing {
namespace {

class ObjectNotes : public ::testing::Test {
 protected:
  std::unique_ptr<SsdTier> open(SsdOptions options = {}) {
    options.limit_bytes = 64ull << 20;
    auto tier = SsdTier::open(dir_.store(), options);
    KV_CHECK(tier.ok());
    auto found = (*tier)->recover();
    KV_CHECK(found.ok());
    found_ = std::move(*found);
    return std::move(*tier);
  }
  std::vector<ObjectName> named() const {
    std::vector<ObjectName> names;
    for (const KnownObject& o : found_.objects) {
      if (o.note.named_end) names.push_back(o.header.name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  void put(SsdTier& tier, const std::vector<FileImage>& images) {
    for (const auto& result : tier.put(images, Durability::spilled)) {
      ASSERT_TRUE(result.status.ok()) << result.status.to_string();
    }
  }
  static void note(SsdTier& tier, const ObjectName& name, const ObjectNote& note) {
    const NotedName one{name, note};
    tier.note({&one, 1});
  }
  std::string sql(const std::string& text) {
    sqlite3* db = nullptr;
    KV_CHECK(sqlite3_open((dir_.store() + "/catalog.db").c_str(), &db) == SQLITE_OK);
    std::string out;
    auto keep = [](void* to, int, char** values, char**) {
      *static_cast<std::string*>(to) = values[0];
      return 0;
    };
    EXPECT_EQ(sqlite3_exec(db, text.c_str(), keep, &out, nullptr), SQLITE_OK) << text;
    sqlite3_close(db);
    return out;
  }

  TempDir dir_{true};
  std::mt19937_64 rng_{31};
  Recovery found_;
};

TEST_F(ObjectNotes, ComeWithAPutOrLaterAndGoWithTheirRow) {
  auto images = sample_chain(rng_, 4);
  images[1].note.named_end = true;
  const ObjectName first = images[0].header.name, second = images[1].header.name;
  {
    auto tier = open();
    put(*tier, images);
    note(*tier, first, {.named_end = true});
    note(*tier, images[3].header.name, {.named_end = true});
    note(*tier, images[3].header.name, {});
  }
  std::vector<ObjectName> both{first, second};
  std::sort(both.begin(), both.end());
  {
    auto tier = open();
    EXPECT_EQ(named(), both);
    ASSERT_TRUE(tier->erase({&first, 1}).ok());
    put(*tier, {images[0]});
  }
  open();
  EXPECT_EQ(named(), (std::vector<ObjectName>{second}));
  SsdOptions reindex;
  reindex.reindex = true;
  open(reindex);
  EXPECT_TRUE(named().empty()) << "the files don't tell";
  EXPECT_EQ(found_.objects.size(), 4u);
}

TEST_F(ObjectNotes, AreThereWithAKeyToo) {
  SsdOptions options;
  options.key = sample_key(7);
  auto images = sample_chain(rng_, 2);
  const std::string label = "a label that only the key opens";
  images[1].note = {true, {7, label}, 4'000'000'000};
  put(*open(options), images);
  std::ifstream catalog(dir_.store() + "/catalog.db", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(catalog), {}};
  EXPECT_FALSE(bytes.empty());
  EXPECT_EQ(bytes.find(label), std::string::npos);
  open(options);
  EXPECT_EQ(named(), (std::vector<ObjectName>{images[1].header.name}));
  for (const KnownObject& o : found_.objects) {
    const bool noted = o.header.name == images[1].header.name;
    EXPECT_EQ(o.note, noted ? images[1].note : ObjectNote());
  }
}

// What a program that must not open the owner's catalog reads: of a copy, also a torn one.
TEST_F(ObjectNotes, ComeAloneOutOfACopy) {
  for (const bool with_key : {false, true}) {
    SsdOptions options;
    if (with_key) options.key = sample_key(7);
    auto images = sample_chain(rng_, 40);
    images[3].note = {true, {7, "said"}, 4'000'000'000};
    images[9].note.words = {9, "more"};
    put(*open(options), images);
    const std::string copy = dir_.path() + "/copy.db";
    std::filesystem::copy_file(dir_.store() + "/catalog.db", copy,
                               std::filesystem::copy_options::overwrite_existing);
    auto notes = Catalog::notes_of(copy, options.key.get());
    ASSERT_TRUE(notes.ok()) << notes.status().to_string();
    std::map<ObjectName, ObjectNote> found(notes->begin(), notes->end());
    EXPECT_EQ(found, (std::map<ObjectName, ObjectNote>{{images[3].header.name, images[3].note},
                                                       {images[9].header.name, images[9].note}}));
    const auto whole = std::filesystem::file_size(copy);
    for (uint64_t bytes = whole - 4096; bytes > 0; bytes -= std::min<uint64_t>(bytes, 4096)) {
      std::filesystem::resize_file(copy, bytes);
      auto torn = Catalog::notes_of(copy, options.key.get());
      if (!torn.ok()) continue;
      for (const auto& [name, note] : *torn) EXPECT_EQ(found[name], note);
    }
    std::filesystem::remove_all(dir_.store());
  }
}

// As after a power cut that the catalog's last changes did not survive.
TEST_F(ObjectNotes, ATimeBeforeTheFilesLastChangeIsAnEarlierFiles) {
  auto images = sample_chain(rng_, 2);
  images[0].note.expires = 1'700'000'000;
  images[1].note.expires = 4'000'000'000;
  put(*open(), images);
  open();
  for (const KnownObject& o : found_.objects) {
    const bool first = o.header.name == images[0].header.name;
    EXPECT_EQ(o.note.expires, first ? 0 : images[1].note.expires);
  }
}

TEST_F(ObjectNotes, TellWhatWasSaidOfAnEntryAndNothingWhereTheyAreDamaged) {
  auto images = sample_chain(rng_, 2);
  images[1].note.words = {1u << 31, "gréen"};
  auto said = [&] {
    open();
    EXPECT_EQ(found_.rows_used, 2u);
    std::vector<EntryWords> all;
    for (const KnownObject& o : found_.objects) {
      if (!o.note.words.empty()) all.push_back(o.note.words);
    }
    return all;
  };
  put(*open(), images);
  EXPECT_EQ(said(), (std::vector<EntryWords>{images[1].note.words}));
  for (const char* damage :
       {"x'02'", "x'0200000000ffffffff'", "x'04'", "x'0201000000010000000a'"}) {
    sql(std::string("UPDATE objects SET note = ") + damage);
    EXPECT_TRUE(said().empty()) << damage;
  }
}

// Such a catalog is read as it is; a row that it gets later makes it this version's.
TEST_F(ObjectNotes, ACatalogOfVersion2GetsThem) {
  auto images = sample_chain(rng_, 4);
  put(*open(), {images[0], images[1]});
  sql("ALTER TABLE objects DROP COLUMN note; PRAGMA user_version = 2");
  open();
  EXPECT_EQ(found_.rows_used, 2u);
  EXPECT_EQ(found_.catalog_rebuilt, "");
  EXPECT_EQ(sql("PRAGMA user_version"), "2");
  {
    auto tier = open();
    note(*tier, images[1].header.name, {.named_end = true});
    put(*tier, {images[2]});
    EXPECT_EQ(tier->stats().catalog_failures, 0u);
  }
  EXPECT_EQ(sql("PRAGMA user_version"), "3");
  open();
  EXPECT_EQ(found_.rows_used, 3u);
  EXPECT_EQ(named(), (std::vector<ObjectName>{images[1].header.name}));
}

}  // namespace
}  // namespace kv::testing
