// cachectl tells what clients said of entries, which only the catalog knows.
#include "tests/support/cachectl_store.h"

namespace kv {
namespace {

using namespace kv::testing;
using ::testing::AllOf;
using ::testing::Not;

// With the daemon running or not: what the catalog and its log have.
TEST_F(Cachectl, LsAndShowTellWhatClientsSaidOfEntries) {
  const NotedName note{tail_.name, {false, {2300, "chat 17"}, 0}};
  tier_->note({&note, 1});
  for (bool running : {true, false}) {
    if (!running) tier_.reset();
    EXPECT_THAT(run("ls " + store()).out, AllOf(HasSubstr("2300 ms"), HasSubstr("chat 17")));
    size_t said = 0;
    for (const auto& e : run("ls --json " + store()).parsed()) {
      const bool tail = e["id"] == hex(tail_);
      EXPECT_EQ(e["label"], tail ? "chat 17" : "");
      said += e["prefill_ms"] == 2300;
    }
    EXPECT_EQ(said, 1u);
    EXPECT_EQ(run("show --json " + store() + " " + hex(tail_)).parsed()["label"], "chat 17");
    EXPECT_THAT(run("show " + store() + " " + hex(tail_)).out, HasSubstr("chat 17"));
  }
  fs::remove(store() + "/catalog.db");
  Ran ran = run("ls " + store());
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.out, Not(HasSubstr("chat 17")));
}

}  // namespace
}  // namespace kv
