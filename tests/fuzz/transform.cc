// Fuzz target: a stream of rows (the first byte says how many), decoded by every kernel set alike;
// where the first byte is 255, a set of transforms: what decodes must encode to the same bytes.
#include "codec/transform.h"

#include <cstring>

#include "tests/support/transform_golden.h"

namespace {

void run_set(std::span<const uint8_t> bytes) {
  kv::ByteReader in(bytes);
  auto set = kv::decode_transforms(in);
  if (!set.ok()) return;
  kv::ByteWriter out;
  kv::encode(*set, out);
  if (out.size() != in.at() || std::memcmp(out.span().data(), bytes.data(), out.size()) != 0) {
    __builtin_trap();
  }
  (void)kv::validate(*set);
}

void run_stream(std::span<const uint8_t> bytes, uint32_t rows) {
  static const auto tables = *kv::TransformTables::create(
      std::make_shared<const kv::TransformSet>(kv::testing::golden_transforms()));
  std::vector<float> first, out(size_t{rows} * 4);
  bool good = false;
  for (const kv::Kernels* kernels : kv::available_kernels()) {
    const auto coder = *kv::TransformCoder::create(tables, 0, 1, 4, kernels);
    const bool ok = coder->decode(bytes, rows, kv::testing::kGoldenFirst, 0, rows, out).ok();
    if (kernels == &kv::scalar_kernels()) {
      good = ok;
      first = out;
    }
    if (ok != good || (ok && std::memcmp(first.data(), out.data(), 16 * size_t{rows}) != 0)) {
      __builtin_trap();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  if (data[0] == 255) run_set({data + 1, size - 1});
  if (data[0] < 255) run_stream({data + 1, size - 1}, data[0]);
  return 0;
}
