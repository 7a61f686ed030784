// Texts of four kinds for `cachectl quality`, each of some 4,300 tokens or more. Means, gains and
// bit plans come from another text (engine/calibration_text.cc).
#pragma once

#include <string_view>

namespace kv::cachectl {

extern const std::string_view kStoryText, kPlayText, kCodeText, kManualText;

}  // namespace kv::cachectl
