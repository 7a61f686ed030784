// Finite values: every 16-bit value, and each place of one that isn't finite.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "codec/finite.h"
#include "codec/float16.h"

namespace kv {
namespace {

TEST(Finite, EveryHalfAndEveryBfloatByItself) {
  for (uint32_t v = 0; v <= UINT16_MAX; ++v) {
    const auto bits = static_cast<uint16_t>(v);
    uint8_t bytes[2];
    std::memcpy(bytes, &bits, 2);
    ASSERT_EQ(finite_values(bytes, 1, DType::f16), std::isfinite(half_to_float(bits))) << v;
    const uint32_t wide = v << 16;
    float as_bf16;
    std::memcpy(&as_bf16, &wide, 4);
    ASSERT_EQ(finite_values(bytes, 1, DType::bf16), std::isfinite(as_bf16)) << v;
  }
}

TEST(Finite, FloatsAtTheEdges) {
  using Limits = std::numeric_limits<float>;
  for (float v : {0.0f, -0.0f, Limits::max(), Limits::lowest(), Limits::denorm_min(), 1.0f,
                  Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()}) {
    uint8_t bytes[4];
    std::memcpy(bytes, &v, 4);
    EXPECT_EQ(finite_values(bytes, 1, DType::f32), std::isfinite(v)) << v;
  }
}

// Neighbours are the largest finite values: none of them reaches into another lane.
TEST(Finite, OneValueThatIsNotFiniteIsFoundWhereverItStands) {
  struct Edge {
    DType dtype;
    uint32_t largest, infinite;
  };
  for (const Edge& c : {Edge{DType::f16, 0xFBFF, 0x7C00}, Edge{DType::bf16, 0xFF7F, 0x7F80},
                        Edge{DType::f32, 0xFF7FFFFF, 0x7F800000}}) {
    const size_t width = dtype_bytes(c.dtype);
    for (size_t n = 0; n < 70; ++n) {
      std::vector<uint8_t> bytes(n * width);
      for (size_t i = 0; i < n; ++i) std::memcpy(&bytes[i * width], &c.largest, width);
      ASSERT_TRUE(finite_values(bytes.data(), n, c.dtype)) << to_string(c.dtype) << " " << n;
      for (size_t i = 0; i < n; ++i) {
        std::vector<uint8_t> one = bytes;
        std::memcpy(&one[i * width], &c.infinite, width);
        ASSERT_FALSE(finite_values(one.data(), n, c.dtype)) << i << " of " << n;
        ASSERT_TRUE(finite_values(one.data(), i, c.dtype)) << "beyond the end";
      }
    }
  }
}

}  // namespace
}  // namespace kv
