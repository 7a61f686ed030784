// Questions and their answers, field by field. See teacher_link.h; the layout is TEACHER.md's.
#include "engine/teacher_link.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kv {
namespace {

constexpr uint8_t kMagic[8] = {'K', 'V', 'T', 'E', 'A', 'C', 'H', 2};  // the last one: the version
constexpr uint8_t kEncode = 1, kExact = 2, kHit = 3;
constexpr uint32_t kMaxReason = 1024;
constexpr uint32_t kMaxModelBytes = 1u << 20;
constexpr uint64_t kMaxRowBytes = 8ull << 30;  // of one text
constexpr uint32_t kPositionsRead = 64;        // of logits read and compared at a time

std::span<uint8_t> bytes_of(std::span<float> values) {
  return {reinterpret_cast<uint8_t*>(values.data()), values.size_bytes()};
}
std::span<const uint8_t> bytes_of(std::span<const float> values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()};
}

Status bad(const std::string& field, const std::string& found, const std::string& expected) {
  return corruption("the teacher's " + field + ": " + found + ", expected " + expected);
}

// Values of one row of both sides.
size_t row_values(const PartSpec& part) { return size_t{part.heads} * (part.k_dim + part.v_dim); }

}  // namespace

Result<std::vector<RowPart>> row_parts(const ModelSpec& model) {
  std::vector<RowPart> out;
  for (uint32_t l = 0; l < model.layers.size(); ++l) {
    for (uint32_t p = 0; p < model.layers[l].parts.size(); ++p) {
      const PartSpec& part = model.layers[l].parts[p];
      const bool rows = part.kind == PartKind::full || part.kind == PartKind::window ||
                        part.kind == PartKind::chunk;
      if (!rows || part.v_dim == 0) continue;
      if (part.keep > 0 || (!out.empty() && out.back().layer == l)) {
        return unsupported("layer " + std::to_string(l) +
                           ": a window with sinks, or keys and values of two parts");
      }
      out.push_back({l, p, part});
    }
  }
  return out;
}

RowRange prefix_rows(const PartSpec& part, uint32_t prefix) {
  const auto rows = demanded_rows(part, prefix);
  return rows.empty() ? RowRange{prefix, prefix} : rows.front();
}

Result<TeacherLink> TeacherLink::open(TeacherStream stream) {
  TeacherLink link(std::move(stream));
  KV_RETURN_IF_ERROR(link.read_hello());
  return link;
}

Status TeacherLink::read_hello() {
  uint8_t magic[sizeof(kMagic)];
  KV_RETURN_IF_ERROR(stream_.read(magic));
  if (std::memcmp(magic, kMagic, sizeof(magic) - 1) != 0) {
    return bad("hello", "other bytes", "\"KVTEACH\"");
  }
  if (magic[7] != kMagic[7]) {
    return bad("version", std::to_string(magic[7]), std::to_string(kMagic[7]));
  }
  KV_ASSIGN_OR_RETURN(vocab_, read_count("vocabulary", kMaxTeacherVocab));
  KV_ASSIGN_OR_RETURN(context_, read_count("context", kMaxTeacherTokens));
  if (vocab_ == 0 || context_ == 0) return bad("vocabulary or context", "0", "at least 1");
  KV_ASSIGN_OR_RETURN(const uint32_t size, read_count("bytes of the model", kMaxModelBytes));
  std::vector<uint8_t> bytes(size);
  KV_RETURN_IF_ERROR(stream_.read(bytes));
  ByteReader in(bytes);
  KV_ASSIGN_OR_RETURN(spec_, decode_model(in));
  if (!in.done()) return bad("model", std::to_string(in.left()) + " bytes behind it", "none");
  KV_RETURN_IF_ERROR(validate(spec_, kTeacherBlock));
  KV_RETURN_IF_ERROR(read_rotations());
  KV_ASSIGN_OR_RETURN(parts_, row_parts(spec_));
  if (parts_.empty()) return unsupported("the teacher's model: no keys and values to code");
  return {};
}

Status TeacherLink::read_rotations() {
  KV_ASSIGN_OR_RETURN(const uint32_t count, read_count("rotations", kMaxTeacherRotations));
  for (uint32_t i = 0; i < count; ++i) {
    uint8_t halves = 0;
    KV_RETURN_IF_ERROR(stream_.read({&halves, 1}));
    if (halves > 1) return bad("rotation", std::to_string(halves), "0 or 1");
    KV_ASSIGN_OR_RETURN(const uint32_t pairs, read_count("pairs of a rotation", kMaxTeacherPairs));
    Rotation rotation{halves == 1, std::vector<float>(pairs)};
    KV_RETURN_IF_ERROR(read_floats("steps of a rotation", rotation.step));
    const bool fits = std::ranges::all_of(rotation.step, [](float s) { return s >= 0 && s <= 8; });
    if (pairs == 0 || !fits) return bad("rotation", "no pairs, or a step", "steps of 0 to 8");
    rotations_.push_back(std::move(rotation));
  }
  return {};
}

Status TeacherLink::ask(const ByteWriter& question) { return stream_.write(question.span()); }

Status TeacherLink::read_verdict() {
  uint8_t verdict = 0;
  KV_RETURN_IF_ERROR(stream_.read({&verdict, 1}));
  if (verdict == 0) return {};
  if (verdict != 1) return bad("verdict", std::to_string(verdict), "0 or 1");
  KV_ASSIGN_OR_RETURN(const uint32_t size, read_count("bytes of a reason", kMaxReason));
  std::vector<uint8_t> why(size);
  KV_RETURN_IF_ERROR(stream_.read(why));
  return unsupported("the teacher: " + std::string(why.begin(), why.end()));
}

Result<uint32_t> TeacherLink::read_count(const char* what, uint32_t most) {
  uint8_t bytes[4];
  KV_RETURN_IF_ERROR(stream_.read(bytes));
  const uint32_t count = ByteReader(bytes).u32();
  if (count > most) return bad(what, std::to_string(count), "at most " + std::to_string(most));
  return count;
}

Status TeacherLink::read_floats(const char* what, std::span<float> to) {
  KV_RETURN_IF_ERROR(stream_.read(bytes_of(to)));
  if (std::ranges::all_of(to, [](float x) { return std::isfinite(x); })) return {};
  return bad(what, "a value that is not finite", "finite ones");
}

Result<std::vector<Token>> TeacherLink::encode(std::string_view text, uint32_t most) {
  most = std::min({most, context_, kMaxTeacherTokens});
  ByteWriter question;
  question.u8(kEncode);
  question.u32(most);
  question.string(text);
  KV_RETURN_IF_ERROR(ask(question));
  KV_RETURN_IF_ERROR(read_verdict());
  KV_ASSIGN_OR_RETURN(const uint32_t count, read_count("tokens of a text", most));
  std::vector<Token> tokens(count);
  KV_RETURN_IF_ERROR(
      stream_.read({reinterpret_cast<uint8_t*>(tokens.data()), count * sizeof(Token)}));
  for (Token token : tokens) {
    if (token >= 0 && static_cast<uint32_t>(token) < vocab_) continue;
    return bad("token", std::to_string(token), "0 to " + std::to_string(vocab_ - 1));
  }
  return tokens;
}

Result<TaughtText> TeacherLink::exact(uint32_t number, std::span<const Token> tokens,
                                      uint32_t prefix) {
  if (number >= kMaxTeacherTexts || prefix == 0 || prefix > tokens.size() ||
      tokens.size() > context_) {
    return invalid_argument("text " + std::to_string(number) + " of " +
                            std::to_string(tokens.size()) + " tokens, prefix " +
                            std::to_string(prefix) + ": expected at most " +
                            std::to_string(kMaxTeacherTexts) + " texts of at most " +
                            std::to_string(context_) + " tokens");
  }
  TaughtText text{number, {tokens.begin(), tokens.end()}, prefix, {}, {}};
  const uint64_t logits = uint64_t{tokens.size() - prefix} * vocab_;
  uint64_t rows = 0;
  for (const RowPart& part : parts_) rows += prefix * row_values(part.spec) * sizeof(float);
  if (logits > kMaxTeacherLogits || rows > kMaxRowBytes) {
    return invalid_argument("a text of " + std::to_string(logits) + " logits and " +
                            std::to_string(rows) + " bytes of rows: at most " +
                            std::to_string(kMaxTeacherLogits) + " and " +
                            std::to_string(kMaxRowBytes) + ", take fewer tokens");
  }
  ByteWriter question;
  question.u8(kExact);
  question.u32(number);
  question.u32(prefix);
  question.array(tokens);
  KV_RETURN_IF_ERROR(ask(question));
  KV_RETURN_IF_ERROR(read_verdict());
  text.rows.k.resize(spec_.layers.size());
  text.rows.v.resize(spec_.layers.size());
  for (const RowPart& part : parts_) {
    const RowRange range = prefix_rows(part.spec, prefix);
    const size_t row = size_t{range.end - range.first} * part.spec.heads;
    text.rows.k[part.layer].resize(row * part.spec.k_dim);
    text.rows.v[part.layer].resize(row * part.spec.v_dim);
    KV_RETURN_IF_ERROR(read_floats("keys", text.rows.k[part.layer]));
    KV_RETURN_IF_ERROR(read_floats("values", text.rows.v[part.layer]));
  }
  text.logits.resize(logits);
  KV_RETURN_IF_ERROR(read_floats("logits", text.logits));
  return text;
}

Result<Divergence> TeacherLink::hit(const TaughtText& text, const RowCoder& coder) {
  if (text.prefix >= text.tokens.size()) return invalid_argument("a text with nothing to predict");
  ByteWriter places;
  uint32_t count = 0;
  for (const RowPart& part : parts_) {
    for (Side side : {Side::k, Side::v}) {
      const auto& exact = (side == Side::k ? text.rows.k : text.rows.v)[part.layer];
      if (exact.empty()) continue;
      std::vector<float> coded = exact;
      KV_RETURN_IF_ERROR(coder(part.layer, side, prefix_rows(part.spec, text.prefix).first, coded));
      if (coded == exact) continue;  // the teacher has those
      ++count;
      places.u16(static_cast<uint16_t>(part.layer));
      places.u8(static_cast<uint8_t>(part.part));
      places.u8(static_cast<uint8_t>(side));
      places.raw(bytes_of(std::span<const float>(coded)));
    }
  }
  ByteWriter question;
  question.u8(kHit);
  question.u32(text.number);
  question.u32(count);
  KV_RETURN_IF_ERROR(ask(question));
  KV_RETURN_IF_ERROR(ask(places));
  KV_RETURN_IF_ERROR(read_verdict());
  std::vector<Token> next(text.tokens.begin() + text.prefix + 1, text.tokens.end());
  next.push_back(-1);
  Divergence out;
  std::vector<std::vector<float>> runs(2);
  for (size_t first = 0; first < next.size(); first += kPositionsRead) {
    const size_t positions = std::min<size_t>(kPositionsRead, next.size() - first);
    const auto exact = std::span(text.logits).subspan(first * vocab_, positions * vocab_);
    runs[0].assign(exact.begin(), exact.end());
    runs[1].resize(positions * vocab_);
    KV_RETURN_IF_ERROR(read_floats("logits", runs[1]));
    out.append(compare_logits(runs, vocab_, std::span(next).subspan(first, positions))[0]);
  }
  return out;
}

}  // namespace kv
