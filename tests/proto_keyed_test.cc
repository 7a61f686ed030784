// Values by key: FORMAT.md's recipe and its example.
#include <gtest/gtest.h>

#include "proto/keyed.h"

namespace kv {
namespace {

std::vector<uint8_t> state_of(std::string_view key, std::string_view value) {
  std::vector<uint8_t> state(keyed_head_bytes(key), 0xff);
  write_keyed_head(key, state);
  state.insert(state.end(), value.begin(), value.end());
  return state;
}

TEST(Keyed, IsAsTheFormatSays) {
  const ModelSpec model = keyed_model();
  EXPECT_EQ(model.name, "values");
  EXPECT_EQ(model.fingerprint.hex(),
            "4517f2fc147e1951bf669287f2a22e72cdf8efe48053e97eb425683a7af5fc60");
  ASSERT_EQ(model.layers.size(), 1u);
  ASSERT_EQ(model.layers[0].parts.size(), 1u);
  PartSpec part;
  part.kind = PartKind::opaque;
  part.dtype = DType::f32;
  EXPECT_EQ(model.layers[0].parts[0], part);
  EXPECT_TRUE(validate(model, 256).ok());
  EXPECT_EQ(keyed_tokens("key"),
            (std::vector<Token>{736194604, -112851334, 670333218, 1938731975, 954587188, 2048327580,
                                1930347293, -2085214472}));
  std::vector<uint8_t> state{3, 0, 0, 0, 'k', 'e', 'y'};
  state.resize(64);
  for (char c : std::string("value")) state.push_back(static_cast<uint8_t>(c));
  EXPECT_EQ(state_of("key", "value"), state);
}

TEST(Keyed, AValueComesBackUnderItsKeyAlone) {
  for (size_t length : {0u, 3u, 59u, 60u, 61u, 4096u}) {
    const std::string key(length, 'k');
    const Bytes state = Bytes::owning(state_of(key, "value"));
    EXPECT_EQ((state.size() - 5) % 64, 0u);
    auto value = keyed_value(state, key);
    ASSERT_TRUE(value.has_value()) << length;
    EXPECT_EQ(*value, Bytes::copy_of(std::vector<uint8_t>{'v', 'a', 'l', 'u', 'e'}));
    EXPECT_FALSE(keyed_value(state, key + "k").has_value()) << length;
    EXPECT_FALSE(keyed_value(state, std::string(length, 'l') + (length == 0 ? "l" : "")));
  }
}

TEST(Keyed, AStateThatIsTooShortIsNoValue) {
  const auto state = state_of("key", "");
  for (size_t bytes = 0; bytes < state.size(); ++bytes) {
    EXPECT_FALSE(keyed_value(Bytes::copy_of(std::span(state).first(bytes)), "key")) << bytes;
  }
  EXPECT_TRUE(keyed_value(Bytes::copy_of(state), "key").has_value());
}

}  // namespace
}  // namespace kv
