// What the catalog keeps for its owner over a restart: when it is written, what damages it, and how
// a catalog of version 1, which has no place for it, gets one.
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include "storage/kept_state.h"
#include "tests/support/storage_testing.h"

namespace kv::testing {
namespace {

namespace fs = std::filesystem;

const KeptState kState{{{493'000, 7}, {493'024, 1ull << 40}}, 0xabcd};

class StateTest : public ::testing::Test {
 protected:
  std::unique_ptr<SsdTier> open(const std::string& name, SsdOptions options = {}) {
    options.limit_bytes = 64ull << 20;
    auto tier = SsdTier::open(dir_.path() + "/" + name, options);
    KV_CHECK(tier.ok());
    auto found = (*tier)->recover();
    KV_CHECK(found.ok());
    EXPECT_EQ((*tier)->stats().catalog_failures, 0u);
    EXPECT_EQ((*tier)->stats().used_bytes, du(dir_.path() + "/" + name));
    found_ = std::move(*found);
    return std::move(*tier);
  }
  /// The state of a store that was copied while its owner ran: as if that one had been killed.
  std::optional<KeptState> state_after_a_kill() {
    std::string copy = "killed" + std::to_string(copies_++);
    fs::copy(store(), dir_.path() + "/" + copy, fs::copy_options::recursive);
    open(copy);
    return found_.state;
  }
  std::optional<KeptState> state_after_a_restart() {
    open("store");
    return found_.state;
  }
  std::string store() const { return dir_.store(); }
  /// First column of the first row.
  std::string sql(const std::string& text) {
    sqlite3* db = nullptr;
    KV_CHECK(sqlite3_open((store() + "/catalog.db").c_str(), &db) == SQLITE_OK);
    std::string out;
    auto keep = [](void* to, int, char** values, char**) {
      *static_cast<std::string*>(to) = values[0];
      return 0;
    };
    EXPECT_EQ(sqlite3_exec(db, text.c_str(), keep, &out, nullptr), SQLITE_OK) << text;
    sqlite3_close(db);
    return out;
  }
  void put(SsdTier& tier, size_t count) {
    for (const auto& result : tier.put(sample_chain(rng_, count), Durability::spilled)) {
      ASSERT_TRUE(result.status.ok()) << result.status.to_string();
    }
  }

  TempDir dir_{true};
  std::mt19937_64 rng_{31};
  Recovery found_;
  int copies_ = 0;
};

TEST_F(StateTest, IsWrittenAtTheEndAndWithACheckpointAndNotBefore) {
  {
    auto tier = open("store");
    EXPECT_EQ(found_.state, std::nullopt);
    put(*tier, 4);
    uint64_t before = tier->stats().catalog_bytes_written;
    tier->keep(kState);
    put(*tier, 4);
    EXPECT_EQ(state_after_a_kill(), std::nullopt);
    EXPECT_LT(tier->stats().catalog_bytes_written - before, 200'000u);
    ASSERT_TRUE(tier->checkpoint().ok());
    EXPECT_EQ(state_after_a_kill(), kState);
    KeptState later = kState;
    later.written[493'024] += 5;
    tier->keep(later);
    EXPECT_EQ(state_after_a_kill(), kState);
    ASSERT_TRUE(tier->checkpoint().ok());
    EXPECT_EQ(state_after_a_kill(), later) << "in place of the one before";
    tier->keep(kState);
  }
  EXPECT_EQ(sql("SELECT count(*) FROM state"), "1");
  EXPECT_EQ(state_after_a_restart(), kState);
  EXPECT_EQ(found_.rows_used, 8u);
}

// Whoever is killed after a long time has written it not long before.
TEST_F(StateTest, IsWrittenWithACheckpointOfTheLogToo) {
  auto tier = open("store");
  tier->keep(kState);
  std::string log = store() + "/catalog.db-wal";
  for (uintmax_t before = 0, now = 1; now >= before; now = fs::file_size(log)) {
    before = now;
    put(*tier, 16);
  }
  EXPECT_EQ(state_after_a_kill(), kState);
}

TEST_F(StateTest, SurvivesAPurgeAndAReindex) {
  open("store")->keep(kState);
  ASSERT_TRUE(open("store")->wipe().ok());
  EXPECT_EQ(state_after_a_restart(), kState);
  SsdOptions reindex;
  reindex.reindex = true;
  open("store", reindex);
  EXPECT_EQ(state_after_a_restart(), kState);
}

// Such a catalog is read as it is, and stays so (an earlier build reads it too) until a row or
// state is to be written. From then on an earlier build finds another version, and starts one anew.
TEST_F(StateTest, ACatalogOfVersion1GetsOne) {
  put(*open("store"), 4);
  sql("DROP TABLE state; ALTER TABLE objects DROP COLUMN note; PRAGMA user_version = 1");
  open("store");
  EXPECT_EQ(found_.rows_used, 4u);
  EXPECT_EQ(found_.catalog_rebuilt, "");
  EXPECT_EQ(found_.state, std::nullopt);
  EXPECT_EQ(sql("PRAGMA user_version"), "1");
  open("store")->keep(kState);
  EXPECT_EQ(sql("PRAGMA user_version"), "3");
  EXPECT_EQ(state_after_a_restart(), kState);
  put(*open("store"), 4);
  open("store");
  EXPECT_EQ(found_.rows_used, 8u);
}

TEST_F(StateTest, ThatIsDamagedIsNoneAndCostsNothingElse) {
  put(*open("store"), 4);
  for (const char* damage :
       {"UPDATE state SET value = x'00'", "UPDATE state SET value = x''", "DELETE FROM state"}) {
    open("store")->keep(kState);
    sql(damage);
    EXPECT_EQ(state_after_a_restart(), std::nullopt) << damage;
    EXPECT_EQ(found_.rows_used, 4u);
  }
  sql("DROP TABLE state");
  EXPECT_EQ(state_after_a_restart(), std::nullopt);
  EXPECT_NE(found_.catalog_rebuilt, "") << "no catalog of its version";
  EXPECT_EQ(found_.adopted, 4u);
}

TEST_F(StateTest, TheHoursOfTheFilesAreTold) {
  SsdOptions options;
  options.hour = 493'024;
  auto names = sample_chain(rng_, 4);
  for (const auto& r : open("store")->put(names, Durability::spilled)) ASSERT_TRUE(r.status.ok());
  const int64_t hours[] = {options.hour, options.hour - 24, options.hour - 25, options.hour + 1};
  uint64_t bytes = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    std::string path = store() + "/" + relative_path(names[i].header.name);
    bytes = fs::file_size(path);
    timespec at{static_cast<time_t>(hours[i] * 3600 + 3599), 0}, times[] = {at, at};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  open("store", options);
  EXPECT_EQ(found_.written, (HourBytes{{hours[0], bytes}, {hours[1], bytes}}));
}

TEST(KeptState, GoldenBytesAndEveryBitFlippedAndEveryOtherLengthIsDamage) {
  auto bytes = encode_kept_state(kState);
  std::string hex;
  for (uint8_t b : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += {kDigits[b >> 4], kDigits[b & 15]};
  }
  EXPECT_EQ(hex,
            "cdab"
            "02000000"
            "c885070000000000"
            "0700000000000000"
            "e085070000000000"
            "0000000000010000"
            "5b67413b1b8a7a8e14ccec49788fa7f9");
  EXPECT_EQ(*decode_kept_state(bytes), kState);
  EXPECT_EQ(*decode_kept_state(encode_kept_state({})), KeptState());
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    auto flipped = bytes;
    flipped[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    EXPECT_EQ(decode_kept_state(flipped).status().code(), StatusCode::corruption) << bit;
  }
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_kept_state(std::span(bytes).first(size)).ok()) << size;
  }
  bytes.push_back(0);
  EXPECT_FALSE(decode_kept_state(bytes).ok());
}

TEST(KeptState, HasItsLimits) {
  KeptState most;
  for (int64_t hour = 0; hour < int64_t{kKeptHours}; ++hour) most.written[hour] = kMaxHourBytes;
  EXPECT_EQ(*decode_kept_state(encode_kept_state(most)), most);
  most.written[3] += 1;
  EXPECT_FALSE(decode_kept_state(encode_kept_state(most)).ok());
  most.written[3] = 0;
  most.written[-5] = 1;
  EXPECT_FALSE(decode_kept_state(encode_kept_state(most)).ok());
}

}  // namespace
}  // namespace kv::testing
