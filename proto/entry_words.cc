// The check of a label.
#include "proto/entry_words.h"

#include "proto/limits.h"

namespace kv {
namespace {

// Takes one character off the text. Returns: its number; UINT32_MAX: no UTF-8.
uint32_t next_character(std::string_view& text) {
  const auto first = static_cast<uint8_t>(text[0]);
  const size_t more = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
  constexpr uint32_t least[] = {0, 0x80, 0x800, 0x10000};
  if ((first >= 0x80 && first < 0xc2) || first > 0xf4 || text.size() <= more) return UINT32_MAX;
  uint32_t number = more == 0 ? first : first & (0x3fu >> more);
  for (size_t i = 1; i <= more; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if ((byte & 0xc0) != 0x80) return UINT32_MAX;
    number = number << 6 | (byte & 0x3f);
  }
  text.remove_prefix(more + 1);
  const bool surrogate = number >= 0xd800 && number < 0xe000;
  return number < least[more] || number > 0x10ffff || surrogate ? UINT32_MAX : number;
}

}  // namespace

Status check_label(const std::string& label) {
  if (label.size() > kMaxLabelBytes) {
    return invalid_argument("label: " + std::to_string(label.size()) + " bytes, at most " +
                            std::to_string(kMaxLabelBytes));
  }
  for (std::string_view text = label; !text.empty();) {
    const uint32_t number = next_character(text);
    const bool control = number < 0x20 || (number >= 0x7f && number < 0xa0);
    if (number == UINT32_MAX || control) {
      return invalid_argument(number == UINT32_MAX ? "label: not UTF-8"
                                                   : "label: has a control character");
    }
  }
  return {};
}

}  // namespace kv
