// The HTTP port's parts one by one: requests in pieces, hosts, origins, tokens, forms, names,
// histograms, numbers. The port itself: cachesvc_http_check.py.
#include "tests/support/cachesvc_http.h"

#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "cachesvc/daemon/http_checks.h"
#include "cachesvc/daemon/http_form.h"
#include "cachesvc/daemon/http_metrics.h"
#include "cachesvc/daemon/http_names.h"
#include "cachesvc/daemon/http_numbers.h"
#include "cachesvc/daemon/http_parser.h"
#include "cachesvc/daemon/http_reply.h"
#include "cachesvc/daemon/http_status.h"
#include "tests/support/cachesvc_testing.h"

namespace kv {
namespace {

const std::string kGet = "GET /a?b=c HTTP/1.1\r\nHost: localhost:1\r\nOrigin: o\r\n\r\n";
const std::string kPost =
    "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nConnection: close\r\n\r\nx=1&y";

TEST(HttpParser, RequestsInPiecesOfEverySizeAreTheSame) {
  std::string stream;
  for (int i = 0; i < 50; ++i) stream += i % 3 == 0 ? kPost : kGet;
  for (size_t step : {size_t{1}, size_t{2}, size_t{7}, size_t{100}, size_t{16'384}}) {
    HttpRun run = parse_http(stream, [&] { return step; });
    ASSERT_EQ(run.requests.size(), 50u) << step;
    EXPECT_EQ(run.code, 0u);
    for (size_t i = 0; i < run.requests.size(); ++i) {
      const HttpRequest& r = run.requests[i];
      EXPECT_EQ(r.method, i % 3 == 0 ? "POST" : "GET");
      EXPECT_EQ(r.target, i % 3 == 0 ? "/p" : "/a?b=c");
      EXPECT_EQ(r.body, i % 3 == 0 ? "x=1&y" : "");
      EXPECT_EQ(r.host, i % 3 == 0 ? "h" : "localhost:1");
      EXPECT_EQ(r.keep_alive, i % 3 != 0);
      EXPECT_FALSE(r.several_hosts);
    }
  }
}

TEST(HttpParser, WhatIsLongOrNoHttpIsRefusedAtOnceWithItsCode) {
  const auto code = [](const std::string& stream) {
    unsigned first = 0;
    for (size_t step : {size_t{1}, size_t{10'000}}) {
      first = parse_http(stream, [&] { return step; }).code;
    }
    return first;
  };
  const std::string head = "GET / HTTP/1.1\r\nHost: h\r\n";
  EXPECT_EQ(code(head + "A: " + std::string(kMaxHttpHeadBytes, 'x')), 431u);
  EXPECT_EQ(code(std::string(100'000, 'x')), 431u);
  EXPECT_EQ(code(std::string(100'000, '\x16')), 400u);
  EXPECT_EQ(code("GET /" + std::string(100'000, 'x')), 431u);
  EXPECT_EQ(code(head + "Content-Length: 65537\r\n\r\n"), 413u);
  EXPECT_EQ(code(head + "Content-Length: 65536\r\n\r\n"), 0u);
  EXPECT_EQ(code(head + "Transfer-Encoding: chunked\r\n\r\n"), 411u);
  EXPECT_EQ(code(head + "Content-Length: x\r\n\r\n"), 400u);
  EXPECT_EQ(code("\r\n\r\nhello"), 400u);
}

TEST(HttpChecks, OnlyThisMachinesOwnNamesAreHosts) {
  for (const char* host :
       {"localhost", "LocalHost:80", "127.0.0.1", "127.1.2.3:65535", "[::1]", "[::1]:8080"}) {
    EXPECT_TRUE(is_own_host(host)) << host;
  }
  for (const char* host :
       {"", ":80", "localhost:", "localhost:65536", "localhost:0", "localhost:1x", "localhost.",
        "localhostx", "128.0.0.1", "0.0.0.0", "127.1", "127.0.0.1.", "[::1", "::1", "[::1]x",
        "[127.0.0.1]", "a.example"}) {
    EXPECT_FALSE(is_own_host(host)) << host;
  }
  EXPECT_TRUE(is_own_origin("", "localhost"));
  EXPECT_TRUE(is_own_origin("http://LOCALHOST:1", "localhost:1"));
  for (const char* origin : {"null", "http://localhost", "https://localhost:1", "localhost:1"}) {
    EXPECT_FALSE(is_own_origin(origin, "localhost:1")) << origin;
  }
}

TEST(HttpChecks, TokensComeAsBearerOrAsThePasswordOfBasic) {
  EXPECT_EQ(token_of("Bearer abc"), "abc");
  EXPECT_EQ(token_of("bearer  a b"), "a b");
  EXPECT_EQ(token_of("Basic bWU6YTpi"), "a:b");
  for (const char* none : {"", "Bearer", "Bearer ", "Bearerabc", "Basic", "Basic bWU",
                           "Basic b*U=", "Basic bWU=", "Digest abc", "abc"}) {
    EXPECT_EQ(token_of(none), "") << none;
  }
  EXPECT_EQ(from_base64("AP+A/w=="), std::string("\x00\xff\x80\xff", 4));
  EXPECT_EQ(from_base64("=AAA"), "");
}

TEST(HttpForm, FieldsAndEscapes) {
  auto form = HttpForm::read("a=1&&b=%41+%2B%26&c&tokens=1,2,2147483647");
  ASSERT_TRUE(form.ok());
  EXPECT_EQ(form->get("a"), "1");
  EXPECT_EQ(form->get("b"), "A +&");
  EXPECT_TRUE(form->has("c") && form->get("c").empty() && !form->has("d"));
  EXPECT_EQ(*form->tokens("tokens"), (std::vector<Token>{1, 2, 2147483647}));
  EXPECT_TRUE(form->tokens("none")->empty());
  EXPECT_EQ(form->unknown({"a", "b", "tokens"}), "c");
  EXPECT_FALSE(form->tokens("b").ok());
  for (const char* bad : {"a=%", "a=%4", "a=%4g", "%", "a=1&a=2"}) {
    EXPECT_FALSE(HttpForm::read(bad).ok()) << bad;
  }
  for (const char* bad : {"t=1,,2", "t=-1", "t=2147483648", "t=,1"}) {
    EXPECT_FALSE(HttpForm::read(bad)->tokens("t").ok()) << bad;
  }
}

TEST(Histogram, EachValueLiesInTheBucketWithTheLeastBoundThatHoldsIt) {
  std::mt19937_64 rng(1);
  for (unsigned first : {0u, 4u}) {
    for (int i = 0; i < 10'000; ++i) {
      Histogram h(first);
      const uint64_t value = i < 100 ? static_cast<uint64_t>(i) : rng() >> (rng() % 64);
      h.add(value);
      size_t at = 0;
      while (at + 1 < Histogram::kBuckets && h.bound(at) < value) ++at;
      ASSERT_EQ(h.count(at), 1u) << value;
      ASSERT_EQ(h.sum(), value);
      ASSERT_EQ(h.count(), 1u);
    }
  }
}

// Every stat of the core has a name of its own; a new one wants a line in http_names.cc.
TEST(HttpNames, EveryStatHasOne) {
  TempDir dir;
  auto cache = open_cache(small_options(dir.store()));
  auto reply = cache->stats(soon());
  ASSERT_TRUE(reply.ok());
  const StatsReply& stats = *reply;
  ASSERT_GT(stats.values.size(), 90u);
  std::map<std::string, std::string> metrics;
  for (const auto& [stat, value] : stats.values) {
    if (stat.starts_with("namespace_")) continue;
    const StatName* name = find_stat_name(stat);
    if (name == nullptr) {
      ADD_FAILURE() << stat;
      continue;
    }
    const std::string metric = metric_name(*name);
    EXPECT_TRUE(metrics.emplace(series_name(*name), stat).second) << metric;
    EXPECT_TRUE(std::regex_match(metric, std::regex("cachesvc_[a-z0-9_]+"))) << metric;
    EXPECT_FALSE(std::regex_search(metric, std::regex("_(ms|us|percent)(_|$)"))) << metric;
  }
}

TEST(HttpNames, NoTwoNamesLookAlikeAndAllAreText) {
  EXPECT_EQ(shown_name("plain-name é 漢 😀"), "plain-name é 漢 😀");
  EXPECT_EQ(shown_name(std::string("a\n\0\x7f", 4)), "a\\x0a\\x00\\x7f");
  EXPECT_EQ(shown_name("a\\x0a"), "a\\x5cx0a");
  for (const char* bad : {"\xff", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80",
                          "\xe2\x82", "\xc2\x80"}) {
    EXPECT_TRUE(shown_name(bad).starts_with("\\x")) << shown_name(bad);
  }
}

TEST(HttpMetrics, SeriesAreBoundedAndTheRestIsAddedUp) {
  Measures measures;
  const size_t pairs = ModelUses::kMaxModelUses + 500;
  for (size_t i = 0; i < pairs; ++i) ++measures.models.of("ns" + std::to_string(i), "m").fetches;
  EXPECT_LE(measures.models.all().size(), ModelUses::kMaxModelUses + 1);
  uint64_t fetches = 0;
  for (const auto& [key, use] : measures.models.all()) fetches += use.fetches;
  EXPECT_EQ(fetches, pairs);
  EXPECT_EQ(measures.models.all().begin()->first, ModelUses::Key());
}

TEST(HttpNumbers, AsPeopleReadThem) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text(5.0 * (1ull << 40)), "5.00 TiB");
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(1234567), "1,234,567");
  EXPECT_EQ(seconds_text(0.000016), "16.0 µs");
  EXPECT_EQ(seconds_text(0.25), "250 ms");
  EXPECT_EQ(seconds_text(3600), "60.0 min");
  EXPECT_EQ(percent_text(1, 3), "33.3 %");
  EXPECT_EQ(percent_text(0, 0), "–");
  EXPECT_EQ(html_text("<a href='x\">&"), "&lt;a href=&#39;x&quot;&gt;&amp;");
  EXPECT_EQ(number_text(3), "3");
  EXPECT_EQ(number_text(0.001), "0.001");
}

TEST(HttpReply, HeadHasTheLengthAndNoBody) {
  const std::string whole = http_bytes(http_text(200, "ok"), false, true);
  const std::string head = http_bytes(http_text(200, "ok"), true, true);
  EXPECT_EQ(whole, head + "ok\n");
  EXPECT_NE(head.find("Content-Length: 3\r\n"), head.npos);
  EXPECT_NE(http_bytes({}, false, false).find("Connection: close\r\n"), head.npos);
}

}  // namespace
}  // namespace kv
