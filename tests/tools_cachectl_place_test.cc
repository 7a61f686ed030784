// cachectl's grammar: the same verbs on a directory and on a running daemon, the place found by
// itself; a daemon tried without code; the tree; the live screen on a terminal.
#include <poll.h>
#include <pty.h>

#include <chrono>

#include "tests/support/cachectl_user.h"

namespace kv {
namespace {

using namespace kv::testing;
using ::testing::AllOf;
using ::testing::Not;

constexpr auto kLong = std::chrono::seconds(60);

// A program on a terminal of its own.
class OnTerminal {
 public:
  explicit OnTerminal(const std::string& arguments, uint16_t columns = 100) {
    winsize size{};
    size.ws_col = columns;
    size.ws_row = 12;
    pid_ = ::forkpty(&fd_, nullptr, nullptr, &size);
    if (pid_ != 0) return;
    const std::string command = std::string("exec ") + KV_CACHECTL_BIN + " " + arguments;
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  ~OnTerminal() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(fd_);
  }
  OnTerminal(const OnTerminal&) = delete;  // owns the child
  OnTerminal& operator=(const OnTerminal&) = delete;

  void press(char key) { EXPECT_EQ(::write(fd_, &key, 1), 1); }
  /// Reads until `text` stands there for the n-th time, or to the end.
  bool shows(const std::string& text, size_t times = 1) {
    const auto end = std::chrono::steady_clock::now() + kLong;
    while (std::chrono::steady_clock::now() < end) {
      size_t n = 0, at = 0;
      while ((at = seen.find(text, at)) != seen.npos) ++n, at += text.size();
      if (n >= times) return true;
      char bytes[4096];
      const ssize_t got = ::read(fd_, bytes, sizeof(bytes));
      if (got <= 0) return false;
      seen.append(bytes, static_cast<size_t>(got));
    }
    return false;
  }
  int wait() {
    char bytes[4096];
    ssize_t got;
    while ((got = ::read(fd_, bytes, sizeof(bytes))) > 0)
      seen.append(bytes, static_cast<size_t>(got));
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string seen;

 private:
  int fd_ = -1;
  pid_t pid_ = -1;
};

TEST_F(CachectlPlace, IsFoundByServesOwnRules) {
  if (::geteuid() == 0 && fs::exists("/run/cachesvc/cachesvc.sock")) {
    GTEST_SKIP() << "the package's daemon runs here, and would be found";
  }
  Ran nothing = run_changing("status");
  EXPECT_EQ(nothing.code, 4);
  EXPECT_THAT(nothing.err, AllOf(HasSubstr("no daemon answers at " + socket()),
                                 HasSubstr("the directory " + directory())));
  auto daemon = serve();
  ASSERT_TRUE(daemon);
  EXPECT_THAT(run_changing("status").out, HasSubstr("RAM    ["));
  EXPECT_THAT(run_changing("status").err, HasSubstr("the daemon at " + socket()));
  for (const char* verb : {"ls", "stats", "verify", "tree", "doctor", "why", "counters", "ping"}) {
    EXPECT_EQ(run_changing(verb).code, 0) << verb;
    EXPECT_EQ(run_changing(verb + std::string(" ") + socket()).code, 0) << verb;
    EXPECT_EQ(run_changing(verb + std::string(" --json ") + socket()).code, 0) << verb;
    EXPECT_EQ(run_changing(verb + std::string(" --socket ") + socket()).err, "") << verb;
  }
  EXPECT_THAT(run_changing("ls").err, HasSubstr("the directory " + directory()));
  EXPECT_THAT(run_changing("gc").err, HasSubstr("it holds LOCK"));
  EXPECT_EQ(run_changing("purge nobody").code, 4);
  daemon->kill();
  Ran offline = run_changing("status");
  EXPECT_EQ(offline.code, 0);
  EXPECT_THAT(offline.out, HasSubstr("on disk"));
  EXPECT_EQ(run_changing("counters").code, 4);
  EXPECT_EQ(run_changing("gc").code, 0);
}

TEST_F(CachectlPlace, ADaemonsDirectoryIsTheOneThatItHolds) {
  tier_.reset();
  const std::string at = home_.path() + "/other.sock";
  auto daemon = serve({"--socket", at, "--dir", store()});
  ASSERT_TRUE(daemon);
  EXPECT_EQ(run_changing("ls --json " + at).parsed().size(), 2u);
  EXPECT_EQ(run_changing("show --json " + at + " " + hex(tail_)).parsed()["id"], hex(tail_));
  EXPECT_THAT(run_changing("doctor " + store()).out, HasSubstr("Nothing is wrong"));
  EXPECT_EQ(run_changing("status --json " + store()).parsed()["entries"], 2);
  Ran none = run_changing("counters " + store());
  EXPECT_EQ(none.code, 4);
  EXPECT_THAT(none.err, HasSubstr("asks a running daemon"));
  auto ram = serve({"--socket", at + "2"}, "0");
  ASSERT_TRUE(ram);
  EXPECT_THAT(run_changing("ls " + at + "2").err, HasSubstr("--dir names one"));
}

TEST_F(CachectlPlace, WhatPutStoresGetReadsBack) {
  auto daemon = serve();
  ASSERT_TRUE(daemon);
  Ran miss = run_changing("get");
  EXPECT_EQ(miss.code, 4);
  EXPECT_THAT(miss.out, HasSubstr("0 of 600 tokens"));
  EXPECT_THAT(run_changing("put --label trial").out,
              AllOf(HasSubstr("stored 600 tokens of model cachectl-try in namespace cachectl"),
                    HasSubstr("3 objects"), HasSubstr("spilled in")));
  EXPECT_THAT(run_changing("put").out, HasSubstr("all of it was there"));
  EXPECT_THAT(run_changing("get").out,
              AllOf(HasSubstr("600 of 600 tokens"), HasSubstr("came from ram"),
                    HasSubstr("each value is that of put")));
  json got = run_changing("get --json --tokens 700").parsed();
  EXPECT_EQ(got["tokens"], 600) << "a longer one that begins with it";
  EXPECT_EQ(got["exact"], true);
  EXPECT_LT(got["key_error"], 0.02);
  EXPECT_GT(got["value_error"], 0);
  spew(home_.path() + "/tokens.json", "[5,6,7]");
  const std::string three = " --namespace chat " + home_.path() + "/tokens.json";
  EXPECT_EQ(run_changing("get" + three).code, 4);
  EXPECT_THAT(run_changing("put" + three).out, HasSubstr("stored 3 tokens"));
  EXPECT_EQ(run_changing("get --json" + three).parsed()["tokens"], 3);
  EXPECT_THAT(run_changing("ls").out, HasSubstr("trial"));
  daemon->stop();
  daemon = serve();
  ASSERT_TRUE(daemon);
  EXPECT_THAT(run_changing("get").out, AllOf(HasSubstr("600 of 600"), HasSubstr("came from ssd")));
  EXPECT_EQ(run_changing("put --tokens 0").code, 2);
}

TEST_F(CachectlPlace, DeleteAndPurgeAskTheDaemon) {
  auto daemon = serve();
  ASSERT_TRUE(daemon);
  ASSERT_EQ(run_changing("put").code, 0);
  ASSERT_EQ(run_changing("put --tokens 900").code, 0);
  ASSERT_EQ(run_changing("put --namespace other").code, 0);
  json all = run_changing("ls --json --sort tokens").parsed();
  ASSERT_EQ(all.size(), 3u);
  const std::string id = all[0]["id"];
  // The shorter one, from which it goes on, goes with it.
  EXPECT_THAT(run_changing("delete --dry-run " + id).out, HasSubstr("would remove 5 objects"));
  EXPECT_THAT(run_changing("delete " + id).out, HasSubstr("removed 5 objects"));
  EXPECT_EQ(run_changing("delete " + id).code, 4);
  EXPECT_EQ(run_changing("get").code, 4) << "gone from RAM too";
  EXPECT_EQ(run_changing("purge cachectk").code, 4);
  EXPECT_EQ(run_changing("get --namespace other").code, 0);
  EXPECT_THAT(run_changing("purge other").out, HasSubstr("removed 3 objects"));
  EXPECT_EQ(run_changing("get --namespace other").code, 4);
  EXPECT_EQ(run_changing("ls --json").parsed().size(), 0u);
}

TEST_F(CachectlPlace, ImportThenExportIsTheIdentity) {
  const std::string first = home_.path() + "/first.safetensors";
  const std::string second = home_.path() + "/second.safetensors";
  Ran out = run("export --id " + hex(tail_) + " --out " + first + " " + store());
  ASSERT_EQ(out.code, 0) << out.err;
  EXPECT_EQ(run("export --id " + hex(tail_) + " --out " + first + " " + store()).code, 1)
      << "it is there already";
  EXPECT_EQ(run("export --id ffff --out " + second + " " + store()).code, 4);
  auto daemon = serve();
  ASSERT_TRUE(daemon);
  Ran in = run_changing("import --in " + first);
  ASSERT_EQ(in.code, 0) << in.err;
  EXPECT_THAT(in.out, HasSubstr("3 objects stored"));
  EXPECT_THAT(run_changing("import --in " + first).out, HasSubstr("0 objects stored"));
  json there = run_changing("ls --json").parsed();
  ASSERT_EQ(there.size(), 1u);
  EXPECT_EQ(there[0]["id"], hex(tail_)) << "the id names the same computation";
  ASSERT_EQ(run_changing("export --id " + hex(tail_) + " --out " + second).code, 0);
  EXPECT_EQ(slurp(first), slurp(second));
  std::string bytes = slurp(first);
  for (const size_t cut : {size_t{5}, size_t{100}, bytes.size() - 1}) {
    spew(second, bytes.substr(0, cut));
    Ran ran = run_changing("import --namespace other --in " + second);
    EXPECT_EQ(ran.code, 1) << cut;
    EXPECT_NE(ran.err, "");
  }
  EXPECT_EQ(run_changing("import --in " + second + "x").code, 4);
}

TEST_F(CachectlPlace, TheTreesBytesAreThoseOfLs) {
  json trees = run("tree --json " + store()).parsed();
  ASSERT_EQ(trees.size(), 1u);
  const json& edges = trees[0]["edges"];
  ASSERT_EQ(edges.size(), 3u);  // first_, then second_ with tail_, and other_
  EXPECT_EQ(edges[0]["entries"], 2);
  EXPECT_EQ(edges[0]["end_token"], 16);
  EXPECT_TRUE(edges[0]["parent"].is_null());
  EXPECT_EQ(edges[1]["parent"], 0);
  json status = run("status --json " + store()).parsed();
  EXPECT_EQ(trees[0]["saved_bytes"], status["saved_bytes"]);
  EXPECT_EQ(trees[0]["bytes"],
            status["unique_bytes"].get<uint64_t>() + status["shared_bytes"].get<uint64_t>());
  Ran text = run("tree " + store());
  EXPECT_THAT(text.out,
              AllOf(HasSubstr("└─ 16 tokens"), HasSubstr("shared by 2, saves"), HasSubstr("├─ "),
                    HasSubstr(hex(tail_).substr(0, 16)), Not(HasSubstr("\x1b")),
                    Not(HasSubstr(std::to_string(kSecretToken)))));
  EXPECT_THAT(run("tree --tokens " + store()).out, HasSubstr(std::to_string(kSecretToken)));
  OnTerminal terminal("tree " + store());
  EXPECT_EQ(terminal.wait(), 0);
  EXPECT_THAT(terminal.seen, HasSubstr("\x1b[32mshared by 2"));
  fs::remove(path(first_));
  EXPECT_THAT(run("tree " + store()).out, HasSubstr("a block before it is missing: not served"));
}

TEST_F(CachectlPlace, AStoreOfANewerFormatIsNamedAndUntouched) {
  tier_.reset();
  for (const Object* o : {&first_, &second_, &tail_, &other_}) {
    std::fstream(path(*o), std::ios::in | std::ios::out | std::ios::binary).seekp(8).put(9);
  }
  const std::string said = "format version 9, this program reads 1, 4 and 7";
  EXPECT_THAT(run("verify " + store()).out,
              AllOf(HasSubstr(hex(tail_)), HasSubstr(said), HasSubstr("0 damaged")));
  EXPECT_THAT(run("doctor " + store()).out,
              HasSubstr("4 files are foreign or of another version of cachesvc, and are left "
                        "alone: " +
                        said));
  EXPECT_EQ(run("status --json " + store()).parsed()["foreign_files"], 4);
  const std::string before = slurp(path(tail_));
  auto daemon = serve({"--dir", store()});
  ASSERT_TRUE(daemon);
  EXPECT_EQ(run_changing("put").code, 0) << "it serves beside them";
  daemon->stop();
  EXPECT_EQ(slurp(path(tail_)), before);
}

TEST_F(CachectlPlace, TopDrawsAgainAndGivesTheTerminalBack) {
  auto daemon = serve();
  ASSERT_TRUE(daemon);
  OnTerminal top("top --every 0.1", 70);
  ASSERT_TRUE(top.shows("RAM    [", 1)) << top.seen;
  ASSERT_EQ(run_changing("put").code, 0);
  ASSERT_TRUE(top.shows("1 store")) << top.seen;
  top.press('q');
  EXPECT_EQ(top.wait(), 0);
  EXPECT_THAT(top.seen, AllOf(HasSubstr("\x1b[?1049h"), HasSubstr("\x1b[?25h\x1b[?1049l"),
                              HasSubstr("\n       ")))
      << "a line that is longer than the terminal goes on below";
  OnTerminal ended("top --every 0.1");
  ASSERT_TRUE(ended.shows("RAM    [", 2)) << ended.seen;
  daemon->kill();
  EXPECT_EQ(ended.wait(), 1);
  EXPECT_THAT(ended.seen, HasSubstr("\x1b[?1049l"));
  EXPECT_EQ(run_changing("top --count 1").code, 4);
}

}  // namespace
}  // namespace kv
