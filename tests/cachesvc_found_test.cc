// Found: sums over the parts of what a start finds, and when all is known.
#include <gtest/gtest.h>

#include "cachesvc/core/found.h"

namespace kv {
namespace {

TEST(Found, SumsItsPartsAndTakesTheLastWordOnWhatIsUnread) {
  Found found;
  Recovery part;
  part.adopted = 3;
  part.quarantined = 1;
  part.unread = 10;
  part.catalog_rebuilt = "lost";
  found.add(part);
  part.unread = 4;
  part.catalog_rebuilt = "another reason";
  found.add(part);
  EXPECT_EQ(found.sums().adopted, 6u);
  EXPECT_EQ(found.sums().quarantined, 2u);
  EXPECT_EQ(found.sums().unread, 4u);
  EXPECT_EQ(found.sums().catalog_rebuilt, "lost") << "the start's own";
}

TEST(Found, AllIsKnownWhenNothingIsUnreadNorWaitsForItsPlace) {
  Found found;
  EXPECT_TRUE(found.all_known());
  Recovery part;
  found.add(part);
  found.waiting(2);
  EXPECT_FALSE(found.all_known());
  EXPECT_TRUE(found.files_unknown());
  found.settled(1);
  EXPECT_FALSE(found.all_known());
  found.settled(1);
  EXPECT_TRUE(found.all_known());
  EXPECT_FALSE(found.files_unknown());
}

TEST(Found, FilesThatCouldNotBeReadOrAreNewerMayBeOfAnyModel) {
  for (uint64_t Recovery::*sum : {&Recovery::unreadable, &Recovery::newer_files}) {
    Found found;
    Recovery part;
    part.*sum = 1;
    found.add(part);
    found.add({});
    EXPECT_TRUE(found.all_known());
    EXPECT_TRUE(found.files_unknown()) << "until the next start";
    EXPECT_FALSE(found.others_may_name_records());
  }
}

TEST(Found, FilesOfAnotherKeyMayNameRecords) {
  Found found;
  Recovery part;
  part.other_key_files = 1;
  found.add(part);
  EXPECT_TRUE(found.others_may_name_records());
  EXPECT_FALSE(found.files_unknown());
}

TEST(Found, NamesNoMoreFilesThanOneRecoveryDoes) {
  Found found;
  Recovery part;
  part.rejected.resize(kMaxRejectedNames - 1);
  found.add(part);
  found.add(part);
  EXPECT_EQ(found.sums().rejected.size(), kMaxRejectedNames);
}

TEST(Found, ObjectsAreThoseThatServeAndThoseThatDoNot) {
  Found found;
  found.objects(5, 2);
  found.objects(1, 0);
  EXPECT_EQ(found.objects(), 8u);
  EXPECT_EQ(found.skipped(), 2u);
}

}  // namespace
}  // namespace kv
