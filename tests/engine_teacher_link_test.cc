// TeacherLink against a teacher whose every byte is written here: what it asks, what it makes of
// the answers, and that nothing which a teacher says is believed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "engine/teacher_link.h"

namespace kv {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kVocab = 3, kPrefix = 3;
const std::vector<Token> kWords = {0, 2, 1, 1, 0};

// One layer of full attention, one of nothing, one of a state and a window of 2.
ModelSpec taught_model() {
  PartSpec rows, window, state;
  rows.heads = 1;
  rows.k_dim = rows.v_dim = 2;
  window = rows;
  window.kind = PartKind::window;
  window.window = 2;
  state.kind = PartKind::state;
  return {"taught", sha256({}), {{{rows}}, {}, {{state, window}}}};
}

// A teacher's words, one after the other, and what was asked of it.
struct Script {
  ByteWriter says;
  uint32_t rotations = 0;
  float step = 1;
  std::vector<uint8_t> asked;
  size_t at = 0;

  void hello(uint8_t version = 2, uint32_t vocab = kVocab, uint32_t context = 100,
             const ModelSpec& spec = taught_model()) {
    for (char c : std::string("KVTEACH")) says.u8(static_cast<uint8_t>(c));
    says.u8(version);
    says.u32(vocab);
    says.u32(context);
    ByteWriter model;
    encode(spec, model);
    says.blob(model.span());
    says.u32(rotations);
    for (uint32_t i = 0; i < rotations; ++i) {
      says.u8(1);
      says.u32(1);
      says.f32(step);
    }
  }
  void floats(std::initializer_list<float> values) {
    for (float value : values) says.f32(value);
  }
  // The answer to exact: rows of layer 0, then the newest of layer 2; logits of two positions.
  void exact() {
    says.u8(0);
    floats({1, 2, 3, 4, 5, 6});
    floats({7, 8, 9, 10, 11, 12});
    floats({13, 14});
    floats({15, 16});
    floats({0, 0, 0, 0, 0, 1});
  }
  TeacherStream stream() {
    return {[this](std::span<uint8_t> to) -> Status {
              if (to.size() > says.size() - at) return corruption("the end");
              std::copy_n(says.span().begin() + static_cast<ptrdiff_t>(at), to.size(), to.begin());
              at += to.size();
              return {};
            },
            [this](std::span<const uint8_t> from) {
              asked.insert(asked.end(), from.begin(), from.end());
              return Status();
            }};
  }
};

// Doubles the values of layer 2, which begin at row 2.
Status twice_layer_2(uint32_t layer, Side side, uint32_t first, std::span<float> rows) {
  if (layer != 2 || side != Side::v) return {};
  EXPECT_EQ(first, 2u);
  for (float& x : rows) x *= 2;
  return {};
}

TEST(TeacherLink, AHitIsAskedForByTheSidesThatChange) {
  Script teacher;
  teacher.rotations = 2;
  teacher.hello();
  teacher.says.u8(0);
  teacher.says.array(std::span(kWords));
  teacher.exact();
  teacher.says.u8(0);
  teacher.floats({0, 0, 0, 0, 0, std::log(2.0f)});
  auto link = TeacherLink::open(teacher.stream());
  ASSERT_TRUE(link.ok()) << link.status().to_string();
  EXPECT_EQ(link->spec(), taught_model());
  EXPECT_EQ(link->rotations(), std::vector<Rotation>(2, {true, {1}}));
  auto tokens = link->encode("some text", 9);
  ASSERT_TRUE(tokens.ok()) << tokens.status().to_string();
  EXPECT_EQ(*tokens, kWords);
  auto text = link->exact(7, *tokens, kPrefix);
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  EXPECT_EQ(text->rows.k[0], (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(text->rows.v[0], (std::vector<float>{7, 8, 9, 10, 11, 12}));
  EXPECT_TRUE(text->rows.k[1].empty());
  EXPECT_EQ(text->rows.k[2], (std::vector<float>{13, 14}));
  EXPECT_EQ(text->rows.v[2], (std::vector<float>{15, 16}));
  auto found = link->hit(*text, twice_layer_2);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(teacher.at, teacher.says.size());

  ByteWriter want;
  want.u8(1);
  want.u32(9);
  want.string("some text");
  want.u8(2);
  want.u32(7);
  want.u32(kPrefix);
  want.array(std::span(kWords));
  want.u8(3);
  want.u32(7);
  want.u32(1);
  want.u16(2);  // layer
  want.u8(1);   // part: behind the state
  want.u8(1);   // values
  want.f32(30);
  want.f32(32);
  EXPECT_EQ(teacher.asked, want.bytes());

  // First position: the same. Second: e of e + 2 was it, 2 of 4 is it.
  ASSERT_EQ(found->kld.size(), 2u);
  EXPECT_NEAR(found->kld[0], 0, 1e-6);
  const double e = std::exp(1.0), sum = e + 2;
  EXPECT_NEAR(found->kld[1], e / sum * std::log(e / sum / 0.5) + 2 / sum * std::log(1 / sum / 0.25),
              1e-6);
  EXPECT_EQ(found->agreements, 2u);
  EXPECT_EQ(found->predicted, 1u);
  EXPECT_NEAR(found->exact_nll, std::log(3.0), 1e-6);
}

TEST(TeacherLink, ATeacherThatCannotSaysWhyAndGoesOn) {
  Script teacher;
  teacher.hello();
  teacher.says.u8(1);
  teacher.says.string("no such text");
  teacher.says.u8(0);
  teacher.says.array(std::span(kWords));
  auto link = TeacherLink::open(teacher.stream());
  ASSERT_TRUE(link.ok());
  const auto failed = link->encode("text", 9);
  EXPECT_EQ(failed.status().code(), StatusCode::unsupported);
  EXPECT_THAT(failed.status().message(), HasSubstr("no such text"));
  EXPECT_TRUE(link->encode("text", 9).ok());
}

TEST(TeacherLink, WhatATeacherSaysIsNotBelieved) {
  struct Case {
    const char* message;
    std::function<void(Script&)> say;
  };
  for (const Case& c : std::vector<Case>{
           {"version: 1, expected 2", [](Script& s) { s.hello(1); }},
           {"\"KVTEACH\"", [](Script& s) { s.says.string("Loading the model: 12345"); }},
           {"vocabulary: 1048577, expected at most 1048576",
            [](Script& s) { s.hello(2, kMaxTeacherVocab + 1); }},
           {"context: 32769, expected at most 32768",
            [](Script& s) { s.hello(2, kVocab, kMaxTeacherTokens + 1); }},
           {"0, expected at least 1", [](Script& s) { s.hello(2, 0); }},
           {"rotations: 17, expected at most 16", [](Script& s) { s.rotations = 17, s.hello(); }},
           {"a step, expected steps of 0 to 8",
            [](Script& s) { s.rotations = 1, s.step = 9, s.hello(); }},
           {"verdict: 9", [](Script& s) { s.hello(), s.says.u8(9); }},
           {"bytes of a reason: 5000, expected at most 1024",
            [](Script& s) { s.hello(), s.says.u8(1), s.says.u32(5000); }},
           {"tokens of a text: 6, expected at most 5",
            [](Script& s) { s.hello(), s.says.u8(0), s.says.u32(6); }},
           {"token: 3, expected 0 to 2",
            [](Script& s) {
              s.hello(), s.says.u8(0), s.says.array(std::span<const Token>({{0, 1, 3, 2, 2}}));
            }},
           {"logits: a value that is not finite", [](Script& s) {
              s.hello();
              s.says.u8(0);
              s.says.array(std::span(kWords));
              s.says.u8(0);
              s.floats({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
              s.floats({0, 0, 0, 0, INFINITY, 1});
            }}}) {
    Script teacher;
    c.say(teacher);
    auto run = [&]() -> Status {
      KV_ASSIGN_OR_RETURN(auto link, TeacherLink::open(teacher.stream()));
      KV_ASSIGN_OR_RETURN(auto tokens, link.encode("text", 5));
      return link.exact(0, tokens, kPrefix).status();
    };
    EXPECT_THAT(run().message(), HasSubstr(c.message));
  }
}

TEST(TeacherLink, LengthsHaveLimits) {
  Script teacher;
  teacher.hello(2, kMaxTeacherVocab, 1000);
  auto link = TeacherLink::open(teacher.stream());
  ASSERT_TRUE(link.ok());
  const std::vector<Token> tokens(1001);
  for (const auto& [number, count, prefix] :
       {std::tuple(kMaxTeacherTexts, 10u, 3u), {0u, 10u, 11u}, {0u, 10u, 0u}, {0u, 1001u, 3u}}) {
    const Status got = link->exact(number, std::span(tokens).first(count), prefix).status();
    EXPECT_EQ(got.code(), StatusCode::invalid_argument);
    EXPECT_THAT(got.message(), HasSubstr("at most 256 texts of at most 1000 tokens"));
  }
  const Status got = link->exact(0, std::span(tokens).first(300), 3).status();
  EXPECT_THAT(got.message(), HasSubstr("at most 268435456"));
  EXPECT_TRUE(teacher.asked.empty()) << "nothing is asked that can't be taken";
}

TEST(TeacherLink, APartMayHaveNoRowsAtAPrefix) {
  ModelSpec model = taught_model();
  model.layers[2].parts[1].kind = PartKind::chunk;
  model.layers[2].parts[1].window = 0;
  model.layers[2].parts[1].chunk = kPrefix;  // ends where the prefix does
  Script teacher;
  teacher.hello(2, kVocab, 100, model);
  teacher.says.u8(0);
  teacher.floats({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  teacher.floats({0, 0, 0, 0, 0, 1});
  teacher.says.u8(0);
  teacher.floats({0, 0, 0, 0, 0, 1});
  auto link = TeacherLink::open(teacher.stream());
  ASSERT_TRUE(link.ok()) << link.status().to_string();
  auto text = link->exact(0, kWords, kPrefix);
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  EXPECT_TRUE(text->rows.k[2].empty());
  RowCoder coder = [](uint32_t layer, Side, uint32_t, std::span<float>) {
    EXPECT_EQ(layer, 0u) << "nothing to code";
    return Status();
  };
  EXPECT_TRUE(link->hit(*text, coder).ok());
}

// The sample that the fuzz target starts from is a whole conversation.
TEST(TeacherLink, TheFuzzSampleIsWhole) {
  Script teacher;
  teacher.rotations = 1;
  teacher.hello();
  teacher.says.u8(0);
  teacher.says.array(std::span(kWords).first(4));
  teacher.says.u8(0);
  teacher.floats({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  teacher.floats({0, 0, 0, 0, 0, 1});
  teacher.says.u8(0);
  teacher.floats({0, 1, 0, 0, 0, 1});
  const std::string path = std::string(KV_CORPUS_DIR) + "/teacher/sample.bin";
  if (std::getenv("KV_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(teacher.says.span().data()),
               static_cast<std::streamsize>(teacher.says.size()));
  }
  std::ifstream in(path, std::ios::binary);
  const std::string kept(std::istreambuf_iterator<char>(in), {});
  EXPECT_EQ(kept, std::string(teacher.says.span().begin(), teacher.says.span().end()));
  auto link = TeacherLink::open(teacher.stream());
  ASSERT_TRUE(link.ok()) << link.status().to_string();
  auto text = link->exact(0, *link->encode("text", 8), 2);
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  auto same = [](uint32_t, Side, uint32_t, std::span<float>) { return Status(); };
  ASSERT_TRUE(link->hit(*text, same).ok());
  EXPECT_EQ(teacher.at, kept.size());
}

}  // namespace
}  // namespace kv
