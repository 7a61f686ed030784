// Whose a store's directory is: one owner, and nobody else who may write there.
#include <gmock/gmock.h>

#include <fstream>

#include "tests/support/storage_testing.h"

namespace kv {
namespace {

using namespace testing;
namespace fs = std::filesystem;

TEST(SsdTier, OneOwnerThoughTheLockFileIsReplaced) {
  TempDir dir;
  auto tier = open_tier(dir, small_options());
  ASSERT_TRUE(fs::remove(dir.store() + "/LOCK"));
  std::ofstream(dir.store() + "/LOCK").close();
  auto second = SsdTier::open(dir.store(), small_options());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::busy);
  tier.reset();
  EXPECT_TRUE(SsdTier::open(dir.store(), small_options()).ok());
}

TEST(SsdTier, AFolderThatOthersMayWriteOrThatIsALinkIsRefused) {
  TempDir dir, elsewhere;
  open_tier(dir, small_options()).reset();
  std::ofstream(elsewhere.path() + "/7.tmp") << "not ours";
  auto refused = [&](const std::string& word) {
    auto tier = SsdTier::open(dir.store(), small_options());
    ASSERT_FALSE(tier.ok()) << word;
    EXPECT_EQ(tier.status().code(), StatusCode::invalid_argument);
    EXPECT_THAT(tier.status().message(), ::testing::HasSubstr(word));
  };
  for (const std::string folder : {"", "/tmp", "/a", "/quarantine"}) {
    fs::permissions(dir.store() + folder, fs::perms(0770));
    refused("chmod go-w " + dir.store() + folder);
    fs::permissions(dir.store() + folder, fs::perms(0700));
  }
  for (const std::string folder : {"/tmp", "/0"}) {
    fs::remove(dir.store() + folder);
    fs::create_directory_symlink(elsewhere.path(), dir.store() + folder);
    refused(dir.store() + folder + " is no directory");
    fs::remove(dir.store() + folder);
  }
  EXPECT_TRUE(fs::exists(elsewhere.path() + "/7.tmp"));
  EXPECT_TRUE(SsdTier::open(dir.store(), small_options()).ok());
}

}  // namespace
}  // namespace kv
