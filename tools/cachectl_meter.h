// Meter: texts as a model computes them, and what codings of a prefix's rows do to what it predicts
// next. For `cachectl tune`. One thread.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/teacher_link.h"
#include "tools/cachectl_quality.h"
#include "tools/cachectl_quality_settings.h"

namespace kv::cachectl {

class Meter {
 public:
  virtual ~Meter() = default;

  /// The first kMostTokens tokens of it. Returns: invalid_argument for less than three blocks.
  virtual Status add_text(std::string_view text) = 0;
  /// Means over the texts of codings that change a prefix: all of a text but its last block.
  virtual Result<std::vector<ProtocolResult>> measure(std::span<const RowCoder> codings) = 0;
  /// Per layer, over the texts: what coding its keys alone costs.
  virtual Result<std::vector<double>> key_errors(const RowCoder& coding) = 0;
  virtual bool has_queries() const = 0;
  /// `base` with means and gains of all texts' keys, gains with queries too if asked for.
  virtual Result<Profile> calibrated(const Profile& base, bool queries) const = 0;

 protected:
  static constexpr uint32_t kMostTokens = 4096;  // of one text
  /// Tokens of the prefix. Returns: as add_text.
  static Result<uint32_t> prefix_of(size_t tokens);
};

/// By this engine: key_errors are those of the attention output.
std::unique_ptr<Meter> engine_meter(std::shared_ptr<const Model> model, uint32_t threads);
/// By a teacher, which outlives it and tells no queries: key_errors are divergences.
std::unique_ptr<Meter> taught_meter(TeacherLink& link);

/// `coder` for one side of one layer, nothing for all others.
RowCoder only(RowCoder coder, uint32_t layer, Side side);

}  // namespace kv::cachectl
