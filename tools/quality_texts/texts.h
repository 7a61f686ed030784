// Texts of four kinds for `cachectl quality`, each of some 4,300 tokens or more: the beginnings of
// "Alice's Adventures in Wonderland" by Lewis Carroll (1865) and of "As You Like It" by William
// Shakespeare, both public domain; C++ of this project and its documents, as they stood when the
// texts were chosen. They are the .txt files beside this header, to the byte: changing one changes
// what is measured. Means, gains and bit plans come from another text (engine/calibration_text.cc).
#pragma once

#include <string_view>

namespace kv::cachectl {

extern const std::string_view kStoryText, kPlayText, kCodeText, kManualText;

}  // namespace kv::cachectl
