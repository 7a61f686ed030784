// Products with bands: every set gives the bits of one chain of std::fma per output, whatever is
// computed beside it; panels widen to what their rows are; transposition.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "engine/weights.h"
#include "tests/support/engine_kernel_sets.h"
#include "tests/support/engine_packed.h"

namespace kv {
namespace {

std::vector<uint32_t> bits_of(std::span<const float> values) {
  std::vector<uint32_t> out;
  for (float v : values) out.push_back(std::bit_cast<uint32_t>(v));
  return out;
}

TEST(EngineBands, EverySetGivesTheChainsBitsWhateverStandsBeside) {
  constexpr uint32_t kRows = 41;
  for (uint32_t depth : {0u, 1u, 7u, 64u, 257u}) {
    const size_t a_stride = depth + 5, band_stride = kBandColumns + 3, out_stride = 40;
    auto a = random_values(kRows * a_stride, depth),
         b = random_values((depth + 1) * band_stride, 3);
    std::vector<float> chain(kRows * kBandColumns);
    for (size_t i = 0; i < chain.size(); ++i) {
      const size_t r = i / kBandColumns, j = i % kBandColumns;
      for (size_t k = 0; k < depth; ++k) {
        chain[i] = std::fma(a[r * a_stride + k], b[k * band_stride + j], chain[i]);
      }
    }
    for (const EngineKernels* set : kernel_sets()) {
      for (uint32_t rows = 1; rows <= kRows; ++rows) {
        for (uint32_t columns : {1u, 7u, 8u, 15u, 16u, 17u, 25u, 31u, 32u}) {
          const uint32_t cut = depth / 3;  // the chain goes on where another product ended
          const uint32_t from = (rows * 7) % (kRows - rows + 1);
          std::vector<float> out(rows * out_stride, 77.0f), expected = out;
          for (uint32_t r = 0; r < rows; ++r) {
            std::copy_n(&chain[(from + r) * kBandColumns], columns, &expected[r * out_stride]);
          }
          BandProduct p{a.data() + from * a_stride,
                        a_stride,
                        b.data(),
                        band_stride,
                        out.data(),
                        out_stride,
                        rows,
                        cut,
                        columns};
          set->band_product(p);
          p.a += cut;
          p.band += cut * band_stride;
          p.depth = depth - cut;
          p.go_on = true;
          set->band_product(p);
          ASSERT_EQ(bits_of(out), bits_of(expected))
              << set->name << " " << rows << " x " << depth << " x " << columns;
        }
      }
    }
  }
}

TEST(EngineBands, TranspositionMovesEveryValueAndFillsUpWithZeros) {
  for (uint32_t depth : {1u, 8u, 36u, 64u}) {
    for (uint32_t columns : {0u, 1u, 31u, 32u}) {
      const size_t stride = depth + 3;
      auto rows = random_values(kBandColumns * stride, depth);
      for (const EngineKernels* set : kernel_sets()) {
        std::vector<float> out(size_t{depth} * kBandColumns, 77.0f);
        set->transpose(rows.data(), stride, columns, depth, out.data());
        for (uint32_t k = 0; k < depth; ++k) {
          for (uint32_t j = 0; j < kBandColumns; ++j) {
            ASSERT_EQ(out[k * kBandColumns + j], j < columns ? rows[j * stride + k] : 0.0f)
                << set->name << " " << depth << " " << columns;
          }
        }
      }
    }
  }
}

// Every set's chains of up to 9 rows have the bits of products with the bands.
void expect_chains(const Matrix& w) {
  constexpr uint32_t kMost = 9;
  const size_t stride = w.columns + 3;
  auto x = random_values(kMost * stride, 7);
  std::vector<float> expected(kMost * kBandColumns), band(size_t{w.columns} * kBandColumns);
  widen_band(w, 0, {0, w.columns}, band.data());
  scalar_band_product({x.data(), stride, band.data(), kBandColumns, expected.data(), kBandColumns,
                       kMost, w.columns});
  for (const EngineKernels* set : kernel_sets()) {
    for (uint32_t rows = 1; rows <= kMost; ++rows) {
      for (uint32_t panels : {1u, 2u}) {
        std::vector<float> y(kMost * kBandColumns);
        set->of(w.type).chain(w.panels, panel_bytes(w.type, w.columns), panels, w.columns,
                              {x.data(), stride, rows}, y.data(), kBandColumns);
        for (uint32_t b = 0; b < rows; ++b) {
          for (uint32_t r = 0; r < panels * kPanelRows; ++r) {
            const uint32_t at = b * kBandColumns + r;
            ASSERT_EQ(std::bit_cast<uint32_t>(y[at]), std::bit_cast<uint32_t>(expected[at]))
                << set->name << " " << to_string(w.type) << " " << rows << " x " << panels;
          }
        }
      }
    }
  }
}

// Weights of every type, of which 40 rows are two bands: the second has a panel of 8 rows and none
// behind it.
TEST(EngineBands, PanelsWidenToWhatTheirRowsAre) {
  constexpr uint32_t kRows = 40, kColumns = 512;
  for (TensorType type : kTypes) {
    auto bytes = random_weights(type, kRows, kColumns, 5);
    Matrix w{type, kRows, kColumns, bytes.data(), nullptr};
    Matrix* list[] = {&w};
    const LargePages memory = make_panels(list);
    for (uint32_t first : {0u, kBandColumns}) {
      std::vector<float> band(size_t{kColumns} * kBandColumns, 77.0f), alone(kColumns);
      for (uint32_t line = 0; line < kColumns; line += 256) {
        widen_band(w, first, {line, line + 256}, &band[line * kBandColumns]);
      }
      for (uint32_t r = 0; r < kBandColumns; ++r) {
        std::vector<float> row(kColumns);
        if (first + r < kRows) {
          row = dequantised(type, &bytes[(first + r) * row_bytes(type, kColumns)], kColumns);
          dequantise_row(w, first + r, alone.data());
          ASSERT_EQ(alone, row) << to_string(type) << " " << first + r;
        }
        for (uint32_t k = 0; k < kColumns; ++k) {
          ASSERT_EQ(band[k * kBandColumns + r], row[k]) << to_string(type) << " " << first + r;
        }
      }
    }
    expect_chains(w);
    for (const EngineKernels* set : kernel_sets()) {
      std::vector<float> half(size_t{kColumns} * kBandColumns), expected = half;
      set->of(type).widen(w.panels, 1, kColumns / 32, half.data());
      scalar_engine_kernels().of(type).widen(w.panels, 1, kColumns / 32, expected.data());
      ASSERT_EQ(half, expected) << set->name << " " << to_string(type);
    }
  }
}

}  // namespace
}  // namespace kv
