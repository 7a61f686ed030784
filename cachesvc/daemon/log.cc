// spdlog's logger over a LogQueue.
#include "cachesvc/daemon/log.h"

#include <poll.h>
#include <spdlog/sinks/sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <mutex>

#include "cachesvc/daemon/log_queue.h"
#include "codec/plan.h"

namespace kv {
namespace {

constexpr size_t kQueueBytes = 256 << 10;
constexpr int kLastWaitMs = 1000;

// Formats under a lock of its own; nothing here waits for the descriptor.
class QueueSink final : public spdlog::sinks::sink {
 public:
  QueueSink(int fd, bool json)
      : formatter_(make_log_formatter(json)),
        queue_(fd, kQueueBytes,
               [told = std::shared_ptr<spdlog::formatter>(make_log_formatter(json))](
                   uint64_t dropped) {
                 LogFields fields{"log_dropped", {{"count", dropped}}};
                 LogFieldsScope scope(fields);
                 std::string text =
                     "log: " + std::to_string(dropped) + " lines dropped: nobody read them";
                 return formatted(*told, {"cachesvc", spdlog::level::warn, text});
               }) {}

  void log(const spdlog::details::log_msg& message) override {
    std::lock_guard lock(mutex_);
    (void)queue_.push(formatted(*formatter_, message));
  }
  void flush() override { (void)queue_.flush(LogQueue::kLastWait); }
  void set_pattern(const std::string&) override {}  // the form is set once
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

 private:
  static std::string formatted(spdlog::formatter& formatter,
                               const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t buffer;
    formatter.format(message, buffer);
    return {buffer.data(), buffer.size()};
  }

  std::mutex mutex_;
  std::unique_ptr<spdlog::formatter> formatter_;
  LogQueue queue_;
};

std::string bits_name(uint8_t k, uint8_t v) {
  return k == v ? coding_name(k) : "K " + coding_name(k) + " V " + coding_name(v);
}

}  // namespace

std::vector<std::string> coding_lines(const std::vector<CodingReport>& reports) {
  std::vector<LayerLine> said;
  for (const CodingReport& r : reports) {
    if (r.reason.empty()) continue;
    said.push_back({r.layer, std::string(to_string(r.kind)) + ": requested " +
                                 bits_name(r.requested_k_bits, r.requested_v_bits) + ", active " +
                                 bits_name(r.active_k_bits, r.active_v_bits) + ": " + r.reason});
  }
  return lines_by_text(said);
}

Log::Log(const LogOptions& options) {
  const bool json =
      options.format == "json" || (options.format == "auto" && ::isatty(STDERR_FILENO) == 0);
  auto logger = std::make_shared<spdlog::logger>("cachesvc",
                                                 std::make_shared<QueueSink>(STDERR_FILENO, json));
  logger->set_error_handler([](const std::string&) {});  // the default one would wait
  spdlog::set_default_logger(std::move(logger));
  set_log_level(options.level);
}

Log::~Log() { spdlog::shutdown(); }

void log_line(spdlog::level::level_enum level, const LogFields& fields,
              const std::string& message) {
  LogFieldsScope scope(fields);
  spdlog::log(level, "{}", message);
}

void set_log_level(const std::string& level) {
  spdlog::set_level(spdlog::level::from_str(level == "warn" ? "warning" : level));
}

void flush_log() { spdlog::default_logger_raw()->flush(); }

void say_last(const std::string& line) {
  pollfd ready{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&ready, 1, kLastWaitMs) == 0) return;
  const std::string whole = printable_line(line) + "\n";
  (void)!::write(STDERR_FILENO, whole.data(), whole.size());
}

}  // namespace kv
