// cachectl top: status, again and again, with what happened since the last time. On a terminal it
// has the screen for itself and ends with q; what is piped is one screen after the other.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "tools/cachectl_print.h"
#include "tools/cachectl_status.h"

namespace kv::cachectl {
namespace {

struct TopArguments {
  Given given;
  double seconds = 1;
  uint32_t count = 0;
};

volatile std::sig_atomic_t ended = 0;
void end(int) { ended = 1; }

// The terminal while top has it: another screen, no cursor, keys as they are pressed.
class Terminal {
 public:
  Terminal() : is_(::isatty(STDOUT_FILENO) == 1 && ::tcgetattr(STDIN_FILENO, &before_) == 0) {
    if (!is_) return;
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    (void)::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    std::fputs("\x1b[?1049h\x1b[?25l", stdout);
  }
  ~Terminal() {
    if (!is_) return;
    std::fputs("\x1b[?25h\x1b[?1049l", stdout);
    std::fflush(stdout);
    (void)::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Terminal(const Terminal&) = delete;  // owns the terminal's mode
  Terminal& operator=(const Terminal&) = delete;

  // Lines longer than the screen are cut; nothing flickers, as nothing is cleared first.
  void draw(const std::vector<std::string>& whole) const {
    std::vector<std::string> lines;
    for (const std::string& line : whole) {
      for (std::string& part : fitted(line)) lines.push_back(std::move(part));
    }
    const size_t rows = is_ ? std::max<size_t>(screen().rows, 2) - 1 : lines.size();
    if (is_) std::fputs("\x1b[H", stdout);
    for (size_t i = 0; i < std::min(rows, lines.size()); ++i) {
      std::printf("%s%s\n", lines[i].c_str(), is_ ? "\x1b[K" : "");
    }
    if (is_) std::fputs("\x1b[J", stdout);
    if (!is_) std::puts("");
    std::fflush(stdout);
  }
  // Waits, for a key too. Returns: whether to go on.
  bool wait(double seconds) const {
    pollfd keys{is_ ? STDIN_FILENO : -1, POLLIN, 0};
    const int ready = ::poll(&keys, 1, static_cast<int>(seconds * 1000));
    if (ready < 0) return ended == 0;  // a window of another size, or a signal to end
    char key = 0;
    return ended == 0 && (ready == 0 || (::read(STDIN_FILENO, &key, 1) == 1 && key != 'q'));
  }

 private:
  termios before_{};
  bool is_;
};

std::string rate_line(const Seen& now, const Seen& before) {
  const double seconds =
      static_cast<double>(std::max<uint64_t>(now.at_ms - std::min(now.at_ms, before.at_ms), 1)) /
      1000;
  auto since = [&](const char* name) {
    return static_cast<uint64_t>(
        static_cast<double>(now[name] - std::min(now[name], before[name])) / seconds);
  };
  return "now    " + std::to_string(since("fetches")) + " fetches, " +
         std::to_string(since("commits")) + " stores, " +
         std::to_string(since("hit_tokens_ram") + since("hit_tokens_ssd") +
                        since("hit_tokens_remote")) +
         " tokens served, " + std::to_string(since("miss_tokens")) + " missed, " +
         human_bytes(since("ssd_written_bytes")) + " to the SSD, each a second";
}

Exit run_top(const TopArguments& args) {
  auto place = find_place(args.given);
  if (!place.ok()) return report_error(place.status());
  auto client = daemon_of(*place);
  if (!client.ok()) return report_error(client.status());
  struct sigaction act {};
  act.sa_handler = end;
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) (void)::sigaction(signal, &act, nullptr);
  act.sa_handler = [](int) {};
  (void)::sigaction(SIGWINCH, &act, nullptr);
  Result<Seen> before = see(**client);
  Status failed = before.status();
  {
    const Terminal terminal;
    for (uint32_t n = 1; failed.ok(); ++n) {
      auto now = see(**client);
      if (!now.ok()) {
        failed = now.status();
        break;
      }
      std::vector<std::string> lines{"cachectl top: the daemon at " + printable(place->socket) +
                                     "; q ends"};
      for (std::string& line : status_lines(*now)) lines.push_back(std::move(line));
      lines.insert(lines.begin() + 4, rate_line(*now, *before));
      terminal.draw(lines);
      before = std::move(now);
      if (n == args.count || !terminal.wait(args.seconds)) break;
    }
  }
  return failed.ok() ? Exit::ok : report_error(failed);
}

}  // namespace

void add_top(CLI::App& app, std::function<Exit()>& chosen) {
  auto args = std::make_shared<TopArguments>();
  CLI::App* top = app.add_subcommand("top", "status of a daemon, live; q ends");
  add_place(*top, args->given, "");
  top->add_option("--every", args->seconds, "seconds between two looks")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  top->add_option("--count", args->count, "so many looks, then the end; 0: until q")
      ->capture_default_str();
  top->callback([&chosen, args] { chosen = [args] { return run_top(*args); }; });
}

}  // namespace kv::cachectl
