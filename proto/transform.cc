// Encoding and validation of TransformSet. Encoding: codec/TRANSFORM.md, "Bytes of a set".
#include "proto/transform.h"

#include <cmath>
#include <numeric>
#include <string>

#include "proto/fields.h"

namespace kv {
namespace {

constexpr float kMostMagnitude = 0x1p60f;  // of means and scales: what is decoded stays finite
constexpr float kLeastScale = 0x1p-60f;
constexpr float kMostStep = 8;

template <typename Io>
void fields(Io& io, Of<Io, TransformSet>& set) {
  io.list("tables", set.tables, kMaxIntegerTables, [](Io& item, auto& t) {
    item.number("first", t.first);
    item.array("counts", t.counts, 2 * kMostTableValue + 1);
  });
  io.list("rotations", set.rotations, kMaxRotations, [](Io& item, auto& r) {
    item.boolean("halves", r.halves);
    item.array("step", r.step, kMaxRowValues);
  });
  io.list("transforms", set.transforms, kMaxTransforms, [](Io& item, auto& t) {
    item.number("rotation", t.rotation);
    item.number("width", t.width, 1, kMaxTransformWidth);
    item.array("mean", t.mean, kMaxRowValues);
    item.array("scale", t.scale, kMaxRowValues);
    item.array("basis", t.basis, size_t{kMaxRowValues} * kMaxTransformWidth);
    item.array("table", t.table, kMaxRowValues);
    item.array("low_bits", t.low_bits, kMaxRowValues);
  });
}

Status expect(bool holds, const std::string& what) {
  return holds ? Status() : invalid_argument("transforms: " + what);
}

Status expect_size(const std::string& field, uint64_t expected, uint64_t given) {
  return expect(expected == given, field + ": expected " + std::to_string(expected) +
                                       " values, given " + std::to_string(given));
}

Status validate_table(const IntegerTable& t, const std::string& where) {
  const int last = int{t.first} + static_cast<int>(t.counts.size()) - 1;
  KV_RETURN_IF_ERROR(expect(!t.counts.empty() && t.first >= -kMostTableValue &&
                                last <= kMostTableValue && t.first <= 0 && last >= 0,
                            where + "values must be in -127 to 127 and have 0 among them"));
  const uint32_t sum = std::accumulate(t.counts.begin(), t.counts.end(), 0u);
  KV_RETURN_IF_ERROR(expect(sum < kTableTotal, where + "counts: expected a sum below 4096, given " +
                                                   std::to_string(sum)));
  for (uint16_t count : t.counts) KV_RETURN_IF_ERROR(expect(count > 0, where + "a count is 0"));
  return {};
}

Status validate_one(const TransformSet& set, const Transform& t, const std::string& where) {
  const size_t values = t.mean.size();
  KV_RETURN_IF_ERROR(expect(t.width > 0 && values > 0 && values % t.width == 0,
                            where + "mean: expected a multiple of width " +
                                std::to_string(t.width) + ", given " + std::to_string(values)));
  KV_RETURN_IF_ERROR(expect_size(where + "scale", values, t.scale.size()));
  KV_RETURN_IF_ERROR(expect_size(where + "basis", values * t.width, t.basis.size()));
  KV_RETURN_IF_ERROR(expect_size(where + "table", values, t.table.size()));
  KV_RETURN_IF_ERROR(expect_size(where + "low_bits", values, t.low_bits.size()));
  KV_RETURN_IF_ERROR(expect(t.rotation == kNoRotation || t.rotation < set.rotations.size(),
                            where + "rotation: there is none of that number"));
  for (size_t i = 0; i < values; ++i) {
    const bool mean = std::fabs(t.mean[i]) <= kMostMagnitude;
    const bool scale = t.scale[i] >= kLeastScale && t.scale[i] <= kMostMagnitude;
    KV_RETURN_IF_ERROR(expect(mean && scale, where + "a mean or a scale is out of range"));
    KV_RETURN_IF_ERROR(expect(t.table[i] < set.tables.size() && t.low_bits[i] <= kMaxLowBits,
                              where + "a component has no table, or more than 7 low bits"));
  }
  return {};
}

// Bits of a value by the table: a range coder takes its entropy, an escaped value two bytes more.
double expected_bits(const IntegerTable& t) {
  double bits = 0;
  uint32_t sum = 0;
  auto add = [&](double count, double beside) {
    if (count > 0) bits += count / kTableTotal * (std::log2(kTableTotal / count) + beside);
  };
  for (uint16_t count : t.counts) {
    sum += count;
    add(count, 0);
  }
  add(sum < kTableTotal ? kTableTotal - sum : 0, 16);
  return bits;
}

}  // namespace

std::shared_ptr<const SharedTransforms> share(TransformSet set) {
  auto shared = std::make_shared<SharedTransforms>();
  shared->set = std::move(set);
  std::vector<double> tables;
  for (const IntegerTable& t : shared->set.tables) tables.push_back(expected_bits(t));
  for (const Transform& t : shared->set.transforms) {
    double bits = 0;
    for (size_t c = 0; c < t.table.size(); ++c) {
      bits += (t.table[c] < tables.size() ? tables[t.table[c]] : 0) +
              (c < t.low_bits.size() ? t.low_bits[c] : 0);
    }
    shared->row_bytes.push_back(bits / 8);
  }
  return shared;
}

uint64_t encoded_bytes(const TransformSet& set) {
  uint64_t bytes = 3 * 4;
  for (const IntegerTable& t : set.tables) bytes += 1 + 4 + t.counts.size() * 2;
  for (const Rotation& r : set.rotations) bytes += 1 + 4 + r.step.size() * 4;
  for (const Transform& t : set.transforms) {
    bytes += 2 + 4 + 5 * 4 + (t.mean.size() + t.scale.size()) * 4 + t.basis.size() +
             t.table.size() + t.low_bits.size();
  }
  return bytes;
}

void encode(const TransformSet& set, ByteWriter& out) {
  FieldWriter io(out);
  fields(io, set);
}

Result<TransformSet> decode_transforms(ByteReader& in) {
  TransformSet set;
  FieldReader io(in);
  fields(io, set);
  if (in.failed()) return corruption("transforms: " + in.why());
  return set;
}

Status validate(const TransformSet& set) {
  for (size_t i = 0; i < set.tables.size(); ++i) {
    KV_RETURN_IF_ERROR(validate_table(set.tables[i], "table " + std::to_string(i) + ": "));
  }
  for (const Rotation& r : set.rotations) {
    KV_RETURN_IF_ERROR(expect(!r.step.empty(), "a rotation has no pairs"));
    for (float step : r.step) {
      KV_RETURN_IF_ERROR(expect(step >= 0 && step <= kMostStep, "a rotation's step is not in 0…8"));
    }
  }
  for (size_t i = 0; i < set.transforms.size(); ++i) {
    KV_RETURN_IF_ERROR(
        validate_one(set, set.transforms[i], "transform " + std::to_string(i) + ": "));
  }
  return {};
}

Status validate_shape(const TransformSet& set, size_t transform, uint32_t heads, uint32_t dim) {
  const std::string where = "transform " + std::to_string(transform) + ": ";
  KV_RETURN_IF_ERROR(expect(transform < set.transforms.size(), where + "there is none"));
  const Transform& t = set.transforms[transform];
  KV_RETURN_IF_ERROR(expect_size(where + "mean", uint64_t{heads} * dim, t.mean.size()));
  KV_RETURN_IF_ERROR(
      expect(t.width % dim == 0, where + "width: expected whole heads of " + std::to_string(dim)));
  if (t.rotation == kNoRotation) return {};
  const size_t pairs = set.rotations[t.rotation].step.size();
  return expect(2 * pairs <= dim, where + "rotation: more than " + std::to_string(dim / 2) +
                                      " pairs for heads of " + std::to_string(dim));
}

}  // namespace kv
