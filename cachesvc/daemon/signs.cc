// Timers, and the line.
#include "cachesvc/daemon/signs.h"

#include <spdlog/fmt/fmt.h>

#include <string_view>

#include "cachesvc/daemon/http_status.h"

namespace kv {
namespace {

constexpr std::chrono::seconds kStatusInterval{10};

std::string part_of(const char* tier, uint64_t used, uint64_t limit) {
  constexpr double kGiB = 1ull << 30;
  return fmt::format("{} {:.1f} of {:.1f} GiB", tier, static_cast<double>(used) / kGiB,
                     static_cast<double>(limit) / kGiB);
}

}  // namespace

std::string status_line(const Metrics& metrics) {
  auto value = [&](std::string_view name) { return stat_of_metrics(metrics, name); };
  std::string line = part_of("RAM", value("ram_used_bytes"), value("ram_budget_bytes"));
  if (const uint64_t limit = value("ssd_limit_bytes"); limit > 0) {
    line += ", " + part_of("SSD", value("ssd_used_bytes"), limit);
  }
  const uint64_t hits =
      value("hit_tokens_ram") + value("hit_tokens_ssd") + value("hit_tokens_remote");
  const uint64_t asked = hits + value("miss_tokens");
  if (asked == 0) return line + ", nothing was asked yet";
  return line + fmt::format(", {} % of tokens were hits", hits * 100 / asked);
}

Signs::Signs(boost::asio::io_context& io, CacheCore& core, const Supervisor& supervisor)
    : core_(core),
      supervisor_(supervisor),
      alive_timer_(io.get_executor(), [this] { alive(); }),
      status_timer_(io.get_executor(), [this] { status(); }) {
  if (supervisor_.sign_interval().count() > 0) alive();
  if (supervisor_.listens()) status();
}

void Signs::alive() {
  supervisor_.alive();
  alive_timer_.arm_in(supervisor_.sign_interval());
}

void Signs::status() {
  status_timer_.arm_in(kStatusInterval);
  core_.metrics([&supervisor = supervisor_](const Metrics& metrics) {
    supervisor.status(status_line(metrics));
  });
}

}  // namespace kv
