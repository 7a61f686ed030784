// The service's log: lines with a kind and numbers, on stderr, by spdlog's default logger.
//
// Logging never waits for the reader: lines go through a LogQueue. Set up once, in main; in a test
// that sets up nothing lines go to spdlog's own place. Never prompt content, never tokens.
#pragma once

#include <spdlog/common.h>

#include <string>
#include <vector>

#include "cachesvc/daemon/config.h"
#include "cachesvc/daemon/log_format.h"
#include "proto/client.h"

namespace kv {

/// The log of the process while it lives. Its end waits a bounded time for lines on their way.
class Log {
 public:
  explicit Log(const LogOptions& options);
  ~Log();
  Log(const Log&) = delete;  // one per process
  Log& operator=(const Log&) = delete;
};

/// Logs one line; `fields` are JSON's beside the message.
void log_line(spdlog::level::level_enum level, const LogFields& fields, const std::string& message);
/// The least of what is logged from now on: a value of log.level.
void set_log_level(const std::string& level);
/// Waits a bounded time for lines on their way; before _exit.
void flush_log();
/// Writes one line to stderr without the log, for a program that ends; waits a bounded time for it.
void say_last(const std::string& line);

/// Layers whose active codec is not the requested one, one text for each reason:
/// "layers 0,2-5 latent: requested tq4, active raw: latent: never coded".
std::vector<std::string> coding_lines(const std::vector<CodingReport>& reports);

}  // namespace kv
