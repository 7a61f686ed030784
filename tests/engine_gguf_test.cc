// GGUF reader and model loading: what is refused, by name, and that any bytes are safe.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/fingerprint.h"
#include "engine/model.h"
#include "tests/support/tiny_gguf.h"

namespace kv {
namespace {

using ::testing::HasSubstr;

Result<std::shared_ptr<const Model>> load(std::vector<uint8_t> bytes) {
  auto file = GgufFile::parse(Bytes::owning(std::move(bytes)));
  if (!file.ok()) return file.status();
  return Model::load(std::move(*file));
}

TEST(EngineGguf, LoadsWhatTheWriterWrote) {
  TinyGguf tiny;
  auto model = load(tiny.write());
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const ModelShape& s = (*model)->shape();
  EXPECT_EQ(s.layers, 2u);
  EXPECT_EQ(s.head_dim, 32u);
  EXPECT_EQ(s.vocab, tiny.tokens.size());
  EXPECT_EQ((*model)->spec().layers.size(), 2u);
  EXPECT_TRUE(validate((*model)->spec(), 256).ok());
}

TEST(EngineGguf, FingerprintFollowsTheWeights) {
  TinyGguf a, same, other;
  other.seed = 2;
  auto x = load(a.write()), y = load(same.write()), z = load(other.write());
  ASSERT_TRUE(x.ok() && y.ok() && z.ok());
  EXPECT_EQ((*x)->spec().fingerprint, (*y)->spec().fingerprint);
  EXPECT_NE((*x)->spec().fingerprint, (*z)->spec().fingerprint);
}

// The example of MODELS.md: the bytes behind its offsets, and the fingerprint that it names.
TEST(EngineGguf, TheFingerprintInTheDocumentIsTrue) {
  std::ifstream in(KV_MODELS_FILE);
  std::string document((std::istreambuf_iterator<char>(in)), {});
  std::istringstream lines(document);
  std::vector<uint8_t> bytes;
  auto is_hex = [](const std::string& word, size_t digits) {
    return word.size() == digits && word.find_first_not_of("0123456789abcdef") == word.npos;
  };
  for (std::string line, word; std::getline(lines, line);) {
    if (line.size() < 6 || !is_hex(line.substr(0, 4), 4) || line[4] != ':') continue;
    EXPECT_EQ(std::stoul(line.substr(0, 4), nullptr, 16), bytes.size()) << line;
    std::istringstream words(line.substr(5, 49));
    while (words >> word && is_hex(word, 2)) {
      bytes.push_back(static_cast<uint8_t>(std::stoul(word, nullptr, 16)));
    }
  }
  auto file = GgufFile::parse(Bytes::owning(std::move(bytes)));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_THAT(document, HasSubstr("`" + fingerprint(*file).hex() + "`"));
}

TEST(EngineGguf, FingerprintFollowsArchitectureKeysAndNoOthers) {
  auto of = [](TinyGguf tiny) {
    auto file = GgufFile::parse(Bytes::owning(tiny.write()));
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    return fingerprint(*file);
  };
  TinyGguf plain, foreign, own, tensor;
  foreign.extra_key = "quantize.imatrix.entries";
  own.extra_key = "llama.rope.dimension_count";
  tensor.extra_tensor = "extra.weight";
  EXPECT_EQ(of(plain), of(foreign));
  EXPECT_NE(of(plain), of(own));
  EXPECT_NE(of(plain), of(tensor));
}

TEST(EngineGguf, RefusesByName) {
  TinyGguf type;
  type.embedding_type = 13;
  Status s = load(type.write()).status();
  EXPECT_EQ(s.code(), StatusCode::unsupported);
  EXPECT_THAT(s.message(), HasSubstr("token_embd.weight"));
  EXPECT_THAT(s.message(), HasSubstr("type Q5_K"));
  TinyGguf unknown;
  unknown.embedding_type = 99;
  EXPECT_THAT(load(unknown.write()).status().message(), HasSubstr("number 99"));
  TinyGguf narrow;  // rows of 64 values, groups of 256
  narrow.embedding_type = 12;
  EXPECT_THAT(load(narrow.write()).status().message(), HasSubstr("multiple of 256"));
  TinyGguf arch;
  arch.architecture = "mamba2";
  s = load(arch.write()).status();
  EXPECT_EQ(s.code(), StatusCode::unsupported);
  EXPECT_THAT(s.message(), HasSubstr("mamba2"));
  TinyGguf scaled;
  scaled.rope_scaling = "yarn";
  EXPECT_THAT(load(scaled.write()).status().message(), HasSubstr("yarn"));
  TinyGguf extra;
  extra.extra_tensor = "blk.0.attn_q.bias";
  s = load(extra.write()).status();
  EXPECT_EQ(s.code(), StatusCode::unsupported);
  EXPECT_THAT(s.message(), HasSubstr("attn_q.bias"));
}

TEST(EngineGguf, MissingFileAndWrongVersion) {
  EXPECT_EQ(GgufFile::open("/nonexistent/model.gguf").status().code(), StatusCode::io_error);
  auto bytes = TinyGguf().write();
  bytes[4] = 2;
  EXPECT_EQ(load(bytes).status().code(), StatusCode::unsupported);
}

// A file is read when it is opened: truncating it later reaches neither tensors nor texts.
TEST(EngineGguf, AFileTruncatedAfterItsOpenDoesNoHarm) {
  const auto bytes = TinyGguf().write();
  const std::string path = testing::TempDir() + "/engine_gguf_test.gguf";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  auto opened = GgufFile::open(path), parsed = GgufFile::parse(Bytes::copy_of(bytes));
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  ASSERT_TRUE(parsed.ok());
  ASSERT_EQ(opened->tensors().size(), parsed->tensors().size());
  std::filesystem::resize_file(path, 0);
  for (size_t i = 0; i < parsed->tensors().size(); ++i) {
    const GgufTensor &a = opened->tensors()[i], &b = parsed->tensors()[i];
    EXPECT_TRUE(std::equal(a.data.begin(), a.data.end(), b.data.begin(), b.data.end())) << b.name;
    EXPECT_EQ(a.name, b.name);
  }
  auto tokens = opened->texts("tokenizer.ggml.tokens"),
       same = parsed->texts("tokenizer.ggml.tokens");
  ASSERT_TRUE(tokens.ok() && same.ok());
  EXPECT_TRUE(std::equal(tokens->begin(), tokens->end(), same->begin(), same->end()));
  std::filesystem::remove(path);
}

// Every truncation is refused: the last tensor's data ends with the file.
TEST(EngineGguf, EveryTruncationIsAStatus) {
  auto bytes = TinyGguf().write();
  for (size_t size = 0; size + 64 < bytes.size(); size += size < 12000 ? 7 : 997) {
    auto cut = std::vector<uint8_t>(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_FALSE(GgufFile::parse(Bytes::owning(std::move(cut))).ok()) << size;
  }
}

// Damage gives a Status or a model that loads; never a crash, never unbounded memory.
TEST(EngineGguf, BitFlipsAreSafe) {
  auto bytes = TinyGguf().write();
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 1500; ++i) {
    auto damaged = bytes;
    size_t header = 9000;  // metadata and tensor table
    for (int flips = 0; flips < 1 + i % 3; ++flips) {
      damaged[random() % header] ^= static_cast<uint8_t>(1u << random() % 8);
    }
    if (!load(std::move(damaged)).ok()) ++refused;
  }
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace kv
