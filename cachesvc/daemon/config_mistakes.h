// Mistakes: everything that is wrong with a configuration, so that it can be told at once. Values
// of one thread.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "proto/status.h"

namespace kv {

class Mistakes {
 public:
  /// Keeps the message of what is not ok.
  void add(const Status& status) {
    if (!status.ok()) said_.push_back(status.message());
  }
  /// invalid_argument: the messages in the order of arrival, a line each. Ok: there are none.
  Status all() const {
    std::string lines;
    for (const std::string& line : said_) lines += (lines.empty() ? "" : "\n") + line;
    return said_.empty() ? Status() : invalid_argument(lines);
  }

 private:
  std::vector<std::string> said_;
};

/// Lines of the status that Mistakes::all() gave.
inline std::vector<std::string> lines_of(const Status& status) {
  std::vector<std::string> lines;
  std::stringstream message(status.message());
  for (std::string line; std::getline(message, line);) lines.push_back(line);
  return lines;
}

}  // namespace kv
