// TeacherLink: cachectl's side of a conversation with a teacher, a program that predicts on given
// rows with a model that this engine does not run. TEACHER.md has the words of both sides.
//
// Nothing that a teacher says is believed: sizes are those that were asked for, values are finite,
// every length has a limit. Blocking; one thread at a time. After an error but `unsupported` (the
// teacher can't) the conversation is over.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/teacher.h"
#include "proto/demand.h"
#include "proto/model.h"
#include "proto/transform.h"

namespace kv {

inline constexpr uint32_t kMaxTeacherTokens = 1u << 15;  ///< of one text
inline constexpr uint32_t kMaxTeacherTexts = 256;        ///< that a teacher keeps
inline constexpr uint32_t kMaxTeacherVocab = 1u << 20;
inline constexpr uint32_t kMaxTeacherRotations = 16;
inline constexpr uint32_t kMaxTeacherPairs = 1u << 12;     ///< of a rotation
inline constexpr uint64_t kMaxTeacherLogits = 1ull << 28;  ///< of one text: 1 GiB

/// Both ends of the conversation: all bytes or an error.
struct TeacherStream {
  std::function<Status(std::span<uint8_t>)> read;
  std::function<Status(std::span<const uint8_t>)> write;
};

/// The part of a layer whose rows a coding may change: full, window or chunk with keys and values.
struct RowPart {
  uint32_t layer = 0, part = 0;
  PartSpec spec;
};
/// In order of layers. Returns: unsupported for two in one layer, and for windows with sinks.
Result<std::vector<RowPart>> row_parts(const ModelSpec& model);

/// Rows of a part that a prefix's cache needs; none at a chunk's end.
RowRange prefix_rows(const PartSpec& part, uint32_t prefix);

/// One text as the teacher's model computes it.
struct TaughtText {
  uint32_t number = 0;  ///< the teacher's
  std::vector<Token> tokens;
  uint32_t prefix = 0;        ///< tokens whose rows these are
  LayerRows rows;             ///< of row_parts(), those that a hit needs; of other layers none
  std::vector<float> logits;  ///< (tokens - prefix, vocab)
};

class TeacherLink {
 public:
  /// Reads the teacher's hello. Returns: what the stream returns; corruption naming the field.
  static Result<TeacherLink> open(TeacherStream stream);

  const ModelSpec& spec() const { return spec_; }
  uint32_t vocab() const { return vocab_; }
  uint32_t context() const { return context_; }
  /// Ways in which keys of this model may be rotated; which layer's are, the rows themselves say.
  const std::vector<Rotation>& rotations() const { return rotations_; }

  /// The first tokens of a text. Returns: corruption; unsupported: the teacher can't, and why.
  Result<std::vector<Token>> encode(std::string_view text, uint32_t most);
  /// Computes a text, which has this number then. Returns: invalid_argument (lengths, number,
  /// logits over kMaxTeacherLogits); as encode.
  Result<TaughtText> exact(uint32_t number, std::span<const Token> tokens, uint32_t prefix);
  /// The prefix's rows through `coder`, the text behind them computed on what that gives back.
  /// Returns: what `coder` returns; invalid_argument (no tokens behind the prefix); as encode.
  Result<Divergence> hit(const TaughtText& text, const RowCoder& coder);

 private:
  explicit TeacherLink(TeacherStream stream) : stream_(std::move(stream)) {}
  Status read_hello();
  Status read_rotations();
  Status ask(const ByteWriter& question);
  Status read_verdict();
  Result<uint32_t> read_count(const char* what, uint32_t most);
  Status read_floats(const char* what, std::span<float> to);

  TeacherStream stream_;
  ModelSpec spec_;
  std::vector<Rotation> rotations_;
  std::vector<RowPart> parts_;
  uint32_t vocab_ = 0, context_ = 0;
};

}  // namespace kv
