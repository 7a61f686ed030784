// `cachectl kinds`, `cachectl quality` and `cachectl tune`, which read models, not stores: what a
// model's cache is made of, and what a coding of keys and values does to its predictions, measured
// on the user's own GGUF. One thread of their own; the engine's beside it.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/teacher.h"
#include "tools/cachectl.h"
#include "tools/cachectl_print.h"

namespace kv::cachectl {

/// Adds the commands to `app`; a chosen one is left in `chosen`.
void add_quality(CLI::App& app, std::function<Exit()>& chosen);
void add_tune(CLI::App& app, std::function<Exit()>& chosen);
void add_kinds(CLI::App& app, std::function<Exit()>& chosen);

inline constexpr const char* kTeacherHelp =
    "a program that predicts in place of our engine (engine/TEACHER.md): \"python3 -m "
    "cachesvc.teacher\" for models of transformers";

/// The figures of one protocol for one setting, over all texts.
struct ProtocolResult {
  std::vector<float> kld;   ///< of every position
  double kld_of_texts = 0;  ///< sums of the texts' means
  double agreement_of_texts = 0;
  uint32_t texts = 0;
  double exact_nll = 0, coded_nll = 0;
  uint64_t predicted = 0;

  void add(const Divergence& d);
  double mean_kld() const { return kld_of_texts / texts; }
  double agreement() const { return agreement_of_texts / texts; }
  /// The value that 99 % of the positions don't exceed.
  double p99_kld() const;
  double exact_perplexity() const;
  double coded_perplexity() const;
};

struct SettingResult {
  std::string name;
  double ratio = 1;
  ProtocolResult hit, whole;           ///< whole.texts is 0 where it wasn't asked for
  std::vector<AttentionError> layers;  ///< means over the texts
};

/// Two plots as one SVG: divergence against bytes, and attention error per layer.
std::string quality_svg(const std::string& model, std::span<const SettingResult> results);

/// By a printf format for one double.
std::string number(double value, const char* format);

/// The file as a whole. Returns: io_error, invalid_argument (over kMaxTextBytes).
Result<std::string> read_text(const std::string& path);
Status write_text(const std::string& path, const std::string& text);

/// Prints what failed. Returns: usage for invalid arguments, not_found for a missing file.
Exit exit_of(const Status& status);

/// One line on standard error that is rewritten, if that is a terminal.
class StatusLine {
 public:
  StatusLine();
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;  // owns the line
  StatusLine& operator=(const StatusLine&) = delete;
  void show(const std::string& text);

 private:
  bool terminal_;
  bool shown_ = false;
};

}  // namespace kv::cachectl
