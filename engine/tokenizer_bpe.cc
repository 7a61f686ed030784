// Byte-level BPE. See tokenizer_pieces.h; the two expressions are llama.cpp's for pre-tokenizer
// "smollm" (llm_tokenizer_bpe, LLAMA_VOCAB_PRE_TYPE_SMOLLM). A space is what Unicode calls one:
// PCRE2's \s has U+180E too, which llama.cpp's has not.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <queue>
#include <unordered_map>

#include "engine/tokenizer_pieces.h"

namespace kv {
namespace {

constexpr char kDigits[] = "\\p{N}";
#define KV_SPACES "\\t-\\r\\x{85}\\p{Z}"
constexpr char kWords[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" KV_SPACES
                          "\\p{L}\\p{N}]+|[" KV_SPACES "]+(?![^" KV_SPACES "])|[" KV_SPACES "]+";
#undef KV_SPACES
constexpr Token kNoToken = -2;  // of a byte that the vocabulary lacks: dropped, as llama.cpp does

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
using Pattern = std::unique_ptr<pcre2_code, FreeCode>;

Pattern compile(const char* expression) {
  int error = 0;
  PCRE2_SIZE at = 0;
  Pattern code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression), PCRE2_ZERO_TERMINATED,
                             PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr));
  KV_CHECK(code != nullptr);  // a constant of ours
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

std::string utf8(uint32_t c) {
  if (c < 0x80) return {static_cast<char>(c)};
  return {static_cast<char>(0xC0 | (c >> 6)), static_cast<char>(0x80 | (c & 63))};  // c < 0x800
}

// GPT-2's stand-ins: printable Latin-1 bytes stand for themselves, the other 68 for U+0100 ….
std::array<std::string, 256> byte_symbols() {
  std::array<std::string, 256> out;
  uint32_t next = 256;
  for (uint32_t b = 0; b < 256; ++b) {
    bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    out[b] = utf8(printable ? b : next++);
  }
  return out;
}

// Calls piece(text) for every match and every stretch between matches.
template <typename Piece>
void split(const Pattern& pattern, std::string_view text, const Piece& piece) {
  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  size_t at = 0;
  while (at < text.size()) {
    int found = pcre2_match(pattern.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                            at, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
    if (found < 0) break;
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
    if (range[0] > at) piece(text.substr(at, range[0] - at));
    piece(text.substr(range[0], range[1] - range[0]));
    at = range[1];
  }
  if (at < text.size()) piece(text.substr(at));
}

class BpePieces final : public PieceEncoder {
 public:
  Status load(const GgufFile& file);
  void encode(std::string_view text, std::vector<Token>& out) const override;
  std::string bytes_of(std::string_view text, TokenType type) const override;

 private:
  struct Merge {
    uint32_t rank;
    Token result;
  };
  static uint64_t pair(Token a, Token b) {
    return (uint64_t{static_cast<uint32_t>(a)} << 32) | static_cast<uint32_t>(b);
  }
  void merge(std::string_view piece, std::vector<Token>& out) const;

  std::unordered_map<uint64_t, Merge> merges_;
  std::array<Token, 256> bytes_;
  std::unordered_map<std::string, char> byte_of_;
  Pattern digits_ = compile(kDigits), words_ = compile(kWords);
};

// Merges the neighbours of lowest rank first, of equal rank the leftmost, as llama.cpp does.
void BpePieces::merge(std::string_view piece, std::vector<Token>& out) const {
  struct Symbol {
    Token token;
    int32_t previous, next;
  };
  struct Candidate {
    uint32_t rank;
    int32_t left, right;
    Token a, b, result;
    bool operator<(const Candidate& o) const {
      return rank != o.rank ? rank > o.rank : left > o.left;
    }
  };
  auto count = static_cast<int32_t>(piece.size());
  std::vector<Symbol> symbols(piece.size());
  std::priority_queue<Candidate> queue;
  auto offer = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    auto it = merges_.find(pair(symbols[left].token, symbols[right].token));
    if (it == merges_.end()) return;
    queue.push({it->second.rank, left, right, symbols[left].token, symbols[right].token,
                it->second.result});
  };
  for (int32_t i = 0; i < count; ++i) {
    symbols[i] = {bytes_[static_cast<uint8_t>(piece[i])], i - 1, i + 1 < count ? i + 1 : -1};
  }
  for (int32_t i = 0; i + 1 < count; ++i) offer(i, i + 1);
  while (!queue.empty()) {
    Candidate c = queue.top();
    queue.pop();
    Symbol &left = symbols[c.left], &right = symbols[c.right];
    if (left.token != c.a || right.token != c.b || left.next != c.right) continue;  // outdated
    left.token = c.result;
    left.next = right.next;
    right.token = -1;
    if (right.next >= 0) symbols[right.next].previous = c.left;
    offer(left.previous, c.left);
    offer(c.left, left.next);
  }
  for (int32_t i = 0; i >= 0 && i < count; i = symbols[i].next) {
    if (symbols[i].token != kNoToken) out.push_back(symbols[i].token);
  }
}

void BpePieces::encode(std::string_view text, std::vector<Token>& out) const {
  size_t at = 0;
  while (at < text.size()) {
    size_t end = at;
    while (end < text.size()) {
      size_t step = valid_character(text, end);
      if (step == 0) break;
      end += step;
    }
    split(digits_, text.substr(at, end - at), [&](std::string_view part) {
      split(words_, part, [&](std::string_view piece) { merge(piece, out); });
    });
    at = end;
    if (at < text.size()) merge(text.substr(at++, 1), out);  // broken UTF-8: the byte alone
  }
}

// Symbols become the bytes that they stand for.
std::string BpePieces::bytes_of(std::string_view text, TokenType) const {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    size_t step = std::max<size_t>(1, valid_character(text, at));
    std::string symbol(text.substr(at, step));
    auto it = byte_of_.find(symbol);
    if (it == byte_of_.end())
      bytes += symbol;
    else
      bytes += it->second;
    at += step;
  }
  return bytes;
}

Status BpePieces::load(const GgufFile& file) {
  KV_ASSIGN_OR_RETURN(auto pre, file.text("tokenizer.ggml.pre"));
  if (pre != "smollm")
    return unsupported("pre-tokenizer '" + std::string(pre) + "' (known: smollm)");
  KV_ASSIGN_OR_RETURN(auto texts, file.texts("tokenizer.ggml.tokens"));
  KV_ASSIGN_OR_RETURN(auto merges, file.texts("tokenizer.ggml.merges"));
  std::unordered_map<std::string_view, Token> ids;
  for (size_t i = 0; i < texts.size(); ++i) ids.emplace(texts[i], static_cast<Token>(i));
  auto symbols = byte_symbols();
  for (size_t b = 0; b < 256; ++b) {
    byte_of_[symbols[b]] = static_cast<char>(b);
    auto it = ids.find(symbols[b]);
    bytes_[b] = it == ids.end() ? kNoToken : it->second;
  }
  for (size_t i = 0; i < merges.size(); ++i) {
    size_t space = merges[i].find(' ', 1);
    if (space == std::string_view::npos) return corruption("tokenizer: merge without a space");
    std::string_view a = merges[i].substr(0, space), b = merges[i].substr(space + 1);
    auto ia = ids.find(a), ib = ids.find(b), ic = ids.find(std::string(a) + std::string(b));
    if (ia == ids.end() || ib == ids.end() || ic == ids.end()) {
      return corruption("tokenizer: merge " + std::to_string(i) + " names no token");
    }
    merges_.emplace(pair(ia->second, ib->second), Merge{static_cast<uint32_t>(i), ic->second});
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<PieceEncoder>> load_bpe_pieces(const GgufFile& file) {
  auto pieces = std::make_unique<BpePieces>();
  KV_RETURN_IF_ERROR(pieces->load(file));
  return std::unique_ptr<PieceEncoder>(std::move(pieces));
}

}  // namespace kv
