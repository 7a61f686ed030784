// SentencePiece with scores. See tokenizer_pieces.h; what it must equal: llama.cpp's
// llm_tokenizer_spm.
#include <algorithm>
#include <array>
#include <cmath>
#include <queue>
#include <set>
#include <unordered_map>

#include "engine/tokenizer_pieces.h"

namespace kv {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581 stands for a space

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    if (c == ' ')
      out += kSpace;
    else
      out += c;
  }
  return out;
}

class SentencePieces final : public PieceEncoder {
 public:
  Status load(const GgufFile& file);
  void encode(std::string_view text, std::vector<Token>& out) const override;
  std::string bytes_of(std::string_view text, TokenType type) const override;

 private:
  void encode_word(std::string_view text, std::vector<Token>& out) const;
  bool word_begins(std::string_view text, size_t at, size_t previous) const;

  std::unordered_map<std::string_view, Token> ids_;  // into the file
  std::set<std::string, std::less<>> joined_;  // characters that some token has before a space
  std::vector<float> scores_;
  std::array<Token, 256> bytes_;
};

// True if no token reaches over the boundary between the character at `previous` and that at `at`:
// what stands on either side is merged by itself.
bool SentencePieces::word_begins(std::string_view text, size_t at, size_t previous) const {
  return at > 0 && text.substr(at, kSpace.size()) == kSpace &&
         joined_.count(text.substr(previous, at - previous)) == 0;
}

// Word by word: 40 bytes of memory per byte of the longest one.
void SentencePieces::encode(std::string_view given, std::vector<Token>& out) const {
  const std::string escaped_text = escaped(given);
  const std::string_view text = escaped_text;
  size_t begin = 0, previous = 0;
  for (size_t at = 0; at < text.size();) {
    if (word_begins(text, at, previous)) {
      encode_word(text.substr(begin, at - begin), out);
      begin = at;
    }
    previous = at;
    at += std::max<size_t>(1, valid_character(text, at));
  }
  encode_word(text.substr(begin), out);
}

// Starts from characters, bytes where UTF-8 is broken. Merges the neighbours whose union has the
// highest score first, of equal scores the leftmost; what is no token in the end becomes byte
// tokens.
void SentencePieces::encode_word(std::string_view text, std::vector<Token>& out) const {
  struct Symbol {
    uint32_t first, size;  // in text; size 0: merged into another
    int32_t previous, next;
  };
  struct Candidate {
    float score;
    int32_t left, right;
    uint32_t size;
    bool operator<(const Candidate& o) const {
      return score != o.score ? score < o.score : left > o.left;
    }
  };
  std::vector<Symbol> symbols;
  for (size_t at = 0; at < text.size();) {
    size_t size = std::max<size_t>(1, valid_character(text, at));
    auto i = static_cast<int32_t>(symbols.size());
    symbols.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(size), i - 1,
                       at + size == text.size() ? -1 : i + 1});
    at += size;
  }
  auto piece = [&](uint32_t first, uint32_t size) { return ids_.find(text.substr(first, size)); };
  std::priority_queue<Candidate> queue;
  auto offer = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    uint32_t size = symbols[left].size + symbols[right].size;
    auto it = piece(symbols[left].first, size);
    if (it != ids_.end()) queue.push({scores_[it->second], left, right, size});
  };
  for (int32_t i = 1; i < static_cast<int32_t>(symbols.size()); ++i) offer(i - 1, i);
  while (!queue.empty()) {
    Candidate c = queue.top();
    queue.pop();
    Symbol &left = symbols[c.left], &right = symbols[c.right];
    if (left.size == 0 || right.size == 0 || left.size + right.size != c.size)
      continue;  // outdated
    left.size = c.size;
    right.size = 0;
    left.next = right.next;
    if (right.next >= 0) symbols[right.next].previous = c.left;
    offer(left.previous, c.left);
    offer(c.left, left.next);
  }
  for (int32_t i = symbols.empty() ? -1 : 0; i >= 0; i = symbols[i].next) {
    auto it = piece(symbols[i].first, symbols[i].size);
    if (it != ids_.end()) {
      out.push_back(it->second);
      continue;
    }
    for (uint32_t j = 0; j < symbols[i].size; ++j) {
      out.push_back(bytes_[static_cast<uint8_t>(text[symbols[i].first + j])]);
    }
  }
}

std::string SentencePieces::bytes_of(std::string_view text, TokenType type) const {
  if (type == TokenType::byte && text.size() == 6) {  // "<0x1F>"; load() has checked it
    return {static_cast<char>(std::stoi(std::string(text.substr(3, 2)), nullptr, 16))};
  }
  std::string out;
  while (!text.empty()) {
    size_t at = std::min(text.find(kSpace), text.size());
    out += text.substr(0, at);
    if (at == text.size()) break;
    out += ' ';
    text.remove_prefix(at + kSpace.size());
  }
  return out;
}

Status SentencePieces::load(const GgufFile& file) {
  KV_ASSIGN_OR_RETURN(auto texts, file.texts("tokenizer.ggml.tokens"));
  KV_ASSIGN_OR_RETURN(auto types, file.integers("tokenizer.ggml.token_type"));
  KV_ASSIGN_OR_RETURN(auto scores, file.floats("tokenizer.ggml.scores"));
  if (scores.size() != texts.size()) {
    return corruption("tokenizer: " + std::to_string(texts.size()) + " tokens, " +
                      std::to_string(scores.size()) + " scores");
  }
  scores_.assign(scores.begin(), scores.end());
  for (size_t i = 0; i < texts.size(); ++i) {
    ids_[texts[i]] = static_cast<Token>(i);
    for (size_t at = 0, previous = 0; at < texts[i].size();) {
      bool space = at > 0 && texts[i].substr(at, kSpace.size()) == kSpace;
      if (space) joined_.emplace(texts[i].substr(previous, at - previous));
      previous = at;
      at += std::max<size_t>(1, valid_character(texts[i], at));
    }
  }
  constexpr char kHex[] = "0123456789ABCDEF";
  for (size_t b = 0; b < 256; ++b) {
    std::string name = std::string("<0x") + kHex[b / 16] + kHex[b % 16] + ">";
    auto it = ids_.find(name);
    if (it == ids_.end()) return corruption("tokenizer: no byte token " + name);
    bytes_[b] = it->second;
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    bool is_byte = types[i] == static_cast<int32_t>(TokenType::byte);
    if (is_byte && std::find(bytes_.begin(), bytes_.end(), i) == bytes_.end()) {
      return corruption("tokenizer: byte token " + std::to_string(i) + " names no byte");
    }
    if (std::isnan(scores_[i])) return corruption("tokenizer: a score that is no number");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<PieceEncoder>> load_sentencepiece_pieces(const GgufFile& file) {
  auto pieces = std::make_unique<SentencePieces>();
  KV_RETURN_IF_ERROR(pieces->load(file));
  return std::unique_ptr<PieceEncoder>(std::move(pieces));
}

}  // namespace kv
