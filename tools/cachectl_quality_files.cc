// Files, numbers, exit codes and the status line of cachectl's measuring commands.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "tools/cachectl_quality.h"

namespace kv::cachectl {

std::string number(double value, const char* format) {
  char text[32];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

Result<std::string> read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  if (!in || !text) return Status(StatusCode::not_found, "can't read text " + path);
  if (text.view().size() > kMaxTextBytes) {
    return invalid_argument("text " + path + " has over " + std::to_string(kMaxTextBytes) +
                            " bytes");
  }
  return std::move(text).str();
}

Status write_text(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (out) return {};
  return {StatusCode::io_error, "can't write " + path};
}

Exit exit_of(const Status& status) {
  if (status.ok()) return Exit::ok;
  std::fprintf(stderr, "cachectl: %s\n", printable(status.message()).c_str());
  if (status.code() == StatusCode::invalid_argument) return Exit::usage;
  return status.code() == StatusCode::not_found ? Exit::not_found : Exit::failed;
}

StatusLine::StatusLine() : terminal_(::isatty(STDERR_FILENO) == 1) {}

StatusLine::~StatusLine() { show(""); }

void StatusLine::show(const std::string& text) {
  if (!terminal_ || (text.empty() && !shown_)) return;
  shown_ = !text.empty();
  std::fprintf(stderr, "\r\x1b[K%s", printable(text).c_str());
  std::fflush(stderr);
}

}  // namespace kv::cachectl
