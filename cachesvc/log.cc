// Text and JSON formats of the log.
#include "cachesvc/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "codec/plan.h"

namespace kv {
namespace {

// %* : the message with what JSON must escape.
class JsonMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    constexpr char kHex[] = "0123456789abcdef";
    for (char c : message.payload) {
      auto u = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') out.push_back('\\');
      if (u >= 0x20) {
        out.push_back(c);
      } else {
        for (char x : {'\\', 'u', '0', '0', kHex[u >> 4], kHex[u & 15]}) out.push_back(x);
      }
    }
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<JsonMessage>();
  }
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

void set_up_log(const LogOptions& options) {
  auto logger = std::make_shared<spdlog::logger>("cachesvc",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  bool json =
      options.format == "json" || (options.format == "auto" && ::isatty(STDERR_FILENO) == 0);
  if (json) {
    auto formatter = std::make_unique<spdlog::pattern_formatter>();
    formatter->add_flag<JsonMessage>('*').set_pattern(
        R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","message":"%*"})");
    logger->set_formatter(std::move(formatter));
  } else {
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %L %v");
  }
  logger->set_level(spdlog::level::from_str(options.level == "warn" ? "warning" : options.level));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace kv
