// The log: lines that cannot be forged, that are JSON whatever they hold, that come once a kind and
// minute, and that nobody waits for.
#include <fcntl.h>
#include <spdlog/details/log_msg.h>

#include <nlohmann/json.hpp>

#include "cachesvc/daemon/event_log.h"
#include "cachesvc/daemon/log_format.h"
#include "cachesvc/daemon/log_queue.h"
#include "tests/support/cachesvc_server.h"

namespace kv {
namespace {

using Json = nlohmann::json;

std::string formatted(bool json, const std::string& message, const LogFields& fields = {}) {
  auto formatter = make_log_formatter(json);
  LogFieldsScope scope(fields);
  spdlog::memory_buf_t out;
  formatter->format({"cachesvc", spdlog::level::warn, message}, out);
  return {out.data(), out.size()};
}

TEST(LogFormat, NamesCannotForgeALineNorMoveTheCursor) {
  const std::string forged =
      "m\n2026-01-01T00:00:00.000 W quarantined\r\x1b[2J\x7f\xc2\x9b"
      "2J";
  EXPECT_EQ(printable_line(forged),
            R"(m\n2026-01-01T00:00:00.000 W quarantined\r\x1b[2J\x7f\x9b2J)");
  EXPECT_EQ(printable_line("a\xe2\x80\xae"
                           "b\xe2\x80\xa8"),
            R"(a\u202eb\u2028)");
  EXPECT_EQ(printable_line("grüße 日本 🙂"), "grüße 日本 🙂");
  std::string line = formatted(false, forged);
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  EXPECT_EQ(line.back(), '\n');
}

TEST(LogFormat, RandomBytesAreOneJsonLineWithTheirFields) {
  std::mt19937 rng(static_cast<unsigned>(::getpid()));
  RecordProperty("seed", ::getpid());
  for (int i = 0; i < 2000; ++i) {
    std::string message(rng() % 40, 0);
    for (char& c : message) c = static_cast<char>(i % 2 == 0 ? rng() : 0xc0 + rng() % 0x40);
    std::string line = formatted(true, message, {"a_kind", {{"count", uint64_t(i)}}});
    ASSERT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << "seed " << ::getpid();
    Json json = Json::parse(line, nullptr, false);
    ASSERT_TRUE(json.is_object()) << line << " seed " << ::getpid();
    EXPECT_EQ(json["kind"], "a_kind");
    EXPECT_EQ(json["count"], i);
    EXPECT_EQ(json["level"], "warning");
    EXPECT_EQ(json["message"], printable_line(message));
  }
}

TEST(LogFormat, EveryIllFormedSequenceIsEscapedByteByByte) {
  // Overlong, a surrogate, beyond the last character, cut short.
  for (std::string bad : {"\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                          "\xf0\x80\x80\x80", "\xe2\x82", "\xff", "\x80"}) {
    std::string said = printable_line(bad);
    EXPECT_EQ(said.size(), 4 * bad.size()) << said;
  }
}

using Told = std::vector<std::string>;

struct Lines {
  Told told;
  EventLog log{
      [this](const LineKind&, uint64_t, const std::string& text) { told.push_back(text); }};
};

TEST(EventLog, TheFirstOfAKindIsToldAtOnceTheOthersCountedOnceAMinute) {
  Lines t;
  EventLog::Time start{std::chrono::hours(5)};
  auto at = [start](int seconds) { return start + std::chrono::seconds(seconds); };
  t.log.on({EventKind::read_failed, "a: EIO"}, at(0));
  t.log.on({EventKind::ssd_evicted, "", 3}, at(1));
  EXPECT_EQ(t.told, (Told{"ssd: a read failed: a: EIO", "ssd: evicted to make room (3 objects)"}));
  t.told.clear();
  for (int i = 2; i < 50; ++i) t.log.on({EventKind::read_failed, "b: EIO"}, at(i));
  t.log.on({EventKind::ssd_evicted, "", 4}, at(50));
  t.log.on({EventKind::ssd_evicted, "", 5}, at(51));
  t.log.flush(at(59));
  EXPECT_TRUE(t.told.empty());
  t.log.flush(at(61));
  std::sort(t.told.begin(), t.told.end());
  EXPECT_EQ(t.told, (Told{"ssd: a read failed (48 reads more): b: EIO",
                          "ssd: evicted to make room (9 objects more)"}));
  t.told.clear();
  t.log.flush(at(1000));
  EXPECT_TRUE(t.told.empty()) << "nothing since";
  t.log.on({EventKind::read_failed, "c: EIO"}, at(1000));
  t.log.on({EventKind::read_failed, "d: EIO"}, at(1001));
  t.log.on({EventKind::read_failed, "e: EIO"}, at(1100));
  EXPECT_EQ(t.told, (Told{"ssd: a read failed: c: EIO", "ssd: a read failed (1 reads more): d: EIO",
                          "ssd: a read failed: e: EIO"}));
  t.told.clear();
  t.log.on({EventKind::hang, "a write"}, at(1100));
  t.log.on({EventKind::hang, "a write"}, at(1101));
  t.log.flush_all();
  EXPECT_EQ(t.told.size(), 2u);
  EXPECT_EQ(t.told.back(), "ssd: hangs (1 times more): a write");
}

TEST(EventLog, SomeKindsMayBeSaidOftenerAndEvictionIsNoWarning) {
  Lines t;
  EventLog::Time start{std::chrono::hours(5)};
  for (uint32_t i = 0; i < 2 * kModelOpened.at_once; ++i) t.log.on(kModelOpened, "m", 1, start);
  EXPECT_EQ(t.told.size(), kModelOpened.at_once);
  t.log.flush_all();
  EXPECT_EQ(t.told.back(), "model (32 models more): m");
  EXPECT_EQ(line_kind(EventKind::ssd_evicted).level, spdlog::level::info);
  EXPECT_EQ(line_kind(EventKind::hang_over).level, spdlog::level::info);
  EXPECT_EQ(line_kind(EventKind::quarantined).level, spdlog::level::warn);
}

// A pipe that is full from the first byte on.
struct FullPipe {
  int ends[2];
  FullPipe() {
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (::write(ends[1], "x", 1) == 1) filled += 1;
    ::fcntl(ends[1], F_SETFL, 0);
  }
  ~FullPipe() {
    ::close(ends[0]);
    if (ends[1] >= 0) ::close(ends[1]);
  }
  // What was written after the filling, until nobody holds the writing end.
  std::string read_all() {
    ::close(std::exchange(ends[1], -1));
    std::string out;
    char buffer[4096];
    for (ssize_t n; (n = ::read(ends[0], buffer, sizeof(buffer))) > 0;) {
      out.append(buffer, static_cast<size_t>(n));
    }
    return out.substr(filled);
  }
  size_t filled = 0;
};

TEST(LogQueue, WhatFindsNoRoomIsDroppedAndCountedWhereItIsMissing) {
  FullPipe pipe;
  int fd = ::fcntl(pipe.ends[1], F_DUPFD_CLOEXEC, 0);
  std::string expected;
  {
    LogQueue queue(fd, 1000, [](uint64_t n) { return "dropped " + std::to_string(n) + "\n"; });
    const std::string line = std::string(99, 'a') + "\n";
    for (int i = 0; i < 10; ++i) {
      EXPECT_TRUE(queue.push(line));
      expected += line;
    }
    for (int i = 0; i < 7; ++i) EXPECT_FALSE(queue.push("no room\n"));
    EXPECT_FALSE(queue.flush(std::chrono::milliseconds(1))) << "nobody reads";
    std::vector<char> taken(pipe.filled);
    for (size_t n = 0; n < pipe.filled;) {
      ssize_t got = ::read(pipe.ends[0], taken.data(), pipe.filled - n);
      ASSERT_GT(got, 0);
      n += static_cast<size_t>(got);
    }
    pipe.filled = 0;
    EXPECT_TRUE(queue.flush(std::chrono::minutes(1)));
    EXPECT_TRUE(queue.push("after\n"));
    EXPECT_TRUE(queue.flush(std::chrono::minutes(1)));
  }
  ::close(fd);
  EXPECT_EQ(pipe.read_all(), expected + "dropped 7\nafter\n");
}

TEST(LogQueue, ItsEndDoesNotWaitForOneWhoNeverReads) {
  static const FullPipe* pipe = new FullPipe();  // as long as the thread that writes to it
  LogQueue queue(pipe->ends[1], 1000, [](uint64_t) { return std::string("dropped\n"); });
  for (int i = 0; i < 1000; ++i) queue.push("a line\n");
}  // the test's time limit says that it ended

// The whole service beside a log that nobody reads: it starts, serves, refuses and ends.
TEST_F(ServerTest, ALogThatNobodyReadsStopsNothing) {
  FullPipe pipe;
  LogFile log(dir_.store() + ".log");
  ASSERT_NO_FATAL_FAILURE(log.hears(
      [&] {
        start({"--set", "log.level=debug", "--set", "server.max_connections=2"});
      },
      pipe.ends[1]));
  auto tokens = random_tokens(rng_, 64);
  {
    auto client = connect();
    auto b = Bench::open(*client, plain_model());
    ASSERT_EQ(b.store(tokens, Durability::durable)->level, Durability::durable);
    for (int i = 0; i < 3000; ++i) (void)SocketClient::connect(socket(), "test", {});  // logged
    EXPECT_EQ(b.fetch(plus_one(tokens))->tokens, 64u);
  }
  EXPECT_EQ(daemon_->stop(), 0);
}

TEST_F(ServerTest, RefusalsAreOneLineAMinuteWithTheirCount) {
  LogFile log(dir_.store() + ".log");
  ASSERT_NO_FATAL_FAILURE(log.hears([&] {
    start({"--set", "log.level=warn", "--set", "server.max_connections=1"});
  }));
  RawPeer only(socket());
  ASSERT_NO_FATAL_FAILURE(only.hello());
  constexpr int kRefused = 200;
  for (int i = 0; i < kRefused; ++i) {
    RawPeer late(socket());
    EXPECT_EQ(late.receive_error(), StatusCode::busy);
  }
  EXPECT_EQ(daemon_->stop(), 0);
  uint64_t counted = 0;
  auto lines = log.lines();
  for (const auto& line : lines) {
    Json json = Json::parse(line);
    EXPECT_EQ(json["kind"], "refused_full") << line;
    counted += json["count"].get<uint64_t>();
  }
  EXPECT_LE(lines.size(), 3u) << log.text();
  EXPECT_EQ(counted, uint64_t{kRefused});
}

TEST_F(ServerTest, AFirstStartWarnsOfNothing) {
  LogFile log(dir_.store() + ".log");
  auto begin = [&] { start({"--set", "log.level=warn"}); };
  ASSERT_NO_FATAL_FAILURE(log.hears(begin));
  {
    auto client = connect();
    auto b = Bench::open(*client, plain_model());
    ASSERT_TRUE(b.store(random_tokens(rng_, 64), Durability::durable).ok());
  }
  EXPECT_EQ(daemon_->stop(), 0);
  EXPECT_EQ(log.text(), "");
  fs::remove(dir_.store() + "/catalog.db");
  ASSERT_NO_FATAL_FAILURE(log.hears(begin));
  EXPECT_EQ(daemon_->stop(), 0);
  EXPECT_EQ(log.lines_with("catalog: missing"), 1u) << log.text();
}

}  // namespace
}  // namespace kv
