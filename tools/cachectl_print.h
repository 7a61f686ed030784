// cachectl's output: tables, sizes for people, JSON, and a progress line. One thread.
//
// Strings from files (namespaces, model names) are anybody's bytes: all that goes to a terminal
// passes printable().
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "proto/status.h"
#include "storage/inspect.h"
#include "tools/cachectl.h"

namespace kv::cachectl {

using Json = nlohmann::ordered_json;

/// "312 B", "1.2 MiB".
std::string human_bytes(uint64_t bytes);
/// Three decimals, or "-" if `whole` is 0.
std::string human_ratio(uint64_t part, uint64_t whole);
/// The ratio, or null if `whole` is 0.
Json json_ratio(uint64_t part, uint64_t whole);
/// Control characters and bytes outside ASCII as \xNN.
std::string printable(const std::string& text);

/// Columns of text; the first `left` columns are aligned left, the others right.
class Table {
 public:
  Table(std::vector<std::string> head, size_t left) : left_(left), rows_{std::move(head)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void print() const;

 private:
  size_t left_;
  std::vector<std::vector<std::string>> rows_;
};

/// Columns and rows of the terminal at standard output; 0, 0: it is none.
struct Screen {
  size_t columns = 0, rows = 0;
};
Screen screen();
/// The line broken at spaces to the terminal's columns, what goes on is indented; whole where there
/// is no terminal.
std::vector<std::string> fitted(std::string line);

void print_json(const Json& json);
/// Prints "cachectl: message" on standard error. Returns: not_found for a missing store, else
/// failed.
Exit report_error(const Status& status);
/// Says on standard error how many files another key than the request's sealed, if there are any.
void remark_sealed(const Inspection& inspection);
/// "1 file", "2 files".
std::string counted(uint64_t n, const std::string& noun);

/// One line on standard error, if that is a terminal and the work takes more than a second.
class Progress {
 public:
  Progress(std::string what, uint64_t total);
  ~Progress();
  Progress(const Progress&) = delete;  // owns the line
  Progress& operator=(const Progress&) = delete;
  void step(uint64_t done, uint64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  uint64_t total_;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point next_;
};

}  // namespace kv::cachectl
