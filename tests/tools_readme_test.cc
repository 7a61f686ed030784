// README's client code, line by line as it stands there, against the real daemon: what one call
// stores the next one is served.
#include <gtest/gtest.h>

#include "tests/support/cachesvc_server.h"

namespace kv {
namespace {

// What README leaves to its reader.
struct Engine {
  ModelSpec my_model = plain_model();
  Sequence prompt;
  uint32_t block_tokens = 16;
  uint32_t tokens = 0;  ///< of the last hit
  size_t objects = 0;

  void use(uint32_t n, const std::vector<FetchedObject>& found) {
    tokens = n;
    objects = found.size();
  }
  Object rows_of(const Need& need) const {
    return make_put(my_model, block_tokens, prompt, need, 0).object;
  }
  void serve(const std::string& socket_path) {
#include <readme_client.inc>  // the block in README.md (tests/tools.cmake)
    ASSERT_TRUE(stored.ok()) << stored.status().to_string();
    EXPECT_EQ(stored->level, Durability::spilled);
  }
};

using ReadmeTest = ServerTest;

TEST_F(ReadmeTest, ItsClientCodeStoresAPromptAndIsServedIt) {
  start();
  Engine engine;
  engine.prompt = random_tokens(rng_, 40);
  engine.serve(socket());
  EXPECT_EQ(engine.tokens, 0u);
  engine.serve(socket());
  EXPECT_EQ(engine.tokens, 39u);
  EXPECT_EQ(engine.objects, 3u);  // two blocks and the tail
}

}  // namespace
}  // namespace kv
