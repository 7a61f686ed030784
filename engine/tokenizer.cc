// Special tokens, and the choice of the vocabulary's rule. See tokenizer.h.
#include "engine/tokenizer.h"

#include <algorithm>
#include <array>
#include <limits>

#include "engine/tokenizer_pieces.h"

namespace kv {
namespace {

// Text, or the special token that stood in its place.
struct Fragment {
  std::string_view text;
  Token token;  // -1: text
};

// Cuts every occurrence of `special` out of what is still text.
std::vector<Fragment> cut_out(const std::vector<Fragment>& fragments, std::string_view special,
                              Token token) {
  std::vector<Fragment> out;
  for (const Fragment& f : fragments) {
    if (f.token >= 0) {
      out.push_back(f);
      continue;
    }
    size_t at = 0;
    for (size_t hit; (hit = f.text.find(special, at)) != std::string_view::npos;) {
      if (hit > at) out.push_back({f.text.substr(at, hit - at), -1});
      out.push_back({{}, token});
      at = hit + special.size();
    }
    if (at < f.text.size()) out.push_back({f.text.substr(at), -1});
  }
  return out;
}

}  // namespace

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

struct Tokenizer::Tables {
  struct Special {
    std::string_view text;
    Token token;
    bool control;  // only parsed where asked for
  };
  Bytes file;                            // what views point into
  std::vector<std::string> texts;        // by id, bytes
  std::vector<Special> specials;         // longest first
  std::vector<uint32_t> by_text;         // indices of specials, by text
  std::array<bool, 256> begins_special;  // whether one begins with this byte
  Token eos = -1, bos = -1;
  bool space_prefix = false;  // a space before text that follows no text
  std::unique_ptr<PieceEncoder> pieces;

  Status read_tokens(const GgufFile& file);
  Status read_settings(const GgufFile& file, bool sentencepiece);
  std::vector<uint32_t> specials_in(std::string_view text) const;
};

Status Tokenizer::Tables::read_tokens(const GgufFile& from) {
  KV_ASSIGN_OR_RETURN(auto given, from.texts("tokenizer.ggml.tokens"));
  KV_ASSIGN_OR_RETURN(auto types, from.integers("tokenizer.ggml.token_type"));
  if (given.size() > kMaxVocab || types.size() != given.size()) {
    return corruption("tokenizer: " + std::to_string(given.size()) + " tokens, " +
                      std::to_string(types.size()) + " types, limit " + std::to_string(kMaxVocab));
  }
  begins_special.fill(false);
  for (size_t i = 0; i < given.size(); ++i) {
    auto type = static_cast<TokenType>(types[i]);
    bool control = type == TokenType::unknown || type == TokenType::control;
    if ((control || type == TokenType::user_defined) && !given[i].empty()) {
      specials.push_back({given[i], static_cast<Token>(i), control});
      begins_special[static_cast<uint8_t>(given[i][0])] = true;
      texts.emplace_back(given[i]);
    } else {
      texts.push_back(pieces->bytes_of(given[i], type));
    }
  }
  std::stable_sort(specials.begin(), specials.end(), [](const Special& a, const Special& b) {
    return a.text.size() > b.text.size();
  });
  for (uint32_t i = 0; i < specials.size(); ++i) by_text.push_back(i);
  std::sort(by_text.begin(), by_text.end(),
            [&](uint32_t a, uint32_t b) { return specials[a].text < specials[b].text; });
  return {};
}

Status Tokenizer::Tables::read_settings(const GgufFile& from, bool sentencepiece) {
  auto token = [&](const char* key, Token& out) -> Status {
    if (!from.has(key)) return {};
    KV_ASSIGN_OR_RETURN(uint64_t id, from.integer(key));
    if (id >= texts.size()) return corruption(std::string(key) + " outside the vocabulary");
    out = static_cast<Token>(id);
    return {};
  };
  auto flag = [&](const char* key, bool& out) -> Status {
    if (!from.has(key)) return {};
    KV_ASSIGN_OR_RETURN(uint64_t value, from.integer(key));
    out = value != 0;
    return {};
  };
  bool add_bos = sentencepiece, add_eos = false;
  space_prefix = sentencepiece;
  KV_RETURN_IF_ERROR(token("tokenizer.ggml.eos_token_id", eos));
  KV_RETURN_IF_ERROR(flag("tokenizer.ggml.add_bos_token", add_bos));
  KV_RETURN_IF_ERROR(flag("tokenizer.ggml.add_eos_token", add_eos));
  if (sentencepiece) {
    KV_RETURN_IF_ERROR(flag("tokenizer.ggml.add_space_prefix", space_prefix));
  }
  if (add_eos) return unsupported("tokenizer.ggml.add_eos_token (an end token after every text)");
  if (!add_bos) return {};
  KV_RETURN_IF_ERROR(token("tokenizer.ggml.bos_token_id", bos));
  return bos < 0 ? corruption("tokenizer: add_bos_token without a bos_token_id") : Status();
}

Result<Tokenizer> Tokenizer::load(const GgufFile& file) {
  KV_ASSIGN_OR_RETURN(auto kind, file.text("tokenizer.ggml.model"));
  auto tables = std::make_shared<Tables>();
  tables->file = file.bytes();
  if (kind == "gpt2") {
    KV_ASSIGN_OR_RETURN(tables->pieces, load_bpe_pieces(file));
  } else if (kind == "llama") {
    KV_ASSIGN_OR_RETURN(tables->pieces, load_sentencepiece_pieces(file));
  } else {
    return unsupported("tokenizer '" + std::string(kind) + "' (known: gpt2, llama)");
  }
  KV_RETURN_IF_ERROR(tables->read_tokens(file));
  KV_RETURN_IF_ERROR(tables->read_settings(file, kind == "llama"));
  return Tokenizer(std::move(tables));
}

// Special tokens that occur in the text at all, longest first: thousands exist, few occur.
std::vector<uint32_t> Tokenizer::Tables::specials_in(std::string_view text) const {
  std::vector<bool> seen(specials.size());
  for (size_t at = 0; at < text.size(); ++at) {
    if (!begins_special[static_cast<uint8_t>(text[at])]) continue;
    // by_text[first, end): those that begin with text[at, at + depth).
    auto first = by_text.begin(), end = by_text.end();
    for (size_t depth = 0; first != end; ++depth) {
      while (first != end && specials[*first].text.size() == depth) seen[*first++] = true;
      if (at + depth == text.size()) break;
      auto next = static_cast<uint8_t>(text[at + depth]);
      auto byte = [&](uint32_t i) { return static_cast<uint8_t>(specials[i].text[depth]); };
      first = std::partition_point(first, end, [&](uint32_t i) { return byte(i) < next; });
      end = std::partition_point(first, end, [&](uint32_t i) { return byte(i) == next; });
    }
  }
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < seen.size(); ++i) {
    if (seen[i]) out.push_back(i);
  }
  return out;
}

Result<std::vector<Token>> Tokenizer::encode(std::string_view text, bool parse_special,
                                             bool begin) const {
  if (text.size() > kMaxTextBytes) {
    return invalid_argument("text of " + std::to_string(text.size()) + " bytes over the limit " +
                            std::to_string(kMaxTextBytes));
  }
  const Tables& t = *tables_;
  std::vector<Fragment> fragments;
  if (!text.empty()) fragments.push_back({text, -1});
  for (uint32_t i : t.specials_in(text)) {
    const Tables::Special& s = t.specials[i];
    if (parse_special || !s.control) fragments = cut_out(fragments, s.text, s.token);
  }
  std::vector<Token> out;
  if (begin && t.bos >= 0) out.push_back(t.bos);
  bool after_text = false;
  for (const Fragment& f : fragments) {
    if (f.token >= 0) {
      out.push_back(f.token);
    } else if (t.space_prefix && !after_text) {
      t.pieces->encode(" " + std::string(f.text), out);
    } else {
      t.pieces->encode(f.text, out);
    }
    after_text = f.token < 0;
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
