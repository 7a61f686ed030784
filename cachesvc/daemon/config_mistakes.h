// Mistakes: everything that is wrong with a configuration, so that it can be told at once. Values
// of one thread.
#pragma once

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

}  // namespace kv
