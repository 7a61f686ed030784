// Every length up to 600 of every tiny model: restored from RAM and from SSD, the rest of the
// prompt computed, the same 64 tokens.
#include "tests/engine_tiny.h"

namespace kv {
namespace {

class TinySweep : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, TinySweep,
                         testing::Values("sinks", "chunks", "deepseek_v3", "deepseek_v4",
                                         "qwen3_next"),
                         [](const auto& made) { return std::string(made.param); });

TEST_P(TinySweep, EveryLengthGoesOnAsTheRunThatStoredIt) {
  expect_restores_everywhere(GetParam(), 0, 1);
}

}  // namespace
}  // namespace kv
