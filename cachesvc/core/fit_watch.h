// FitWatch: whether the rows that are stored under one profile take the bytes that its transforms
// promise. What is long ago counts less. A value of the loop.
#pragma once

#include <string>

#include "codec/stream_bytes.h"

namespace kv {

class FitWatch {
 public:
  static constexpr uint64_t kRemembered = 32768;  ///< tokens; beyond, all that was counts half

  /// `token_bytes`: of streamed_token_bytes. Returns: true if words() should be told, once.
  bool add(const StreamBytes& more, uint64_t token_bytes) {
    sum_ += more;
    if (sum_.f16 > kRemembered * token_bytes) {
      sum_ = {sum_.taken / 2, sum_.promised / 2, sum_.f16 / 2};
    }
    fit_ = fit_of(sum_, token_bytes);
    if (told_ || words().empty()) return false;
    return told_ = true;
  }
  /// Words for people on the rows; empty: there is nothing to say.
  std::string words() const { return fit_words(fit_, sum_); }

 private:
  StreamBytes sum_;
  Fit fit_ = Fit::unknown;
  bool told_ = false;
};

}  // namespace kv
