// Tables, sizes, JSON and progress of cachectl.
#include "tools/cachectl_print.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>

namespace kv::cachectl {

std::string human_bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %s", value, kUnits[unit]);
  return text;
}

std::string human_ratio(uint64_t part, uint64_t whole) {
  if (whole == 0) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f", static_cast<double>(part) / static_cast<double>(whole));
  return text;
}

Json json_ratio(uint64_t part, uint64_t whole) {
  if (whole == 0) return nullptr;
  return static_cast<double>(part) / static_cast<double>(whole);
}

std::string printable(const std::string& text) {
  std::string out;
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
      continue;
    }
    char escaped[8];
    std::snprintf(escaped, sizeof(escaped), "\\x%02x", byte);
    out += escaped;
  }
  return out;
}

void Table::print() const {
  std::vector<size_t> widths(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      std::string pad(widths[i] - row[i].size(), ' ');
      if (i > 0) line += "  ";
      line += i < left_ ? row[i] + pad : pad + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    std::printf("%s\n", line.c_str());
  }
}

Screen screen() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) != 1 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return {};
  return {size.ws_col, size.ws_row};
}

std::vector<std::string> fitted(std::string line) {
  constexpr size_t kIndent = 7;
  const size_t most = screen().columns;
  std::vector<std::string> out;
  while (most > 2 * kIndent && line.size() > most) {
    const size_t space = line.rfind(' ', most);
    const bool breaks = space != std::string::npos && space > kIndent;
    out.push_back(line.substr(0, breaks ? space : most));
    line = std::string(kIndent, ' ') + line.substr(breaks ? space + 1 : most);
  }
  out.push_back(std::move(line));
  return out;
}

void print_json(const Json& json) {
  // A namespace may hold any bytes: what is no UTF-8 becomes U+FFFD.
  std::string text = json.dump(1, ' ', false, Json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
}

Exit report_error(const Status& status) {
  std::fprintf(stderr, "cachectl: %s\n", printable(status.message()).c_str());
  // inspect_directory says invalid_argument for a directory that is no store.
  bool missing =
      status.code() == StatusCode::not_found || status.code() == StatusCode::invalid_argument;
  return missing ? Exit::not_found : Exit::failed;
}

void remark_sealed(const Inspection& inspection) {
  std::map<std::string, uint64_t> files;  // by key id
  for (const auto& file : inspection.files) {
    if (file.other_key) ++files[to_hex(*file.other_key)];
  }
  for (const auto& [id, n] : files) {
    std::fprintf(stderr, "cachectl: %s sealed (key id %s): --key-file opens them\n",
                 counted(n, "file").c_str(), id.c_str());
  }
}

std::string counted(uint64_t n, const std::string& noun) {
  std::string plural = noun.back() == 'y' ? noun.substr(0, noun.size() - 1) + "ies" : noun + "s";
  return std::to_string(n) + " " + (n == 1 ? noun : plural);
}

Progress::Progress(std::string what, uint64_t total)
    : what_(std::move(what)),
      total_(total),
      terminal_(::isatty(STDERR_FILENO) == 1),
      next_(Clock::now() + std::chrono::seconds(1)) {}

Progress::~Progress() {
  if (shown_) std::fputs("\r\x1b[K", stderr);
}

void Progress::step(uint64_t done, uint64_t bytes) {
  if (!terminal_ || Clock::now() < next_) return;
  next_ = Clock::now() + std::chrono::milliseconds(200);
  shown_ = true;
  std::fprintf(stderr, "\r\x1b[K%s: %llu of %llu files, %s", what_.c_str(),
               static_cast<unsigned long long>(done), static_cast<unsigned long long>(total_),
               human_bytes(bytes).c_str());
}

}  // namespace kv::cachectl
