// Byte-level BPE. See tokenizer.h; the two expressions are llama.cpp's for pre-tokenizer "smollm".
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "engine/tokenizer.h"

#include <algorithm>
#include <array>
#include <queue>
#include <unordered_map>

namespace kv {
namespace {

constexpr char kDigits[] = "\\p{N}";
constexpr char kWords[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
constexpr uint32_t kMaxVocab = 1u << 20;
constexpr Token kNoToken = -2;  // of a byte that the vocabulary lacks: dropped, as llama.cpp does

// GGUF token types.
enum : int32_t { kUnknown = 2, kControl = 3, kUserDefined = 4 };

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

// Length of the valid UTF-8 character at `at`, 0 if there is none.
size_t valid_character(std::string_view s, size_t at) {
  auto byte = [&](size_t i) { return i < s.size() ? static_cast<uint8_t>(s[i]) : 0u; };
  auto follows = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  uint32_t a = byte(at), b = byte(at + 1);
  if (a < 0x80) return 1;
  if (a >= 0xC2 && a <= 0xDF) return follows(at + 1) ? 2 : 0;
  if (!follows(at + 1) || !follows(at + 2)) return 0;
  if (a >= 0xE0 && a <= 0xEF) {
    if ((a == 0xE0 && b < 0xA0) || (a == 0xED && b > 0x9F)) return 0;
    return 3;
  }
  if (a < 0xF0 || a > 0xF4 || !follows(at + 3)) return 0;
  if ((a == 0xF0 && b < 0x90) || (a == 0xF4 && b > 0x8F)) return 0;
  return 4;
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

}  // namespace

struct Tokenizer::Tables {
  struct Merge {
    uint32_t rank;
    Token result;
  };
  std::vector<std::string> texts;  // by id, bytes
  std::unordered_map<uint64_t, Merge> merges;
  std::array<Token, 256> bytes;
  std::vector<std::pair<std::string, Token>> specials;  // longest first
  std::vector<bool> control;
  Token eos = -1;
  Pattern digits = compile(kDigits), words = compile(kWords);

  static uint64_t pair(Token a, Token b) {
    return (uint64_t{static_cast<uint32_t>(a)} << 32) | static_cast<uint32_t>(b);
  }
  void merge(std::string_view piece, std::vector<Token>& out) const;
  void encode_plain(std::string_view text, std::vector<Token>& out) const;
};

// Merges the neighbours of lowest rank first, of equal rank the leftmost, as llama.cpp does.
void Tokenizer::Tables::merge(std::string_view piece, std::vector<Token>& out) const {
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
    auto it = merges.find(pair(symbols[left].token, symbols[right].token));
    if (it == merges.end()) return;
    queue.push({it->second.rank, left, right, symbols[left].token, symbols[right].token,
                it->second.result});
  };
  for (int32_t i = 0; i < count; ++i) {
    symbols[i] = {bytes[static_cast<uint8_t>(piece[i])], i - 1, i + 1 < count ? i + 1 : -1};
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

void Tokenizer::Tables::encode_plain(std::string_view text, std::vector<Token>& out) const {
  size_t at = 0;
  while (at < text.size()) {
    size_t end = at;
    while (end < text.size()) {
      size_t step = valid_character(text, end);
      if (step == 0) break;
      end += step;
    }
    split(digits, text.substr(at, end - at), [&](std::string_view part) {
      split(words, part, [&](std::string_view piece) { merge(piece, out); });
    });
    at = end;
    if (at < text.size()) merge(text.substr(at++, 1), out);  // broken UTF-8: the byte alone
  }
}

Result<Tokenizer> Tokenizer::load(const GgufFile& file) {
  KV_ASSIGN_OR_RETURN(auto kind, file.text("tokenizer.ggml.model"));
  if (kind != "gpt2") return unsupported("tokenizer '" + std::string(kind) + "' (known: gpt2)");
  KV_ASSIGN_OR_RETURN(auto pre, file.text("tokenizer.ggml.pre"));
  if (pre != "smollm")
    return unsupported("pre-tokenizer '" + std::string(pre) + "' (known: smollm)");
  KV_ASSIGN_OR_RETURN(auto texts, file.texts("tokenizer.ggml.tokens"));
  KV_ASSIGN_OR_RETURN(auto types, file.integers("tokenizer.ggml.token_type"));
  KV_ASSIGN_OR_RETURN(auto merges, file.texts("tokenizer.ggml.merges"));
  if (texts.size() > kMaxVocab || types.size() != texts.size()) {
    return corruption("tokenizer: " + std::to_string(texts.size()) + " tokens, " +
                      std::to_string(types.size()) + " types, limit " + std::to_string(kMaxVocab));
  }
  auto tables = std::make_shared<Tables>();
  std::unordered_map<std::string_view, Token> ids;
  for (size_t i = 0; i < texts.size(); ++i) ids.emplace(texts[i], static_cast<Token>(i));
  auto symbols = byte_symbols();
  std::unordered_map<std::string_view, char> byte_of;
  for (size_t b = 0; b < 256; ++b) {
    byte_of[symbols[b]] = static_cast<char>(b);
    auto it = ids.find(symbols[b]);
    tables->bytes[b] = it == ids.end() ? kNoToken : it->second;
  }
  for (size_t i = 0; i < merges.size(); ++i) {
    size_t space = merges[i].find(' ', 1);
    if (space == std::string_view::npos) return corruption("tokenizer: merge without a space");
    std::string_view a = merges[i].substr(0, space), b = merges[i].substr(space + 1);
    auto ia = ids.find(a), ib = ids.find(b), ic = ids.find(std::string(a) + std::string(b));
    if (ia == ids.end() || ib == ids.end() || ic == ids.end()) {
      return corruption("tokenizer: merge " + std::to_string(i) + " names no token");
    }
    tables->merges.emplace(Tables::pair(ia->second, ib->second),
                           Tables::Merge{static_cast<uint32_t>(i), ic->second});
  }
  tables->control.resize(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    bool special = types[i] == kUnknown || types[i] == kControl || types[i] == kUserDefined;
    tables->control[i] = types[i] == kUnknown || types[i] == kControl;
    if (special && !texts[i].empty()) {
      tables->specials.emplace_back(std::string(texts[i]), static_cast<Token>(i));
      tables->texts.emplace_back(texts[i]);
      continue;
    }
    std::string bytes;
    for (size_t at = 0; at < texts[i].size();) {
      size_t step = std::max<size_t>(1, valid_character(texts[i], at));
      auto it = byte_of.find(texts[i].substr(at, step));
      if (it == byte_of.end())
        bytes += texts[i].substr(at, step);
      else
        bytes += it->second;
      at += step;
    }
    tables->texts.push_back(std::move(bytes));
  }
  std::stable_sort(tables->specials.begin(), tables->specials.end(),
                   [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  if (file.has("tokenizer.ggml.eos_token_id")) {
    KV_ASSIGN_OR_RETURN(uint64_t eos, file.integer("tokenizer.ggml.eos_token_id"));
    if (eos >= texts.size()) return corruption("tokenizer: eos_token_id outside the vocabulary");
    tables->eos = static_cast<Token>(eos);
  }
  return Tokenizer(std::move(tables));
}

Result<std::vector<Token>> Tokenizer::encode(std::string_view text, bool parse_special) const {
  if (text.size() > kMaxTextBytes) {
    return invalid_argument("text of " + std::to_string(text.size()) + " bytes over the limit " +
                            std::to_string(kMaxTextBytes));
  }
  // Longest special token first, each cut out of what is still text.
  struct Fragment {
    std::string_view text;
    Token token;  // -1: text
  };
  std::vector<Fragment> fragments = {{text, -1}};
  for (const auto& [special, token] : tables_->specials) {
    if (!parse_special && tables_->control[token]) continue;
    if (text.find(special) == std::string_view::npos) continue;
    std::vector<Fragment> next;
    for (const Fragment& f : fragments) {
      if (f.token >= 0) {
        next.push_back(f);
        continue;
      }
      size_t at = 0;
      for (size_t hit; (hit = f.text.find(special, at)) != std::string_view::npos;) {
        if (hit > at) next.push_back({f.text.substr(at, hit - at), -1});
        next.push_back({{}, token});
        at = hit + special.size();
      }
      if (at < f.text.size()) next.push_back({f.text.substr(at), -1});
    }
    fragments = std::move(next);
  }
  std::vector<Token> out;
  for (const Fragment& f : fragments) {
    if (f.token >= 0)
      out.push_back(f.token);
    else
      tables_->encode_plain(f.text, out);
  }
  return out;
}

Result<std::string> Tokenizer::decode(std::span<const Token> tokens) const {
  std::string out;
  for (Token t : tokens) {
    if (t < 0 || static_cast<size_t>(t) >= tables_->texts.size()) {
      return invalid_argument("token id " + std::to_string(t) + " outside the vocabulary of " +
                              std::to_string(tables_->texts.size()));
    }
    out += tables_->texts[t];
  }
  return out;
}

uint32_t Tokenizer::vocab_size() const { return static_cast<uint32_t>(tables_->texts.size()); }
Token Tokenizer::eos() const { return tables_->eos; }

}  // namespace kv
