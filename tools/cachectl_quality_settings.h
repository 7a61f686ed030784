// The codings that `cachectl quality` and `cachectl tune` compare, as functions on rows. One
// thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "engine/model.h"
#include "engine/teacher_link.h"

namespace kv::cachectl {

/// A model with what calibration finds of its keys.
struct CalibratedModel {
  std::shared_ptr<const Model> model;  ///< none: a teacher's
  ModelSpec spec;
  Profile profile;  ///< 8 bits on every side that may be coded, with key means and gains
};
/// Returns: what Model::load and calibrate return.
Result<CalibratedModel> load_calibrated(const std::string& path, uint32_t threads);
/// Returns: what the teacher's calibrate returns.
Result<CalibratedModel> calibrated_by(TeacherLink& link);

/// Bytes that rows took, of a coding whose bytes depend on them.
struct CodedBytes {
  uint64_t stored = 0, whole = 0;  ///< whole: in fp16
};

struct QualitySetting {
  std::string name;
  double ratio = 1;      ///< bytes of the first `tokens` rows over the same rows in fp16
  bool by_rows = false;  ///< in *whole*, rows are coded before their own block attends to them
  RowCoder coder;
  std::shared_ptr<const CodedBytes> bytes;  ///< if set, what the ratio is taken from at the end
};

/// The settings compared where nobody says.
inline constexpr const char* kDefaultSettings =
    "lossless,tq8,tq84,tq4,tq3,tq2,tq1,tq4-plain,q8_0,q4_0,words3";

/// A preset (codec/preset.h) or `tq1` (both sides 1 bit), calibrated and with exact first tokens as
/// an engine uses it; with
/// "-mean" means only, with "-plain" neither those nor exact tokens. `q8_0`, `q4_0`: llama.cpp's
/// blocks of 32 values with an fp16 scale. `words3`: 10 codes of 3 bits per 32-bit word and a
/// 32-bit norm per vector; its rows are our plain 3-bit ones, which share rotation and codebook.
/// Else the path of a profile file. Returns:
/// invalid_argument naming the setting; what read_profile_file returns.
Result<QualitySetting> make_setting(const std::string& name, const CalibratedModel& model,
                                    uint32_t tokens);

/// Rows of row_parts() through the codec and back. `bytes`, if given, counts what they took, and
/// rows come back as the raw dtype has them. Returns: what row_parts returns.
Result<RowCoder> coder_of(std::shared_ptr<const Codec> codec,
                          std::shared_ptr<CodedBytes> bytes = nullptr);
/// The 32 values that llama.cpp's blocks give back; in place.
void round_q8_0(float* block);
void round_q4_0(float* block);

}  // namespace kv::cachectl
