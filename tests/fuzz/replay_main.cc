// Runs a fuzz target without a fuzzer: every file of the given directories, then mutations of each
// from a fixed seed. The same targets link against libFuzzer with -fsanitize=fuzzer instead.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr int kMutationsPerFile = 10'000;

void mutate(std::vector<uint8_t>& bytes, std::mt19937_64& rng) {
  switch (rng() % 5) {
    case 0:
      bytes.resize(rng() % (bytes.size() + 1));
      break;
    case 1:
      bytes.insert(bytes.begin() + static_cast<long>(rng() % (bytes.size() + 1)), 0xff);
      break;
    case 2:
      if (bytes.size() > 4) bytes.erase(bytes.begin() + static_cast<long>(rng() % bytes.size()));
      break;
    default:
      if (!bytes.empty()) bytes[rng() % bytes.size()] = static_cast<uint8_t>(rng());
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::mt19937_64 rng(20);
  size_t runs = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& e : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream in(e.path(), std::ios::binary);
      std::vector<uint8_t> seed{std::istreambuf_iterator<char>(in), {}};
      LLVMFuzzerTestOneInput(seed.data(), seed.size());
      ++runs;
      for (int m = 0; m < kMutationsPerFile; ++m, ++runs) {
        std::vector<uint8_t> bytes = seed;
        for (uint64_t n = 1 + rng() % 4; n > 0; --n) mutate(bytes, rng);
        LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
      }
    }
  }
  std::printf("%zu inputs\n", runs);
  return runs > 0 ? 0 : 1;
}
