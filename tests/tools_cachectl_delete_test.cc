// cachectl delete and purge: what they name goes, nothing else; a wrong name touches nothing.
#include "tests/support/cachectl_store.h"

namespace kv {
namespace {

using namespace kv::testing;

TEST_F(Cachectl, PurgeOfANameThatIsNotThereTouchesNothing) {
  std::string bytes = slurp(path(second_));
  bytes[bytes.size() - 3] ^= 1;
  spew(path(second_), bytes);
  EXPECT_FALSE(tier_->read(second_.name).ok());  // to quarantine
  tier_.reset();
  auto before = listing(store());
  for (const std::string more : {" --dry-run", ""}) {
    Ran ran = run("purge " + store() + " mistyped" + more);
    EXPECT_EQ(ran.code, 4) << ran.out;
    EXPECT_THAT(ran.err, HasSubstr("namespace mistyped has nothing in"));
    EXPECT_EQ(listing(store()), before);
  }
}

// first_ is the parent of second_ (with tail_ behind it) and of other_.
TEST_F(Cachectl, DeleteTakesOneSequenceAndWhatNoOtherHas) {
  tier_.reset();
  Ran none = run("delete " + store() + " ffffffffffff");
  EXPECT_EQ(none.code, 4) << none.out;
  EXPECT_THAT(none.err, HasSubstr("no stored sequence has the id"));
  Ran dry = run("delete --dry-run --json " + store() + " " + tail_.name.id.hex());
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_GE(dry.parsed()["objects"], 2u);
  EXPECT_TRUE(fs::exists(path(tail_)));
  Ran ran = run_changing("delete " + store() + " " + tail_.name.id.hex().substr(0, 20));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("removed " + std::to_string(int(dry.parsed()["objects"]))));
  EXPECT_FALSE(fs::exists(path(tail_)));
  EXPECT_FALSE(fs::exists(path(second_)));
  for (const Object* kept : {&first_, &other_}) EXPECT_TRUE(fs::exists(path(*kept)));
  EXPECT_EQ(run("verify --deep " + store()).code, 0);
  EXPECT_EQ(run("ls --json " + store()).parsed().size(), 1u);
  EXPECT_EQ(run_changing("delete " + store() + " " + other_.name.id.hex()).code, 0);
  for (const Object* gone : {&first_, &other_}) EXPECT_FALSE(fs::exists(path(*gone)));
  EXPECT_EQ(run("ls --json " + store()).parsed().size(), 0u);
}

}  // namespace
}  // namespace kv
