// Numbers and texts as people read them on the status page. Pure.
#pragma once

#include <string>
#include <string_view>

namespace kv {

std::string bytes_text(double bytes);      ///< "12.5 MiB"
std::string seconds_text(double seconds);  ///< "1.25 ms", "12.5 min"
std::string count_text(double count);      ///< "1,234,567"
std::string percent_text(double part, double all);
/// The text within HTML, attributes included.
std::string html_text(std::string_view text);

}  // namespace kv
