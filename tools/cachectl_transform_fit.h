// TransformFitter: transforms for a model from texts, for `cachectl tune --coding tc`.
//
// Bases are principal components of all texts' rows; every side of every layer is then coded alone
// and the divergence of the model's predictions measured, as for plans of bits; a side's step is
// the larger the less it costs; tables come from a sample. One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codec/transform_fit.h"
#include "tools/cachectl_meter.h"
#include "tools/cachectl_quality_settings.h"

namespace kv::cachectl {

/// Keys are fitted with RoPE undone: as the model's shape says, of a teacher's model as the rows
/// do.
class TransformFitter {
 public:
  /// `model` and `meter` outlive this; the meter has its texts. `told`: a teacher's rotations.
  TransformFitter(const CalibratedModel& model, Meter& meter, std::vector<Rotation> told);
  /// Bases, and what each side alone costs. Returns: what the meter and the fit return.
  Status measure(StatusLine& line);
  /// Steps and tables for `budget` of fp16's bytes. Call measure() before.
  Result<TransformSet> fit(double budget) const;

 private:
  struct SideFit {
    RowPart at;
    Side side = Side::k;
    uint32_t heads = 0, dim = 0;
    const RotaryTurns* turns = nullptr;         // undone; null: none
    std::unique_ptr<RowStatistics> statistics;  // none before its first rows
    std::vector<float> sample;                  // rows, their rotation undone
    double step = 0;                            // with which it was measured
    double divergence = 0;                      // coded alone with that
  };
  Status gather();
  void begin(SideFit& side, uint32_t first, std::span<const float> rows);
  static double costly_step(const SideFit& side);
  Result<double> try_scale(double scale, TransformSet& out) const;

  const CalibratedModel& model_;
  Meter& meter_;
  std::vector<SideFit> sides_;
  std::vector<Rotation> rotations_;  // of full layers and of windowed ones, or those told
  std::vector<RotaryTurns> turns_;
  TransformSet unit_;  // with steps of 1, without tables
};

}  // namespace kv::cachectl
