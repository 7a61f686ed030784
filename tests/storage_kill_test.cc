// Kills: the process dies at any call of any script, and at any call of the recovery after that.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/storage_script.h"

namespace kv {
namespace {

using namespace kv::testing;
namespace fs = std::filesystem;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kKillStride = 11;
#else
constexpr uint64_t kKillStride = 1;
#endif

// Runs `body` in a child that SIGKILLs itself at call `at`; events come through a pipe, so that one
// counts only if it was out before the kill. False if the child ended by itself.
bool run_until_kill(uint64_t at, Script::Events& events,
                    const std::function<void(Files*, const Script::Tell&)>& body) {
  int ends[2];
  KV_CHECK(::pipe(ends) == 0);
  pid_t child = ::fork();
  KV_CHECK(child >= 0);
  if (child == 0) {
    ::close(ends[0]);
    FaultFiles files;
    files.mode = FaultFiles::Mode::kill;
    files.at = at;
    body(&files, [&](const std::string& event) {
      std::string line = event + "\n";
      KV_CHECK(::write(ends[1], line.data(), line.size()) == static_cast<ssize_t>(line.size()));
    });
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string all;
  char buffer[4096];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof(buffer))) > 0;) {
    all.append(buffer, static_cast<size_t>(n));
  }
  ::close(ends[0]);
  int state = 0;
  ::waitpid(child, &state, 0);
  for (size_t from = 0, to; (to = all.find('\n', from)) != std::string::npos; from = to + 1) {
    events.push_back(all.substr(from, to - from));
  }
  return WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL;
}

class Kills : public ::testing::TestWithParam<Script::Case> {
 protected:
  bool kill_script(const std::string& directory, uint64_t at, Script::Events& events) {
    Script(GetParam()).prepare(directory, [&](const std::string& e) { events.push_back(e); });
    return run_until_kill(at, events, [&](Files* files, const Script::Tell& tell) {
      Script(GetParam()).run(directory, files, tell);
    });
  }
  // Kills the recovery of copies of `torn` at every call; returns the number of kills.
  uint64_t kill_recoveries(const std::string& torn, const Script::Events& events) {
    uint64_t kills = 0;
    for (uint64_t at = 1;; at += kKillStride * GetParam().recovery_step()) {
      SCOPED_TRACE("recovery killed at call " + std::to_string(at));
      TempDir dir(true);
      fs::copy(torn, dir.store(), fs::copy_options::recursive);
      Script::Events none;
      bool killed = run_until_kill(at, none, [&](Files* files, const Script::Tell&) {
        auto tier = SsdTier::open(dir.store(), Script(GetParam()).options(files));
        if (tier.ok() && (*tier)->recover().ok()) (void)(*tier)->adopt_more(UINT64_MAX);
      });
      Script(GetParam()).check(dir.store(), events);
      if (!killed || HasFailure()) return kills;
      ++kills;
    }
  }
};

TEST_P(Kills, AtEveryCallOfTheScript) {
  uint64_t calls = Script(GetParam()).count_calls();
  ASSERT_GE(calls, GetParam().least_calls());
  for (uint64_t at = 1; at <= calls; at += kKillStride * GetParam().step()) {
    SCOPED_TRACE("killed at call " + std::to_string(at));
    TempDir dir(true);
    Script::Events events;
    ASSERT_TRUE(kill_script(dir.store(), at, events));
    Script(GetParam()).check(dir.store(), events);
    if (HasFailure()) return;
  }
}

// Directories torn at several places, with and without their catalog.
TEST_P(Kills, AtEveryCallOfTheRecovery) {
  uint64_t calls = Script(GetParam()).count_calls(), kills = 0;
  for (uint64_t fifth : {2, 3, 4}) {
    TempDir torn(true);
    Script::Events events;
    ASSERT_TRUE(kill_script(torn.store(), calls * fifth / 5, events));
    if (fifth == 3) fs::remove(torn.store() + "/catalog.db");
    kills += kill_recoveries(torn.store(), events);
    if (HasFailure()) return;
  }
  RecordProperty("kills", static_cast<int>(kills));
  if (kKillStride * GetParam().recovery_step() == 1) {
    EXPECT_GT(kills, 300u) << "three scripts must make 900";
  }
}

INSTANTIATE_TEST_SUITE_P(Scripts, Kills, ::testing::ValuesIn(Script::kCases));

}  // namespace
}  // namespace kv
