// Calibrated profiles: key means and gains from a text of the engine's own, run exactly.
//
// The same model gives the same profile every time (for one build and instruction set; a profile in
// force is never recomputed). Costs one prefill of kCalibrationTokens. One thread at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/network.h"
#include "proto/client.h"
#include "proto/profile.h"

namespace kv {

inline constexpr uint32_t kCalibrationTokens = 1024;

/// Some 1,100 tokens of mixed text: English, code, numbers, other scripts (calibration_text.cc).
extern const std::string_view kCalibrationText;

/// `base` with key_mean and key_gain of every coded K part. Returns: what Network::encode and
/// prefill return.
Result<Profile> calibrate(Network& network, const Profile& base, Deadline deadline);

/// The same through a file: reads `path` if it holds this model's and this base's result, else
/// computes and (best effort) writes it, temporary name then rename. Damage is a recomputation.
Result<Profile> calibrate_with_file(Network& network, const Profile& base, const std::string& path,
                                    Deadline deadline);

}  // namespace kv
