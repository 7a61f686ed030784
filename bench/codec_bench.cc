// Benchmarks of codec/: encode and decode against memcpy, attention on codes against exact fp16.
//
// Names: BM_<verb>/<shape>/<kernel>. Counters: GB/s of fp16 in or out, of bytes copied, or of
// stored bytes read. The exact yardstick is the same code on raw fp16 planes, one pass over K and V
// for all queries of a kv head: `fp16` as planes are stored (token-major), `fp16_head_major` on
// planes of one head each, the best layout for it. `_2_threads`: every other kv head on the second.
// `best` is what the machine chooses, named beside its figures. 1K rows: for bench/instructions.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "codec/attention.h"
#include "codec/codec.h"
#include "codec/float16.h"
#include "codec/plan.h"
#include "codec/transform.h"
#include "codec/transform_fit.h"

namespace kv {
namespace {

// Sums of uniform bytes: near enough to a Gaussian for speed.
std::vector<uint8_t> random_halves(size_t n) {
  uint64_t state = 42;
  std::vector<uint8_t> out(2 * n);
  for (size_t i = 0; i < n; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    int sum = -510;
    for (int b = 0; b < 4; ++b) sum += static_cast<int>((state >> (32 + 8 * b)) & 255);
    const uint16_t h = float_to_half(static_cast<float>(sum) / 150);
    std::memcpy(&out[2 * i], &h, 2);
  }
  return out;
}

struct Shape {
  uint32_t rows, heads, dim, group;
};

std::shared_ptr<const Codec> make_codec(const Shape& shape, uint8_t k_bits, uint8_t v_bits,
                                        const Kernels* kernels) {
  ModelSpec model;
  model.fingerprint.bytes[0] = 1;
  PartSpec part;
  part.heads = shape.heads;
  part.k_dim = part.v_dim = shape.dim;
  model.layers = {LayerSpec{{part}}};
  CodingSettings settings;
  settings.k_bits = k_bits;
  settings.v_bits = v_bits;
  settings.exact_tokens = 0;
  auto codec = Codec::create(
      model, std::make_shared<const Profile>(*plain_profile(model, settings)), kernels);
  KV_CHECK(codec.ok());
  return *codec;
}

Plane raw_plane(const Shape& shape, Side side, uint32_t first_row) {
  Plane plane;
  plane.side = side;
  plane.heads = shape.heads;
  plane.dim = shape.dim;
  plane.first_row = first_row;
  plane.runs = {{RunForm::exact, shape.rows}};
  plane.bytes = Bytes::owning(random_halves(size_t{shape.rows} * shape.heads * shape.dim));
  return plane;
}

void bytes_rate(benchmark::State& state, size_t bytes) {
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(bytes) * 1e-9,
                                              benchmark::Counter::kIsIterationInvariantRate);
}

void copy_bytes(benchmark::State& state, const Shape& shape) {
  const auto in = random_halves(size_t{shape.rows} * shape.heads * shape.dim);
  std::vector<uint8_t> out(in.size());
  for (auto _ : state) {
    std::memcpy(out.data(), in.data(), in.size());
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  bytes_rate(state, in.size());
}

void encode(benchmark::State& state, const Shape& shape, uint8_t bits, const Kernels* kernels) {
  auto codec = make_codec(shape, bits, bits, kernels);
  const Plane plane = raw_plane(shape, Side::k, 0);
  for (auto _ : state) {
    auto coded = codec->encode(plane);
    benchmark::DoNotOptimize(coded.ok());
  }
  bytes_rate(state, plane.bytes.size());
}

void decode(benchmark::State& state, const Shape& shape, uint8_t bits, const Kernels* kernels) {
  auto codec = make_codec(shape, bits, bits, kernels);
  const Plane coded = *codec->encode(raw_plane(shape, Side::k, 0));
  std::vector<uint8_t> out(size_t{shape.rows} * shape.heads * shape.dim * 2);
  for (auto _ : state) {
    auto status = codec->decode_rows(coded, 0, shape.rows, DType::f16, out);
    benchmark::DoNotOptimize(status.ok());
  }
  bytes_rate(state, out.size());
}

// A coder of one block of rows whose components differ as those of real ones do, and the block.
struct TransformedRows {
  std::shared_ptr<const TransformCoder> coder;
  std::vector<float> rows;
  std::vector<uint8_t> stream;
};

TransformedRows transformed(const Shape& shape, uint32_t width, const Kernels* kernels) {
  const size_t n = size_t{shape.heads} * shape.dim;
  TransformedRows made;
  std::mt19937_64 rng(5);
  std::normal_distribution<float> normal;
  TransformSet set{{{0, {1}}}, {{true, std::vector<float>(shape.dim / 2, 0.01f)}}, {Transform{}}};
  Transform& t = set.transforms[0];
  t.rotation = 0;
  t.width = width;
  t.mean.resize(n);
  t.scale.resize(n, 1.0f / 127);
  t.basis.resize(n * width);
  t.table.resize(n);
  t.low_bits.resize(n);
  for (size_t c = 0; c < n; ++c) t.basis[c * width + c % width] = 127;
  made.rows.resize(shape.rows * n);  // 3.5 bits a value, 27 % of integers zero: tc at .217
  for (size_t i = 0; i < made.rows.size(); ++i) {
    made.rows[i] =
        std::exp2(5 - 7 * static_cast<float>(i % width) / static_cast<float>(width)) * normal(rng);
  }
  RotaryTurns(set.rotations[0])
      .turn(made.rows.data(), shape.rows, n, 0, shape.heads, shape.dim, false);
  auto remake = [&] {
    auto tables = TransformTables::create(std::make_shared<const TransformSet>(set));
    KV_CHECK(tables.ok());
    made.coder = *TransformCoder::create(*tables, 0, shape.heads, shape.dim, kernels);
  };
  remake();
  TableFit fit;
  fit.add(t, *made.coder->integers(made.rows, 0), shape.rows);
  set.tables = fit.finish();
  remake();
  made.stream = *made.coder->encode(made.rows, 0);
  return made;
}

void transform_encode(benchmark::State& state, const Shape& shape, uint32_t width,
                      const Kernels* kernels) {
  const TransformedRows made = transformed(shape, width, kernels);
  for (auto _ : state) benchmark::DoNotOptimize(made.coder->encode(made.rows, 0));
  bytes_rate(state, 2 * made.rows.size());
}

void transform_decode(benchmark::State& state, const Shape& shape, uint32_t width,
                      const Kernels* kernels) {
  TransformedRows made = transformed(shape, width, kernels);
  for (auto _ : state) {
    KV_CHECK(made.coder->decode(made.stream, shape.rows, 0, 0, shape.rows, made.rows).ok());
  }
  bytes_rate(state, 2 * made.rows.size());
  state.counters["bits"] =
      8 * static_cast<double>(made.stream.size()) / static_cast<double>(made.rows.size());
}

// The entropy decoder alone: no row is asked for.
void integer_decode(benchmark::State& state, const Shape& shape, const Kernels* kernels) {
  const TransformedRows made = transformed(shape, shape.dim, kernels);
  for (auto _ : state) KV_CHECK(made.coder->decode(made.stream, shape.rows, 0, 0, 0, {}).ok());
  state.counters["Mvalues/s"] = benchmark::Counter(static_cast<double>(made.rows.size()) * 1e-6,
                                                   benchmark::Counter::kIsIterationInvariantRate);
}

// A block's rows times a basis, without an integer that is zero and with nothing beside it.
void transform_product(benchmark::State& state, uint32_t rows, uint32_t width, const Kernels* set) {
  const TransformKernels& kernels = transform_kernels(*set);
  const size_t tile_count = rows / kProductRows;
  std::vector<int16_t> integers(size_t{kProductTerms} * rows, 3);
  std::vector<ProductTile> tiles(tile_count);
  std::vector<float> panel(size_t{kProductTerms} * kPanelColumns, 0.01f), out(size_t{rows} * width);
  kernels.make_tiles(integers.data(), rows, kProductTerms, tile_count, tiles.data());
  for (auto _ : state) {
    for (uint32_t k = 0; k < width; k += kProductTerms) {
      for (uint32_t j = 0; j < width; j += kPanelColumns) {
        IntegerRun none;
        kernels.add_product(tiles.data(), tile_count, panel.data(), kPanelColumns, &out[j], width,
                            &out[j], width, none);
      }
    }
    benchmark::ClobberMemory();
  }
  bytes_rate(state, 2 * out.size());
  state.counters["Gfma/s"] = benchmark::Counter(static_cast<double>(out.size()) * width * 1e-9,
                                                benchmark::Counter::kIsIterationInvariantRate);
}

void transform_rotation(benchmark::State& state, const Shape& shape) {
  const Rotation rotation{true, std::vector<float>(shape.dim / 2, 0.01f)};
  const RotaryTurns turns(rotation);
  const size_t n = size_t{shape.heads} * shape.dim;
  std::vector<float> rows(shape.rows * n, 1.0f);
  for (auto _ : state) {
    turns.turn(rows.data(), shape.rows, n, 0, shape.heads, shape.dim, false);
    benchmark::ClobberMemory();
  }
  bytes_rate(state, 2 * rows.size());
}

struct Context {
  std::shared_ptr<const Codec> codec;
  std::vector<Plane> planes;
  size_t bytes = 0;
};

AttentionRows fill(Context& context, const Shape& shape, uint32_t tokens) {
  AttentionRows rows(context.codec, 0, 0);
  for (uint32_t first = 0; first < tokens; first += shape.rows) {
    for (Side side : {Side::k, Side::v}) {
      context.planes.push_back(*context.codec->encode(raw_plane(shape, side, first)));
      context.bytes += context.planes.back().bytes.size();
    }
    const Plane &k = *(context.planes.end() - 2), &v = context.planes.back();
    KV_CHECK(rows.add(k, v, first, first + shape.rows).ok());
  }
  return rows;
}

// Mean squared error per coordinate of Gaussian rows, in units of their variance: "D". What a
// Lloyd-Max quantizer of N(0, 1) has, for comparison.
void distortion(benchmark::State& state, uint32_t dim, uint8_t bits) {
  const Shape shape{4096, 1, dim, 1};
  auto codec = make_codec(shape, bits, bits, nullptr);
  std::mt19937_64 rng(3);
  std::normal_distribution<float> normal;
  std::vector<float> values(size_t{shape.rows} * dim), decoded(values.size());
  for (float& v : values) v = normal(rng);
  Plane plane = raw_plane({shape.rows, 1, dim, 1}, Side::v, 0);
  plane.dtype = DType::f32;
  auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  plane.bytes = Bytes::copy_of({bytes, values.size() * sizeof(float)});
  double error = 0, power = 0;
  for (auto _ : state) {
    auto coded = codec->encode(plane);
    KV_CHECK(coded.ok());
    std::span<uint8_t> out(reinterpret_cast<uint8_t*>(decoded.data()), 4 * decoded.size());
    KV_CHECK(codec->decode_rows(*coded, 0, shape.rows, DType::f32, out).ok());
    error = power = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      error += std::pow(values[i] - decoded[i], 2);
      power += std::pow(values[i], 2);
    }
  }
  state.counters["D"] = error / power;
}

void lloyd_max(benchmark::State& state, double d) {
  for (auto _ : state) benchmark::DoNotOptimize(d);
  state.counters["D"] = d;
}

// One token's attention over `tokens` rows in blocks of shape.rows, all kv heads.
void attention(benchmark::State& state, Shape shape, uint32_t tokens, uint8_t k_bits,
               uint8_t v_bits, bool head_major, const Kernels* kernels, uint32_t threads) {
  const uint32_t heads = shape.heads, contexts = head_major ? heads : 1;
  if (head_major) shape.heads = 1;
  Context context{make_codec(shape, k_bits, v_bits, kernels), {}, 0};
  context.planes.reserve(size_t{2} * contexts * tokens / shape.rows);
  std::vector<AttentionRows> rows;
  for (uint32_t i = 0; i < contexts; ++i) rows.push_back(fill(context, shape, tokens));
  std::vector<float> q(size_t{shape.group} * shape.dim);
  for (size_t i = 0; i < q.size(); ++i) q[i] = std::sin(static_cast<float>(i));
  struct Worker {
    PreparedQueries queries;
    AttentionScratch scratch;
    std::vector<float> out;
  };
  std::vector<Worker> workers(threads);
  auto run = [&](uint32_t thread) {
    Worker& w = workers[thread];
    w.out.resize(q.size());
    for (uint32_t head = thread; head < heads; head += threads) {
      w.queries.prepare(*context.codec, 0, 0, head_major ? 0 : head, q,
                        1 / std::sqrt(static_cast<float>(shape.dim)));
      attend(w.queries, rows[head_major ? head : 0], w.scratch, w.out);
      benchmark::DoNotOptimize(w.out.data());
    }
  };
  for (auto _ : state) {
    std::vector<std::thread> others;
    for (uint32_t t = 1; t < threads; ++t) others.emplace_back(run, t);
    run(0);
    for (auto& t : others) t.join();
  }
  bytes_rate(state, context.bytes);
  state.SetLabel(context.codec->kernels().name);
}

// Distortion for the dims whose models are many; the codec's tests look at every one.
void register_distortion() {
  using benchmark::RegisterBenchmark;
  for (auto [bits, d] : {std::pair{2, .1175}, {3, .03455}, {4, .0095}}) {
    const std::string name = std::to_string(bits) + "bit";
    RegisterBenchmark(("BM_distortion/lloyd_max_" + name).c_str(), lloyd_max, d);
    for (uint32_t dim : {64u, 128u, 256u}) {
      RegisterBenchmark(("BM_distortion/" + name + "_d" + std::to_string(dim)).c_str(), distortion,
                        dim, static_cast<uint8_t>(bits))
          ->Unit(benchmark::kMillisecond);
    }
  }
}

void register_counted(const Shape& shape) {
  for (auto [name, k, v] :
       {std::tuple("fp16", 0, 0), {"k4v4", 4, 4}, {"k8v4", 8, 4}, {"k3v3", 3, 3}}) {
    for (const Kernels* kernels : {avx2_kernels(), &scalar_kernels()}) {
      if (kernels == nullptr) continue;
      const std::string full = std::string("BM_attend/d128h8g4_1K_") + name + "/" + kernels->name;
      benchmark::RegisterBenchmark(full.c_str(), attention, shape, 1024u, static_cast<uint8_t>(k),
                                   static_cast<uint8_t>(v), false, kernels, 1u);
    }
  }
}

void register_transforms() {
  using benchmark::RegisterBenchmark;
  RegisterBenchmark("BM_transform_rotation/d64h3r256", transform_rotation, Shape{256, 3, 64, 3});
  for (const Kernels* kernels : {avx512_kernels(), avx2_kernels(), &scalar_kernels()}) {
    if (kernels == nullptr) continue;
    const std::string name = std::string("/") + kernels->name;
    RegisterBenchmark(("BM_transform_integers/d64h3r256" + name).c_str(), integer_decode,
                      Shape{256, 3, 64, 3}, kernels);
    for (auto [shape, width, text] : {std::tuple(Shape{256, 3, 64, 3}, 192u, "d64h3r256_joint"),
                                      {Shape{256, 1, 256, 4}, 256u, "d256h1r256"},
                                      {Shape{256, 8, 128, 4}, 128u, "d128h8r256_per_head"},
                                      {Shape{256, 8, 128, 4}, 1024u, "d128h8r256_joint"}}) {
      if (kernels == &scalar_kernels() && width > 192) continue;
      if (width != 128) {
        RegisterBenchmark(("BM_transform_product/w" + std::to_string(width) + name).c_str(),
                          transform_product, shape.rows, width, kernels);
      }
      RegisterBenchmark((std::string("BM_transform_encode/") + text + name).c_str(),
                        transform_encode, shape, width, kernels);
      RegisterBenchmark((std::string("BM_transform_decode/") + text + name).c_str(),
                        transform_decode, shape, width, kernels);
    }
  }
}

void register_all() {
  register_transforms();
  register_distortion();
  const Shape d128{256, 8, 128, 4}, d64{256, 3, 64, 3};
  register_counted(d128);
  using benchmark::RegisterBenchmark;
  for (const Shape& s : {d128, d64}) {
    const std::string shape = "d" + std::to_string(s.dim) + "h" + std::to_string(s.heads) + "r256";
    RegisterBenchmark(("BM_copy/" + shape + "/memcpy").c_str(), copy_bytes, s);
    for (const Kernels* kernels : {avx512_kernels(), avx2_kernels(), &scalar_kernels()}) {
      if (kernels == nullptr) continue;
      const std::string name = kernels->name;
      for (int bits : {1, 2, 3, 4, 8}) {
        const auto b = static_cast<uint8_t>(bits);
        const std::string coded = "fp16_to_" + std::to_string(bits) + "bit_" + shape + "/" + name;
        RegisterBenchmark(("BM_encode/" + coded).c_str(), encode, s, b, kernels);
        const std::string back = std::to_string(bits) + "bit_to_fp16_" + shape + "/" + name;
        RegisterBenchmark(("BM_decode/" + back).c_str(), decode, s, b, kernels);
      }
    }
  }
  for (const Shape& s : {d128, d64}) {
    const std::string shape = "d" + std::to_string(s.dim) + "h" + std::to_string(s.heads) + "g" +
                              std::to_string(s.group) + "_32K_";
    for (auto [k, v] : {std::pair{0, 0}, {4, 4}, {8, 4}, {3, 3}, {2, 2}, {8, 8}}) {
      const std::string what = k == 0 ? "fp16" : "k" + std::to_string(k) + "v" + std::to_string(v);
      auto chosen = select_kernels();
      const Kernels* best = chosen.ok() ? *chosen : &scalar_kernels();
      for (auto [name, kernels] : {std::pair{"best", best}, std::pair{"avx2", avx2_kernels()},
                                   std::pair{"scalar", &scalar_kernels()}}) {
        if (kernels == nullptr || (kernels == &scalar_kernels() && k != 4)) continue;
        const std::string tail = std::string("/") + name;
        const auto kb = static_cast<uint8_t>(k), vb = static_cast<uint8_t>(v);
        RegisterBenchmark(("BM_attend/" + shape + what + tail).c_str(), attention, s, 32768u, kb,
                          vb, false, kernels, 1u)
            ->Unit(benchmark::kMillisecond);
        if (name != std::string("scalar")) {
          RegisterBenchmark(("BM_attend/" + shape + what + tail + "_2_threads").c_str(), attention,
                            s, 32768u, kb, vb, false, kernels, 2u)
              ->Unit(benchmark::kMillisecond)
              ->UseRealTime();
        }
        if (k != 0) continue;
        RegisterBenchmark(("BM_attend/" + shape + what + "_head_major" + tail).c_str(), attention,
                          s, 32768u, kb, vb, true, kernels, 1u)
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
}

}  // namespace
}  // namespace kv

int main(int argc, char** argv) {
  kv::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
