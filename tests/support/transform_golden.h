// The set and rows of codec/TRANSFORM.md, "Golden stream", for its test and its fuzz target.
#pragma once

#include <vector>

#include "proto/transform.h"

namespace kv::testing {

inline constexpr uint32_t kGoldenRows = 40, kGoldenFirst = 250;

inline TransformSet golden_transforms() {
  TransformSet set;
  set.tables = {{-2, {200, 900, 1800, 800, 300}}, {-1, {60, 3900, 60}}};
  set.rotations = {{true, {1.0f, 0.0625f}}};
  Transform t;
  t.rotation = 0;
  t.width = 4;
  t.mean = {1, -2, 0.5f, 0};
  t.scale = {0.0078125f, 0.015625f, 0.00390625f, 0.0078125f};
  t.basis = {100, 70, 30, 10, -70, 100, 10, -30, -30, 10, 100, 70, 10, 30, -70, 100};
  t.table = {0, 0, 1, 1};
  t.low_bits = {2, 0, 0, 0};
  set.transforms = {t};
  return set;
}

/// (kGoldenRows, 4): value i is (37 i mod 64 - 32) / 8.
inline std::vector<float> golden_rows() {
  std::vector<float> rows;
  for (int i = 0; i < 160; ++i) rows.push_back(static_cast<float>(i * 37 % 64 - 32) / 8);
  return rows;
}

}  // namespace kv::testing
