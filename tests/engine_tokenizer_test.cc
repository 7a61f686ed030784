// Tokenizer: ids equal llama.cpp's (golden ids always; live where KV_PYTHON has xllamacpp).
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>

#include "engine/tokenizer.h"
#include "tests/support/tiny_gguf.h"

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

// A SentencePiece vocabulary: specials, the 256 bytes, then pieces with falling scores.
Tokenizer sentencepiece(bool space_prefix = false, bool begin = true) {
  TinyGguf tiny;
  tiny.sentencepiece = {"t",  "h",   "e",         "i",  "n",     "\u2581",
                        "th", "the", "\u2581the", "in", "\u00e9"};
  tiny.space_prefix = space_prefix;
  tiny.add_bos = begin;
  auto file = GgufFile::parse(Bytes::owning(tiny.write()));
  KV_CHECK(file.ok());
  auto tokenizer = Tokenizer::load(*file);
  KV_CHECK(tokenizer.ok());
  return *tokenizer;
}

TEST(EngineSentencePiece, MergesByScoreAndFallsBackToBytes) {
  Tokenizer t = sentencepiece();
  Token pieces = TinyGguf::kFirstPiece, bytes = TinyGguf::kFirstByte;
  EXPECT_EQ(*t.encode(" the"), (std::vector<Token>{TinyGguf::kBegin, pieces + 8}));
  EXPECT_EQ(*t.encode("then", true, false), (std::vector<Token>{pieces + 7, pieces + 4}));
  EXPECT_EQ(*t.encode("\u00e9x", true, false), (std::vector<Token>{pieces + 10, bytes + 'x'}));
  EXPECT_EQ(*t.encode("\u00e8", true, false), (std::vector<Token>{bytes + 0xC3, bytes + 0xA8}));
  EXPECT_EQ(*t.encode(""), std::vector<Token>{TinyGguf::kBegin});
}

// Words are merged by themselves, but not where a token reaches over their boundary.
TEST(EngineSentencePiece, TokensThatReachOverASpaceAreFound) {
  TinyGguf tiny;
  tiny.sentencepiece = {"e\u2581", "\u2581\u2581", "e\u2581t", "t", "h", "e", "\u2581", "\u2581t"};
  tiny.space_prefix = tiny.add_bos = false;
  auto file = GgufFile::parse(Bytes::owning(tiny.write()));
  ASSERT_TRUE(file.ok());
  auto t = Tokenizer::load(*file);
  ASSERT_TRUE(t.ok());
  Token p = TinyGguf::kFirstPiece;
  EXPECT_EQ(*t->encode("he the t"), (std::vector<Token>{p + 4, p + 2, p + 4, p + 2}));
  EXPECT_EQ(*t->encode("h t  t"), (std::vector<Token>{p + 4, p + 7, p + 1, p + 3}));
}

TEST(EngineSentencePiece, SettingsOfTheFileAreHonoured) {
  Token pieces = TinyGguf::kFirstPiece;
  Tokenizer plain = sentencepiece(false, false), prefixed = sentencepiece(true, false);
  EXPECT_TRUE(plain.encode("")->empty());
  EXPECT_EQ(*plain.encode("the"), std::vector<Token>{pieces + 7});
  EXPECT_EQ(*prefixed.encode("the"), std::vector<Token>{pieces + 8});
  EXPECT_EQ(*prefixed.encode("the<|end|>the"),
            (std::vector<Token>{pieces + 8, prefixed.eos(), pieces + 8}));
}

TEST(EngineSentencePiece, LongestSpecialsFirst) {
  Tokenizer t = sentencepiece();
  Token two = TinyGguf::kTwoLines, three = TinyGguf::kThreeLines;
  Token line = TinyGguf::kFirstByte + '\n';
  EXPECT_EQ(*t.encode("\n\n\n\n\n", true, false), (std::vector<Token>{three, two}));
  EXPECT_EQ(*t.encode("\n\n\n\n", true, false), (std::vector<Token>{three, line}));
  EXPECT_EQ(t.encode("<|end|>", false, false)->size(), 7u);  // control tokens only where asked
  EXPECT_EQ(*t.encode("\n\n", false, false), std::vector<Token>{two});
}

TEST(EngineSentencePiece, DecodeInvertsEncodeOnAnyBytes) {
  Tokenizer t = sentencepiece();
  std::mt19937 random(4);
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (size_t n = random() % 80; n > 0; --n) {
      text += static_cast<char>(i % 2 == 0 ? random() % 256 : " thein\n\xC3\xA9<"[random() % 10]);
    }
    if (text.find("\u2581") != std::string::npos) continue;  // comes back as a space
    auto ids = t.encode(text, true, false);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(*t.decode(*ids), text) << "seed 4, round " << i;
  }
}

// The real models' vocabularies.
struct RealVocabulary {
  const char* variable;  // names the model file
  const char* golden;    // ids of GPL-3's beginning in column 1
  size_t gpl3_tokens;
};

class EngineRealTokenizer : public ::testing::TestWithParam<RealVocabulary> {
 protected:
  void SetUp() override {
    path_ = std::getenv(GetParam().variable);
    if (path_ == nullptr) GTEST_SKIP() << GetParam().variable << " is not set: no vocabulary";
    auto file = GgufFile::open(path_);
    ASSERT_TRUE(file.ok());
    auto loaded = Tokenizer::load(*file);
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    tokenizer_.emplace(*loaded);
  }
  const char* path_ = nullptr;
  std::optional<Tokenizer> tokenizer_;
};

TEST_P(EngineRealTokenizer, GoldenIds) {
  std::vector<Token> expected;
  std::ifstream golden(std::string(KV_GOLDEN_DIR) + "/engine/" + GetParam().golden);
  for (std::string line; std::getline(golden, line);) {
    if (line[0] != '#') expected.push_back(std::stoi(line));
  }
  ASSERT_GE(expected.size(), 512u);
  std::string text = read_file("/usr/share/common-licenses/GPL-3");
  if (text.empty()) GTEST_SKIP() << "no /usr/share/common-licenses/GPL-3";
  auto ids = tokenizer_->encode(text);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->size(), GetParam().gpl3_tokens);
  ids->resize(expected.size());
  EXPECT_EQ(*ids, expected);
}

// The script prints one line of ids per text of its own; the same texts come on its other lines.
TEST_P(EngineRealTokenizer, IdsEqualLlamaCpp) {
  const char* python = std::getenv("KV_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "needs KV_PYTHON (an interpreter with xllamacpp)";
  std::string out = ::testing::TempDir() + "/engine_ids_" + GetParam().variable + ".txt";
  std::string command = std::string("\"") + python + "\" \"" + KV_SCRIPTS_DIR +
                        "/llama_ids.py\" \"" + path_ + "\" \"" + out + "\" 2>/dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  std::ifstream in(out, std::ios::binary);
  size_t texts = 0, bytes = 0, count = 0;
  while (in >> bytes >> count) {
    in.get();
    std::string text(bytes, '\0');
    in.read(text.data(), static_cast<std::streamsize>(bytes));
    std::vector<Token> expected(count);
    for (Token& t : expected) in >> t;
    auto ids = tokenizer_->encode(text);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(*ids, expected) << "text " << texts << ": " << text.substr(0, 60);
    const auto begin = tokenizer_->encode("");
    ids->erase(ids->begin(), ids->begin() + static_cast<ptrdiff_t>(begin->size()));
    if (text.find("\u2581") == std::string::npos) {
      EXPECT_EQ(*tokenizer_->decode(*ids), text);
    }
    ++texts;
  }
  std::remove(out.c_str());
  EXPECT_GE(texts, 20u);
}

INSTANTIATE_TEST_SUITE_P(
    Models, EngineRealTokenizer,
    ::testing::Values(RealVocabulary{"KV_SMOLLM2_GGUF", "smollm2_logits.txt", 7639},
                      RealVocabulary{"KV_GEMMA3_GGUF", "gemma3_logits.txt", 7563}),
    [](const auto& given) { return std::string(given.param.variable); });

}  // namespace
}  // namespace kv
