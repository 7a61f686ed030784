// Measuring codings: llama.cpp's rounding against its own package's, the teacher against the engine
// and a softmax in double, and the commands `cachectl quality` and `cachectl tune` on a tiny model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "codec/calibrate.h"
#include "codec/plan.h"
#include "codec/preset.h"
#include "codec/profile_file.h"
#include "engine/decoder.h"
#include "engine/generator.h"
#include "engine/model_network.h"
#include "tests/support/cachectl_process.h"
#include "tests/support/engine_memory_client.h"
#include "tests/support/tiny_gguf.h"
#include "tools/cachectl_llama.h"
#include "tools/cachectl_quality_settings.h"

namespace kv::cachectl {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(QualitySettings, BlocksRoundAsLlamaCppDoes) {
  // quantize and dequantize of the Python package gguf, on ((37 i) mod 64 - 31) * 0.11.
  const float q8_0[32] = {-3.4083252f,   0.665039062f,  -2.29992676f, 1.74572754f,   -1.21923828f,
                          2.85412598f,   -0.110839844f, -3.07580566f, 0.997558594f,  -1.96740723f,
                          2.07824707f,   -0.88671875f,  3.18664551f,  0.221679688f,  -2.74328613f,
                          1.33007812f,   -1.66259766f,  2.4107666f,   -0.554199219f, 3.51916504f,
                          0.554199219f,  -2.4107666f,   1.66259766f,  -1.33007812f,  2.74328613f,
                          -0.221679688f, -3.18664551f,  0.88671875f,  -2.07824707f,  1.96740723f,
                          -0.997558594f, 3.07580566f};
  const float q4_0[32] = {-3.07958984f,  0.439941406f,  -2.19970703f, 1.75976562f,   -1.31982422f,
                          2.63964844f,   0.0f,          -3.07958984f, 0.879882812f,  -2.19970703f,
                          2.19970703f,   -0.879882812f, 3.07958984f,  0.0f,          -2.63964844f,
                          1.31982422f,   -1.75976562f,  2.19970703f,  -0.439941406f, 3.51953125f,
                          0.439941406f,  -2.63964844f,  1.75976562f,  -1.31982422f,  2.63964844f,
                          -0.439941406f, -3.07958984f,  0.879882812f, -2.19970703f,  1.75976562f,
                          -0.879882812f, 3.07958984f};
  std::vector<float> a(32), b(32);
  for (int i = 0; i < 32; ++i) a[i] = b[i] = static_cast<float>((37 * i) % 64 - 31) * 0.11f;
  round_q8_0(a.data());
  round_q4_0(b.data());
  for (int i = 0; i < 32; ++i) {
    EXPECT_FLOAT_EQ(a[i], q8_0[i]) << i;
    EXPECT_FLOAT_EQ(b[i], q4_0[i]) << i;
  }
  std::vector<float> zeros(32);
  round_q8_0(zeros.data());
  round_q4_0(zeros.data());
  EXPECT_EQ(zeros, std::vector<float>(32));
}

// A tiny model, in memory and as a file; texts whose letters are (nearly) tokens.
class Quality : public ::testing::Test {
 protected:
  static constexpr uint32_t kTokens = 768, kPrefix = 512;

  void SetUp() override {
    dir_ =
        std::filesystem::path(::testing::TempDir()) /
        ("quality-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::create_directories(dir_);
    TinyGguf tiny;
    tiny.kv_heads = 2;
    bytes_ = tiny.write();
    write("model.gguf", {bytes_.begin(), bytes_.end()});
    auto loaded = Model::load(path("model.gguf"));
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    model_ = *loaded;
    write("text.txt", text(1));
    write("other.txt", text(2));
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string path(const std::string& name) const { return (dir_ / name).string(); }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
  }
  static std::string text(uint32_t seed) {
    std::mt19937 random(seed);
    std::string out;
    for (int i = 0; i < 4000; ++i) out += "etaoin shrdlu\n"[random() % 14];
    return out;
  }
  std::vector<Token> tokens() const {
    auto ids = *model_->tokenizer().encode(text(1));
    ids.resize(kTokens);
    return ids;
  }
  Profile profile(const char* preset) const {
    auto found = find_preset(preset);
    CodingSettings settings;
    settings.k_bits = found->k_bits;
    settings.v_bits = found->v_bits;
    return *plain_profile(model_->spec(), settings);
  }
  std::shared_ptr<const Codec> codec(const Profile& p) const {
    return *Codec::create(model_->spec(), std::make_shared<const Profile>(p));
  }
  std::vector<float> logits(const float* hidden) const {
    Threads threads(1);
    Decoder decoder(*model_, threads);
    std::vector<float> out(model_->shape().vocab);
    const std::span<float> one(out);
    decoder.logits_of(hidden, {&one, 1});
    return out;
  }
  // The engine's logits of the last of `tokens` behind the others in the form they are stored.
  std::vector<float> engine_logits(std::span<const Token> tokens, const Profile& p) const {
    auto network = *make_network(model_, 1);
    KvCache cache(codec(p), {});
    const uint32_t step = p.prefill == PrefillMode::coded ? kTeacherBlock : kTokens;
    for (size_t end = 0; end < tokens.size() - 1;) {
      end = std::min<size_t>(end + step, tokens.size() - 1);
      EXPECT_TRUE(network->prefill(tokens.first(end), cache, Deadline::max()).ok());
    }
    std::vector<float> out(model_->shape().vocab);
    EXPECT_TRUE(network->step(tokens.back(), cache, out).ok());
    return out;
  }
  static double distance(const std::vector<float>& a, const std::vector<float>& b) {
    double worst = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      worst = std::max(worst, std::fabs(static_cast<double>(a[i]) - b[i]));
    }
    return worst;
  }
  Ran cachectl(const std::string& arguments) const { return run_cachectl(arguments, dir_); }

  std::filesystem::path dir_;
  std::vector<uint8_t> bytes_;
  std::shared_ptr<const Model> model_;
};

TEST_F(Quality, NothingChangedIsNoDivergence) {
  Teacher teacher(model_, 2);
  auto exact = teacher.exact(tokens(), kPrefix);
  ASSERT_TRUE(exact.ok()) << exact.status().to_string();
  RowCoder nothing = [](uint32_t, Side, uint32_t, std::span<float>) { return Status(); };
  auto rows = Teacher::coded_prefix(*exact, nothing);
  std::vector<std::vector<float>> hits{*teacher.hit(*exact, *rows)};
  std::vector<std::vector<float>> wholes{*teacher.whole_by_blocks(*exact, nothing),
                                         *teacher.whole_by_rows(*exact, nothing)};
  auto check = [](const Divergence& d, size_t positions) {
    ASSERT_EQ(d.kld.size(), positions);
    EXPECT_EQ(d.agreements, positions);
    EXPECT_EQ(d.predicted, positions - 1);
    EXPECT_NEAR(d.exact_nll, d.coded_nll, 1e-3);
    for (float kld : d.kld) EXPECT_LT(kld, 1e-6f);
  };
  check(teacher.compare(*exact, kPrefix, hits)[0], kTokens - kPrefix);
  for (const Divergence& d : teacher.compare(*exact, kTeacherBlock, wholes)) {
    check(d, kTokens - kTeacherBlock);
  }
  const auto errors = *teacher.attention_errors(*exact, *rows);
  for (const AttentionError& e : errors) {
    EXPECT_EQ(e.k, 0);
    EXPECT_EQ(e.v, 0);
    EXPECT_EQ(e.both, 0);
  }
}

TEST_F(Quality, DivergenceIsThatOfSoftmaxesInDouble) {
  Teacher teacher(model_, 2);
  auto exact = teacher.exact(tokens(), kPrefix);
  ASSERT_TRUE(exact.ok());
  const size_t width = model_->shape().width;
  std::vector<std::vector<float>> other{
      {exact->hidden.begin() + static_cast<ptrdiff_t>(kPrefix * width), exact->hidden.end()}};
  std::mt19937 random(7);
  for (float& x : other[0]) x *= 1 + 0.5f * static_cast<float>(random() % 1000) / 1000;
  const Divergence got = teacher.compare(*exact, kPrefix, other)[0];
  auto softmax = [](const std::vector<float>& x) {
    std::vector<double> p(x.begin(), x.end());
    double sum = 0;
    for (double& v : p) sum += v = std::exp(v);
    for (double& v : p) v /= sum;
    return p;
  };
  double exact_nll = 0, coded_nll = 0;
  uint32_t agreements = 0;
  for (uint32_t i = 0; i < kTokens - kPrefix; ++i) {
    auto x = logits(exact->hidden.data() + (kPrefix + i) * width);
    auto y = logits(other[0].data() + i * width);
    auto p = softmax(x), q = softmax(y);
    double kld = 0;
    for (size_t v = 0; v < p.size(); ++v) kld += p[v] * std::log(p[v] / q[v]);
    EXPECT_NEAR(got.kld[i], kld, 1e-5 + 1e-3 * kld) << i;
    agreements += std::max_element(x.begin(), x.end()) - x.begin() ==
                  std::max_element(y.begin(), y.end()) - y.begin();
    if (kPrefix + i + 1 == kTokens) continue;
    exact_nll -= std::log(p[exact->tokens[kPrefix + i + 1]]);
    coded_nll -= std::log(q[exact->tokens[kPrefix + i + 1]]);
  }
  EXPECT_EQ(got.agreements, agreements);
  EXPECT_LT(agreements, kTokens - kPrefix) << "nothing moved: the test shows nothing";
  EXPECT_NEAR(got.exact_nll, exact_nll, 1e-4 * exact_nll);
  EXPECT_NEAR(got.coded_nll, coded_nll, 1e-4 * coded_nll);
}

// What is measured is what the engine does: its own logits on a coded prefix.
TEST_F(Quality, BothProtocolsAreTheEngines) {
  Teacher teacher(model_, 2);
  const auto ids = tokens();
  auto exact = teacher.exact(ids, kPrefix);
  ASSERT_TRUE(exact.ok());
  const size_t width = model_->shape().width;
  Profile coded = profile("tq2");
  auto coder = *coder_of(codec(coded));
  auto rows = Teacher::coded_prefix(*exact, coder);
  ASSERT_TRUE(rows.ok()) << rows.status().to_string();
  const auto head = std::span(ids).first(kPrefix + 1);
  const auto none = logits(exact->hidden.data() + kPrefix * width);

  const auto hit = logits(teacher.hit(*exact, *rows)->data());
  const auto engine_hit = engine_logits(head, coded);
  EXPECT_LT(distance(hit, engine_hit), 0.05 * distance(none, engine_hit));

  coded.prefill = PrefillMode::coded;
  const auto whole_rows = *teacher.whole_by_blocks(*exact, coder);
  const auto whole = logits(whole_rows.data() + (kPrefix - kTeacherBlock) * width);
  const auto engine_whole = engine_logits(head, coded);
  EXPECT_LT(distance(whole, engine_whole), 0.05 * distance(none, engine_whole));
  EXPECT_LT(distance(whole, engine_whole), 0.3 * distance(hit, engine_whole))
      << "no other protocol";

  const auto by_rows =
      logits(teacher.whole_by_rows(*exact, coder)->data() + (kPrefix - kTeacherBlock) * width);
  EXPECT_GT(distance(by_rows, whole), 0) << "rows of the open block are coded too";
}

TEST_F(Quality, AttentionErrorsTellKeysFromValues) {
  Teacher teacher(model_, 2);
  auto exact = teacher.exact(tokens(), kPrefix);
  ASSERT_TRUE(exact.ok());
  RowCoder values_of_layer_1 = [](uint32_t layer, Side side, uint32_t, std::span<float> rows) {
    if (layer == 1 && side == Side::v) std::ranges::fill(rows, 0.0f);
    return Status();
  };
  auto errors =
      *teacher.attention_errors(*exact, *Teacher::coded_prefix(*exact, values_of_layer_1));
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(errors[0].both, 0);
  EXPECT_EQ(errors[1].k, 0);
  EXPECT_GT(errors[1].v, 0.1);
  EXPECT_EQ(errors[1].both, errors[1].v);
}

TEST_F(Quality, TheCommandMeasuresEverySetting) {
  Ran ran = cachectl(
      "quality model.gguf --tokens 768 --text text.txt --text other.txt --settings "
      "lossless,tq8,tq4,tq4-plain,tq2,tq1,q8_0,q4_0,words3 --json out.json --svg "
      "out.svg");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.err, "") << "progress is for terminals";
  EXPECT_THAT(ran.out, HasSubstr("whole: KLD"));
  std::ifstream in(path("out.json"));
  const json found = json::parse(in);
  EXPECT_EQ(found["prefix"], kPrefix);
  ASSERT_EQ(found["settings"].size(), 9u);
  std::map<std::string, json> by_name;
  for (const json& s : found["settings"]) by_name[s["name"]] = s;
  auto kld = [&](const char* name, const char* protocol) {
    return by_name[name][protocol]["kld"].get<double>();
  };
  for (const char* protocol : {"hit", "whole"}) {
    EXPECT_LT(kld("lossless", protocol), 1e-5) << protocol;
    EXPECT_LT(kld("tq8", protocol), 0.2 * kld("tq4", protocol)) << protocol;
    EXPECT_LT(kld("tq4", protocol), 0.2 * kld("tq2", protocol)) << protocol;
    EXPECT_LT(kld("tq2", protocol), kld("tq1", protocol)) << protocol;
    EXPECT_LT(kld("q8_0", protocol), 0.2 * kld("q4_0", protocol)) << protocol;
    EXPECT_LT(kld("tq4", protocol), kld("words3", protocol)) << protocol;
    EXPECT_GE(by_name["tq8"][protocol]["agreement"], by_name["tq2"][protocol]["agreement"]);
  }
  EXPECT_DOUBLE_EQ(by_name["q4_0"]["ratio"], 18.0 / 64);
  EXPECT_DOUBLE_EQ(by_name["words3"]["ratio"], (4 * 4 + 4) / 64.0);
  EXPECT_NEAR(by_name["tq4"]["ratio"], (4.0 * 64 + 508 * 18) / (512 * 64), 1e-12);
  EXPECT_NEAR(by_name["tq1"]["ratio"], (4.0 * 64 + 508 * 6) / (512 * 64), 1e-12);
  EXPECT_EQ(by_name["tq4"]["attention_error"].size(), 2u);
  std::ifstream svg(path("out.svg"));
  const std::string drawn(std::istreambuf_iterator<char>(svg), {});
  EXPECT_THAT(drawn, ::testing::StartsWith("<svg "));
  EXPECT_THAT(drawn, ::testing::EndsWith("</svg>\n"));
  for (const auto& [name, setting] : by_name) EXPECT_THAT(drawn, HasSubstr(">" + name + "<"));
}

// Stands in for tools/quality_llama.py, with figures that can be worked out: every logit is 0 but
// the next token's in fp16 (A) and q8_0 (B), and its successor's in q4_0 (A). The first block,
// which doesn't count, is all 0 in fp16.
constexpr const char* kKnownLogits = R"(
import array, sys
A, B, V, BATCH = 3.0, 2.5, int(sys.argv.pop(1)), int(sys.argv[3])
ids = array.array("i", sys.stdin.buffer.read())
assert sys.argv[1:] == ["model.gguf", "2", sys.argv[3], "f16", "q8_0", "q4_0"], sys.argv
out = sys.stdout.buffer
out.write(array.array("i", [V]).tobytes())
for first in range(0, len(ids), BATCH):
    for peak, value in ((0, A), (0, B), (1, A)):
        for p in range(first, min(first + BATCH, len(ids))):
            row = array.array("f", bytes(4 * V))
            if p >= 256 or (peak, value) != (0, A):
                row[((ids + ids[:1])[p + 1] + peak) % V] = value
            out.write(row.tobytes())
)";

TEST_F(Quality, LlamaCppIsMeasuredByItsOwnLogits) {
  write("known.py", kKnownLogits);
  const uint32_t vocab = model_->shape().vocab;
  Ran ran = cachectl(
      "quality model.gguf --threads 2 --tokens 800 --text text.txt --settings tq8 "
      "--json out.json --svg out.svg --llama 'python3 known.py " +
      std::to_string(vocab) + "'");
  ASSERT_EQ(ran.code, 0) << ran.err;
  std::ifstream in(path("out.json"));
  const json found = json::parse(in);
  ASSERT_EQ(found["settings"].size(), 3u);
  const json &q8_0 = found["settings"][1], &q4_0 = found["settings"][2];
  EXPECT_EQ(q8_0["name"], "llama.cpp q8_0");
  EXPECT_DOUBLE_EQ(q8_0["ratio"], 34.0 / 64);
  EXPECT_EQ(q4_0["name"], "llama.cpp q4_0");
  EXPECT_DOUBLE_EQ(q4_0["ratio"], 18.0 / 64);
  EXPECT_FALSE(q8_0.contains("hit"));
  const double a = std::exp(3.0), b = std::exp(2.5), za = vocab - 1 + a, zb = vocab - 1 + b;
  EXPECT_NEAR(q8_0["whole"]["kld"], a / za * 0.5 + std::log(zb / za), 1e-5);
  EXPECT_EQ(q8_0["whole"]["agreement"], 1);
  EXPECT_NEAR(q8_0["whole"]["perplexity_exact"], za / a, 1e-4 * za / a);
  EXPECT_NEAR(q8_0["whole"]["perplexity"], zb / b, 1e-4 * zb / b);
  EXPECT_NEAR(q4_0["whole"]["kld"], 3 * (a - 1) / za, 1e-5);
  EXPECT_EQ(q4_0["whole"]["agreement"], 0);
  EXPECT_NEAR(q4_0["whole"]["perplexity"], za, 1e-4 * za);
  EXPECT_THAT(ran.out, HasSubstr("llama.cpp q4_0"));
  std::ifstream svg(path("out.svg"));
  const std::string drawn(std::istreambuf_iterator<char>(svg), {});
  EXPECT_THAT(drawn, HasSubstr("llama.cpp q8_0"));
  EXPECT_THAT(drawn, Not(HasSubstr("nan")));
}

TEST_F(Quality, LlamaProgramsThatFailAreNamed) {
  write("known.py", kKnownLogits);
  const std::string good = "python3 known.py " + std::to_string(model_->shape().vocab);
  struct Case {
    std::string command, message;
  };
  for (const Case& c : std::vector<Case>{
           {"exit 3", "\"exit 3\" fails"},
           {"true", "\"true\" ended early"},
           {"python3 known.py 7", "logits of 7 tokens, expected"},
           {"echo; " + good, "expected " + std::to_string(model_->shape().vocab)},
           {"lead() { " + good + " \"$@\" | head -c 100000; }; lead", "ended early"},
           {"more() { " + good + " \"$@\"; echo; }; more", "more logits than were asked for"},
           {"late() { " + good + " \"$@\"; return 5; }; late", "fails"}}) {
    const LlamaProgram program{c.command, "model.gguf", 2, model_->shape().vocab};
    const auto from = std::filesystem::current_path();
    std::filesystem::current_path(dir_);
    const auto found = llama_divergences(program, tokens());
    std::filesystem::current_path(from);
    ASSERT_FALSE(found.ok()) << c.command;
    EXPECT_EQ(found.status().code(), StatusCode::io_error);
    EXPECT_THAT(found.status().message(), HasSubstr(c.message)) << c.command;
  }
}

TEST_F(Quality, ErrorsNameWhatIsWrong) {
  write("short.txt", "too short");
  TinyGguf other;
  other.architecture = "mamba";
  const auto bytes = other.write();
  write("mamba.gguf", {bytes.begin(), bytes.end()});
  struct Case {
    const char *arguments, *message;
    int code;
  };
  for (const Case& c : std::vector<Case>{
           {"quality model.gguf --tokens 768 --text short.txt", "text short.txt has 9 tokens", 2},
           {"quality model.gguf --tokens 768 --text none.txt", "none.txt", 4},
           {"quality model.gguf --tokens 4096", "context", 2},
           {"quality model.gguf --tokens 100", "--tokens 100: expected 512", 2},
           {"quality model.gguf --tokens 768 --settings tq4,tq5", "setting \"tq5\"", 2},
           {"quality model.gguf --tokens 768 --settings tq4-x", "setting \"tq4-x\"", 2},
           {"quality model.gguf --tokens 768 --settings ./none", "./none", 4},
           {"quality model.gguf --hit-only --llama true", "--llama measures", 2},
           {"quality model.gguf --tokens 768 --text text.txt --settings tq8 --llama 'exit 3'",
            "\"exit 3\" fails", 1},
           {"quality mamba.gguf", "mamba", 1},
           {"quality", "MODEL", 2},
           {"tune model.gguf --budget 0.1", "--budget 0.1000: this model takes at least 0.1", 2},
           {"tune model.gguf --text short.txt", "expected at least 768", 2}}) {
    Ran ran = cachectl(c.arguments);
    EXPECT_EQ(ran.code, c.code) << c.arguments << ": " << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(c.message)) << c.arguments;
  }
}

// Every layer has the mean of its keys in the text, and of the gains the one that leaves its
// attention output nearest to the exact one.
TEST_F(Quality, TuneTakesTheGainWithTheLeastAttentionError) {
  Ran ran = cachectl("tune model.gguf --budget 0.3 --text text.txt --out plan.profile");
  ASSERT_EQ(ran.code, 0) << ran.err;
  auto plan = read_profile_file(path("plan.profile"), model_->spec(), nullptr);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  Teacher teacher(model_, 2);
  auto ids = *model_->tokenizer().encode(text(1));
  ids.resize(model_->shape().context);
  const auto prefix = static_cast<uint32_t>(ids.size()) - kTeacherBlock;
  auto exact = teacher.exact(ids, prefix);
  ASSERT_TRUE(exact.ok()) << exact.status().to_string();
  KeyStatistics keys(model_->spec()), queries(model_->spec());
  for (uint32_t l = 0; l < 2; ++l) {
    for (KeyStatistics* s : {&keys, &queries})
      ASSERT_TRUE(s->add_keys(l, 0, 0, exact->rows.k[l]).ok());
    ASSERT_TRUE(queries.add_queries(l, 0, prefix, 1, exact->queries[l]).ok());
  }
  std::vector<std::vector<double>> errors(2);  // [layer][gain]
  std::vector<size_t> taken(2, 99);
  const std::pair<KeyStatistics*, float> gains[] = {
      {&keys, 0.0f}, {&keys, 0.5f}, {&keys, 1.0f}, {&queries, 0.5f}, {&queries, 1.0f}};
  for (size_t g = 0; g < std::size(gains); ++g) {
    Profile tried = *gains[g].first->calibrated(profile("tq4"));
    for (auto& parts : tried.parts) {
      for (float& gain : parts[0].key_gain) gain = std::pow(gain, gains[g].second);
    }
    auto rows = Teacher::coded_prefix(*exact, *coder_of(codec(tried)));
    const auto found = *teacher.attention_errors(*exact, *rows);
    for (uint32_t l = 0; l < 2; ++l) {
      EXPECT_EQ(plan->parts[l][0].key_mean, tried.parts[l][0].key_mean);
      errors[l].push_back(found[l].k);
      if (plan->parts[l][0].key_gain == tried.parts[l][0].key_gain) taken[l] = g;
    }
  }
  for (uint32_t l = 0; l < 2; ++l) {
    ASSERT_LT(taken[l], std::size(gains)) << "layer " << l << " has none of the gains";
    EXPECT_EQ(errors[l][taken[l]], std::ranges::min(errors[l])) << "layer " << l;
  }
}

// What is measured at the end is the plan: more bytes diverge less.
TEST_F(Quality, TuneGivesBitsWhereTheyCount) {
  Ran ran = cachectl("tune model.gguf --budget 0.25,0.35 --text text.txt --out plan");
  ASSERT_EQ(ran.code, 0) << ran.err;
  std::vector<double> bytes, klds;  // tq4, its bits with tuned gains, both plans
  for (const char* row : {"\ntq4 ", "\n4 bits, these gains ", "\nbudget 0.25 ", "\nbudget 0.35 "}) {
    const size_t at = ran.out.rfind(row);
    ASSERT_NE(at, std::string::npos) << ran.out;
    std::istringstream numbers(ran.out.substr(at + std::strlen(row)));
    numbers >> bytes.emplace_back() >> klds.emplace_back();
  }
  EXPECT_LE(bytes[2], 0.25);
  EXPECT_LE(bytes[3], 0.35);
  EXPECT_LT(klds[3], 0.8 * klds[1]) << ran.out;
  EXPECT_GT(klds[2], klds[1]) << ran.out;
  for (const char* budget : {"0.25", "0.35"}) {
    auto plan = read_profile_file(path(std::string("plan.") + budget), model_->spec(), nullptr);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    EXPECT_NEAR(stored_ratio(model_->spec(), *plan, 3072), std::stod(budget), 0.06);
  }
}

// Transforms of a text's rows hold another text's in the bytes asked for: a smaller budget takes
// fewer, a larger one diverges less.
TEST_F(Quality, TransformsAreFittedWrittenAndMeasured) {
  Ran ran = cachectl("tune model.gguf --coding tc --budget 0.2,0.4 --text text.txt --out model.tc");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("tc, budget 0.2 "));
  ran = cachectl(
      "quality model.gguf --tokens 768 --text other.txt --hit-only --json out.json --settings "
      "./model.tc.0.2,./model.tc.0.4,lossless");
  ASSERT_EQ(ran.code, 0) << ran.err;
  std::ifstream in(path("out.json"));
  const json found = json::parse(in)["settings"];
  auto kld = [&](size_t i) { return found[i]["hit"]["kld"].get<double>(); };
  EXPECT_NEAR(found[0]["ratio"].get<double>(), 0.2, 0.06);
  EXPECT_NEAR(found[1]["ratio"].get<double>(), 0.4, 0.06);
  EXPECT_EQ(found[2]["ratio"].get<double>(), 1);
  EXPECT_LT(kld(1), 0.5 * kld(0)) << ran.out;
  EXPECT_LT(kld(2), kld(1)) << ran.out;

  std::ifstream whole(path("model.tc.0.4"), std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(whole), {});
  auto refused = [&](const std::string& what) {
    std::ofstream(path("other.tc"), std::ios::binary) << bytes;
    const auto ran_other =
        cachectl("quality model.gguf --tokens 768 --text other.txt --settings ./other.tc");
    EXPECT_NE(ran_other.code, 0);
    EXPECT_THAT(ran_other.err, HasSubstr(what));
  };
  bytes[10] = static_cast<char>(bytes[10] ^ 1);
  refused("made for another model");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  refused("is damaged");
}

TEST_F(Quality, TuneWritesAProfileThatTheEngineTakes) {
  Ran ran = cachectl("tune model.gguf --budget 0.3 --text text.txt --out plan.profile");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("budget 0.3 "));
  auto plan = read_profile_file(path("plan.profile"), model_->spec(), nullptr);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_LE(stored_ratio(model_->spec(), *plan, 3072), 0.3);
  EXPECT_GT(stored_ratio(model_->spec(), *plan, 3072), 0.2);
  ran = cachectl(
      "quality model.gguf --tokens 768 --text other.txt --hit-only --settings "
      "./plan.profile,tq3");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("plan.profile"));

  MemoryClient client;
  CodingOptions coding;
  coding.profile_file = path("plan.profile");
  auto generator = Generator::open(model_, client, coding, 1, Deadline::max());
  ASSERT_TRUE(generator.ok()) << generator.status().to_string();
  EXPECT_EQ((*generator)->opened().profile->id(), plan->id());
  // What is in force stays until it is told otherwise.
  coding.profile_file.clear();
  auto later = Generator::open(model_, client, coding, 1, Deadline::max());
  ASSERT_TRUE(later.ok());
  EXPECT_EQ((*later)->opened().profile->id(), plan->id());
  coding.replace = true;
  later = Generator::open(model_, client, coding, 1, Deadline::max());
  ASSERT_TRUE(later.ok());
  EXPECT_NE((*later)->opened().profile->id(), plan->id());
  // Another model's file is refused by name, a damaged one too.
  TinyGguf other;
  other.seed = 9;
  auto file = GgufFile::parse(Bytes::owning(other.write()));
  ASSERT_TRUE(file.ok());
  auto stranger = Model::load(std::move(*file));
  ASSERT_TRUE(stranger.ok());
  EXPECT_THAT(
      read_profile_file(path("plan.profile"), (*stranger)->spec(), nullptr).status().message(),
      HasSubstr("another model"));
  std::fstream damage(path("plan.profile"), std::ios::in | std::ios::out | std::ios::binary);
  damage.seekp(-3, std::ios::end);  // a value of the last key gain
  damage.put('\x11');
  damage.close();
  EXPECT_EQ(read_profile_file(path("plan.profile"), model_->spec(), nullptr).status().code(),
            StatusCode::corruption);
}

}  // namespace
}  // namespace kv::cachectl
