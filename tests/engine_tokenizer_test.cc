// Tokenizer: ids equal llama.cpp's (golden ids always; live where KV_PYTHON has xllamacpp).
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>

#include "engine/tokenizer.h"
#include "tests/tiny_gguf.h"

namespace kv {
namespace {

Tokenizer tiny_tokenizer() {
  static std::vector<uint8_t> bytes = TinyGguf().write();
  auto file = GgufFile::parse(Bytes::copy_of(bytes));
  KV_CHECK(file.ok());
  auto tokenizer = Tokenizer::load(*file);
  KV_CHECK(tokenizer.ok());
  return *tokenizer;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

TEST(EngineTokenizer, MergesByRankAndSplitsDigits) {
  Tokenizer t = tiny_tokenizer();
  // " the": bytes merge t+h, th+e, then space+the; digits are pieces of their own.
  auto ids = t.encode(" the 12");
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*ids, (std::vector<Token>{259, ' ', '1', '2'}));
}

TEST(EngineTokenizer, SpecialsAreParsedOnlyWhereAsked) {
  Tokenizer t = tiny_tokenizer();
  EXPECT_EQ(*t.encode("a<|end|>b"), (std::vector<Token>{'a', t.eos(), 'b'}));
  auto plain = t.encode("a<|end|>b", false);
  EXPECT_EQ(plain->size(), 9u);
  EXPECT_EQ(*t.decode(*plain), "a<|end|>b");
}

TEST(EngineTokenizer, DecodeInvertsEncodeOnAnyBytes) {
  Tokenizer t = tiny_tokenizer();
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (size_t n = random() % 80; n > 0; --n) {
      text += static_cast<char>(i % 2 == 0 ? random() % 256 : " theing\n\xC3\xA9 7"[random() % 12]);
    }
    auto ids = t.encode(text);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(*t.decode(*ids), text) << "seed 3, round " << i;
  }
}

TEST(EngineTokenizer, RefusesBadInput) {
  Tokenizer t = tiny_tokenizer();
  EXPECT_EQ(t.encode(std::string(kMaxTextBytes + 1, 'a')).status().code(),
            StatusCode::invalid_argument);
  Token outside[] = {100000};
  EXPECT_EQ(t.decode(outside).status().code(), StatusCode::invalid_argument);
}

TEST(EngineTokenizer, LongPieceIsNotQuadratic) {
  Tokenizer t = tiny_tokenizer();
  auto ids = t.encode(std::string(1 << 20, ' '));
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->size(), size_t{1} << 19);
}

TEST(EngineTokenizer, GoldenIdsOfTheRealModel) {
  const char* path = std::getenv("KV_SMOLLM2_GGUF");
  if (path == nullptr) GTEST_SKIP() << "KV_SMOLLM2_GGUF is not set: no vocabulary";
  auto file = GgufFile::open(path);
  ASSERT_TRUE(file.ok());
  auto tokenizer = Tokenizer::load(*file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  std::vector<Token> expected;
  std::ifstream golden(std::string(KV_GOLDEN_DIR) + "/engine/smollm2_logits.txt");
  for (std::string line; std::getline(golden, line);) {
    if (line[0] != '#') expected.push_back(std::stoi(line));
  }
  std::string text = read_file("/usr/share/common-licenses/GPL-3");
  if (text.empty()) GTEST_SKIP() << "no /usr/share/common-licenses/GPL-3";
  auto ids = tokenizer->encode(text);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->size(), 7639u);
  ids->resize(expected.size());
  EXPECT_EQ(*ids, expected);
}

// The script prints one line of ids per text of its own; the same texts come on its other lines.
TEST(EngineTokenizer, IdsEqualLlamaCpp) {
  const char *path = std::getenv("KV_SMOLLM2_GGUF"), *python = std::getenv("KV_PYTHON");
  if (path == nullptr || python == nullptr) {
    GTEST_SKIP() << "needs KV_SMOLLM2_GGUF and KV_PYTHON (an interpreter with xllamacpp)";
  }
  auto file = GgufFile::open(path);
  ASSERT_TRUE(file.ok());
  auto tokenizer = Tokenizer::load(*file);
  ASSERT_TRUE(tokenizer.ok());
  std::string out = ::testing::TempDir() + "/engine_llama_ids.txt";
  std::string command = std::string("\"") + python + "\" \"" + KV_SCRIPTS_DIR +
                        "/llama_ids.py\" \"" + path + "\" \"" + out + "\" 2>/dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  std::ifstream in(out, std::ios::binary);
  size_t texts = 0, bytes = 0, count = 0;
  while (in >> bytes >> count) {
    in.get();
    std::string text(bytes, '\0');
    in.read(text.data(), static_cast<std::streamsize>(bytes));
    std::vector<Token> expected(count);
    for (Token& t : expected) in >> t;
    auto ids = tokenizer->encode(text);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(*ids, expected) << "text " << texts << " of " << bytes << " bytes";
    EXPECT_EQ(*tokenizer->decode(*ids), text);
    ++texts;
  }
  std::remove(out.c_str());
  EXPECT_GE(texts, 6u);
}

}  // namespace
}  // namespace kv
