// Recovery: any kill, any failed call, any damage to the catalog; files are the truth.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "storage/ssd_tier.h"
#include "tests/storage_testing.h"

namespace kv {
namespace {

using namespace kv::testing;
namespace fs = std::filesystem;

// A fixed script: two batches (spilled, durable), records, a touch, an erase, a read.
// `acked` is told what each step promised before the next one starts.
class Script {
 public:
  Script() {
    std::mt19937_64 rng(7);
    first_ = sample_chain(rng, 4);
    first_.push_back(raw_image(sample_supplement(rng, first_[3].header, 1, 60, 64)));
    second_ = sample_chain(rng, 3);
    second_.push_back(raw_image(sample_snapshot(rng, second_[2].header, 1)));
  }
  /// Runs to the end or to the first step that can't go on; `acked` gets every promise.
  void run(const std::string& directory, Files* files,
           const std::function<void(const std::string&)>& acked) {
    auto tier = SsdTier::open(directory, small_options(files));
    if (!tier.ok()) return;
    auto recovered = (*tier)->recover();
    if (!recovered.ok()) return;
    put(**tier, first_, Durability::spilled, acked);
    if ((*tier)->put_profile(sample_profile(1)).ok()) acked("profile");
    if ((*tier)->put_model_record(sample_record(1)).ok()) acked("record 1");
    if ((*tier)->put_model_record(sample_record(2)).ok()) acked("record 2");
    put(**tier, second_, Durability::durable, acked);
    std::vector<ObjectName> used = {first_[0].header.name};
    (*tier)->touch(used);
    std::vector<ObjectName> victims = {first_[4].header.name, first_[3].header.name};
    acked("erasing");
    if ((*tier)->erase(victims).ok()) acked("erased");
    auto read = (*tier)->read(first_[0].header.name);
    if (read.ok()) expect_same(first_[0], *read);
    SsdStats stats = (*tier)->stats();
    if (recovered->unreadable > 0) return;  // sizes that no one could tell
    EXPECT_GE(stats.used_bytes + stats.reserved_bytes, du(directory)) << "the ledger undercounts";
  }
  /// After a restart on the real file system: everything promised is there, whole; nothing else is.
  void check(const std::string& directory, const std::set<std::string>& promises) {
    Recovery found;
    auto tier = reopen(directory, found);
    ASSERT_TRUE(tier);
    std::map<ObjectName, const FileImage*> possible;
    for (const auto* images : {&first_, &second_}) {
      for (const auto& image : *images) possible[image.header.name] = &image;
    }
    std::set<std::string> present;
    for (const auto& object : found.objects) {
      ASSERT_TRUE(possible.contains(object.header.name)) << "never stored";
      auto read = tier->read(object.header.name);
      ASSERT_TRUE(read.ok()) << read.status().to_string();
      expect_same(*possible[object.header.name], *read);
      EXPECT_EQ(object.header.tokens, read->header.tokens);
      present.insert(file_name(object.header.name));
    }
    check_promises(promises, present, found);
    EXPECT_EQ(found.quarantined, 0u);
    EXPECT_TRUE(fs::is_empty(directory + "/tmp"));
    EXPECT_EQ(tier->stats().used_bytes, du(directory));
    tier.reset();
    Recovery again;
    tier = reopen(directory, again);
    EXPECT_EQ(again.objects.size(), found.objects.size());
    EXPECT_EQ(again.adopted + again.rows_dropped + again.temps_removed, 0u) << "recovery settles";
  }

 private:
  static void put(SsdTier& tier, const std::vector<FileImage>& images, Durability level,
                  const std::function<void(const std::string&)>& acked) {
    auto results = tier.put(images, level);
    for (size_t i = 0; i < images.size(); ++i) {
      if (results[i].reached != Durability::none) acked(file_name(images[i].header.name));
      EXPECT_EQ(results[i].status.ok(), results[i].reached == level);
    }
  }
  static std::unique_ptr<SsdTier> reopen(const std::string& directory, Recovery& found) {
    auto tier = SsdTier::open(directory, small_options());
    EXPECT_TRUE(tier.ok()) << tier.status().to_string();
    if (!tier.ok()) return nullptr;
    auto recovered = (*tier)->recover();
    EXPECT_TRUE(recovered.ok()) << recovered.status().to_string();
    if (!recovered.ok()) return nullptr;
    found = std::move(*recovered);
    return std::move(*tier);
  }
  void check_promises(const std::set<std::string>& promises, const std::set<std::string>& present,
                      const Recovery& found) {
    for (size_t i : {3, 4}) {
      std::string victim = file_name(first_[i].header.name);
      if (promises.contains("erased")) {
        EXPECT_FALSE(present.contains(victim)) << "came back";
      }
      if (!promises.contains("erasing") && promises.contains(victim)) {
        EXPECT_TRUE(present.contains(victim));
      }
    }
    for (const auto* images : {&first_, &second_}) {
      for (size_t i = 0; i < images->size(); ++i) {
        if (images == &first_ && i >= 3) continue;
        std::string name = file_name((*images)[i].header.name);
        if (promises.contains(name)) {
          EXPECT_TRUE(present.contains(name)) << "lost " << name;
        }
      }
    }
    if (promises.contains("profile")) {
      EXPECT_EQ(found.profiles.size(), 1u);
    }
    uint64_t serial = promises.contains("record 2") ? 2 : promises.contains("record 1") ? 1 : 0;
    uint64_t given = found.models.empty() ? 0 : found.models[0].serial;
    EXPECT_GE(given, serial);
  }

  std::vector<FileImage> first_, second_;
};

// How many calls the script makes when nothing fails.
uint64_t count_calls() {
  TempDir dir(true);
  FaultFiles files;
  Script().run(dir.store(), &files, [](const std::string&) {});
  return files.calls;
}

void fault_loop(FaultFiles::Mode mode, StatusCode code) {
  uint64_t calls = count_calls();
  ASSERT_GT(calls, 200u);
  for (uint64_t at = 1; at <= calls; ++at) {
    SCOPED_TRACE("failing call " + std::to_string(at));
    TempDir dir(true);
    FaultFiles files;
    files.mode = mode;
    files.at = at;
    files.code = code;
    Script script;
    std::set<std::string> promises;
    script.run(dir.store(), &files, [&](const std::string& p) { promises.insert(p); });
    script.check(dir.store(), promises);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(Recovery, EveryCallFailsOnceWithEio) {
  fault_loop(FaultFiles::Mode::fail_once, StatusCode::io_error);
}
TEST(Recovery, EveryCallFailsForEverWithEio) {
  fault_loop(FaultFiles::Mode::fail_for_ever, StatusCode::io_error);
}
TEST(Recovery, EveryCallFailsOnceForLackOfSpace) {
  fault_loop(FaultFiles::Mode::fail_once, StatusCode::resource_exhausted);
}

// Runs the script in a child that SIGKILLs itself at call `at`; promises come through a pipe, so
// that one counts only if its ack was out before the kill. False if the child ended by itself.
bool run_until_kill(const std::string& directory, uint64_t at, std::set<std::string>& promises) {
  int ends[2];
  KV_CHECK(::pipe(ends) == 0);
  pid_t child = ::fork();
  KV_CHECK(child >= 0);
  if (child == 0) {
    ::close(ends[0]);
    FaultFiles files;
    files.mode = FaultFiles::Mode::kill;
    files.at = at;
    Script().run(directory, &files, [&](const std::string& promise) {
      std::string line = promise + "\n";
      KV_CHECK(::write(ends[1], line.data(), line.size()) == static_cast<ssize_t>(line.size()));
    });
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string all;
  char buffer[4096];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof(buffer))) > 0;) {
    all.append(buffer, static_cast<size_t>(n));
  }
  ::close(ends[0]);
  int state = 0;
  ::waitpid(child, &state, 0);
  for (size_t from = 0, to; (to = all.find('\n', from)) != std::string::npos; from = to + 1) {
    promises.insert(all.substr(from, to - from));
  }
  return WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL;
}

TEST(Recovery, AKillAtEveryCall) {
  uint64_t calls = count_calls();
  for (uint64_t at = 1; at <= calls; ++at) {
    SCOPED_TRACE("killed at call " + std::to_string(at));
    TempDir dir(true);
    std::set<std::string> promises;
    ASSERT_TRUE(run_until_kill(dir.store(), at, promises));
    Script().check(dir.store(), promises);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// The recovery after a kill is itself killed at every call, then runs to its end.
TEST(Recovery, AKillAtEveryCallOfTheRecovery) {
  uint64_t calls = count_calls();
  TempDir torn(true);
  std::set<std::string> promises;
  ASSERT_TRUE(run_until_kill(torn.store(), calls * 3 / 5, promises));
  fs::remove(torn.store() + "/catalog.db");
  for (uint64_t at = 1;; ++at) {
    SCOPED_TRACE("killed at call " + std::to_string(at));
    TempDir dir(true);
    fs::copy(torn.store(), dir.store(), fs::copy_options::recursive);
    pid_t child = ::fork();
    KV_CHECK(child >= 0);
    if (child == 0) {
      FaultFiles files;
      files.mode = FaultFiles::Mode::kill;
      files.at = at;
      auto tier = SsdTier::open(dir.store(), small_options(&files));
      if (tier.ok()) (void)(*tier)->recover();
      ::_exit(0);
    }
    int state = 0;
    ::waitpid(child, &state, 0);
    Script().check(dir.store(), promises);
    if (!WIFSIGNALED(state)) {
      EXPECT_GT(at, 60u);
      break;
    }
    if (::testing::Test::HasFatalFailure()) return;
  }
}

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

}  // namespace
}  // namespace kv
