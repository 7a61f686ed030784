// Runs a fuzz target without a fuzzer: every file of the given directories, then mutations of each
// from a fixed seed (or KV_FUZZ_SEED); with KV_FUZZ_SECONDS, more rounds of mutations from seeds
// that are told, until so many seconds are over. The same targets link against libFuzzer with
// -fsanitize=fuzzer instead.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
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
  std::vector<std::vector<uint8_t>> corpus;
  for (int i = 1; i < argc; ++i) {
    for (const auto& e : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream in(e.path(), std::ios::binary);
      corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
      LLVMFuzzerTestOneInput(corpus.back().data(), corpus.back().size());
    }
  }
  size_t runs = corpus.size();
  using Clock = std::chrono::steady_clock;
  const char* text = std::getenv("KV_FUZZ_SECONDS");
  const auto end = Clock::now() + std::chrono::seconds(text != nullptr ? std::atoi(text) : 0);
  const char* told = std::getenv("KV_FUZZ_SEED");
  uint64_t seed = told != nullptr ? std::strtoull(told, nullptr, 10) : 20;
  do {
    std::mt19937_64 rng(seed);
    for (const auto& file : corpus) {
      for (int m = 0; m < kMutationsPerFile; ++m, ++runs) {
        std::vector<uint8_t> bytes = file;
        for (uint64_t n = 1 + rng() % 4; n > 0; --n) mutate(bytes, rng);
        LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
      }
    }
    if (Clock::now() >= end) break;
    seed = std::random_device()();  // told before its round: KV_FUZZ_SEED repeats one that crashed
    std::printf("KV_FUZZ_SEED=%llu\n", static_cast<unsigned long long>(seed));
    std::fflush(stdout);
  } while (runs > 0);
  std::printf("%zu inputs\n", runs);
  return runs > 0 ? 0 : 1;
}
