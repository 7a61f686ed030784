// Messages: golden bytes, identity of encode and decode, and decoders that take any bytes.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/proto_testing.h"

namespace kv {
namespace {

using testing::decode_any;
using testing::feed;
using testing::flatten;
using testing::Random;
using testing::sample_frames;

std::vector<uint8_t> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_file(const std::string& path, std::span<const uint8_t> bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

// The body of one frame, as received.
Frame frame_of(const std::vector<uint8_t>& bytes) {
  FrameParser parser;
  parser.set_greeted(true);
  auto taken = feed(parser, bytes);
  EXPECT_TRUE(taken.ok());
  auto frame = parser.next();
  EXPECT_TRUE(frame.has_value());
  return frame ? *frame : Frame{};
}

// The same frame with another body: the header is made to fit.
Frame with_body(const Frame& frame, std::vector<uint8_t> body) {
  Frame out = frame;
  out.header.length = body.size();
  out.body = Bytes::owning(std::move(body));
  return out;
}

// With KV_UPDATE_GOLDEN set, writes the golden frames and the fuzz targets' seeds instead.
TEST(Golden, EveryFrameHasItsBytes) {
  bool update = std::getenv("KV_UPDATE_GOLDEN") != nullptr;
  auto frames = sample_frames();
  if (update) {
    for (const auto& [name, bytes] : frames) {
      write_file(KV_GOLDEN_DIR "/" + name + ".bin", bytes);
    }
    ByteWriter model, profile, object;
    encode(testing::sample_model(), model);
    encode(testing::sample_profile(), profile);
    encode_header(testing::sample_object(), object);
    write_file(KV_CORPUS_DIR "/model/sample.bin", model.span());
    write_file(KV_CORPUS_DIR "/profile/sample.bin", profile.span());
    write_file(KV_CORPUS_DIR "/object/sample.bin", object.span());
  }
  size_t files = 0;
  for (const auto& e : std::filesystem::directory_iterator(KV_GOLDEN_DIR)) {
    ++files;
    EXPECT_TRUE(frames.count(e.path().stem().string())) << "no sample makes " << e.path();
  }
  EXPECT_EQ(files, frames.size());
  for (const auto& [name, bytes] : frames) {
    EXPECT_EQ(read_file(KV_GOLDEN_DIR "/" + name + ".bin"), bytes) << name;
    EXPECT_TRUE(decode_any(frame_of(bytes)).ok()) << name;
  }
}

// Lines of hex between "<!-- hex NAME -->" and "<!-- end -->".
void read_examples(const char* file, std::map<std::string, std::vector<uint8_t>>& examples) {
  std::ifstream in(file);
  std::string line, name;
  while (std::getline(in, line)) {
    if (line.rfind("<!-- hex ", 0) == 0) name = line.substr(9, line.find(" -->") - 9);
    if (line.rfind("<!-- end", 0) == 0) name.clear();
    if (name.empty() || line.empty() || !std::isxdigit(static_cast<unsigned char>(line[0])))
      continue;
    std::stringstream hex(line.substr(0, line.find('|')));
    for (std::string byte; hex >> byte;) {
      examples[name].push_back(static_cast<uint8_t>(std::stoul(byte, nullptr, 16)));
    }
  }
}

TEST(Golden, EveryFrameHasAnExampleInTheDocuments) {
  std::map<std::string, std::vector<uint8_t>> examples, others;
  read_examples(KV_PROTOCOL_FILE, examples);
  read_examples(KV_EXAMPLES_FILE, others);
  const size_t both = examples.size() + others.size();
  examples.merge(others);
  EXPECT_EQ(both, examples.size()) << "a frame has two";
  for (const auto& [name, bytes] : sample_frames()) EXPECT_EQ(examples[name], bytes) << name;
  EXPECT_EQ(examples.size(), sample_frames().size()) << "an example is of no frame";
}

TEST(Decoders, EveryPrefixOfEveryBodyIsATypedError) {
  for (const auto& [name, bytes] : sample_frames()) {
    Frame whole = frame_of(bytes);
    for (size_t n = 0; n < whole.body.size(); ++n) {
      auto prefix = whole.body.span().first(n);
      Status status = decode_any(with_body(whole, {prefix.begin(), prefix.end()}));
      ASSERT_FALSE(status.ok()) << name << " cut at " << n;
      EXPECT_EQ(status.code(), StatusCode::corruption);
    }
    std::vector<uint8_t> longer(whole.body.span().begin(), whole.body.span().end());
    longer.push_back(0);
    EXPECT_FALSE(decode_any(with_body(whole, longer)).ok()) << name << " with a byte too many";
  }
}

// Every single-byte change: an error, or a message that encodes to those very bytes again.
TEST(Decoders, EveryChangedByteIsSafe) {
  size_t refused = 0;
  for (const auto& [name, bytes] : sample_frames()) {
    Frame whole = frame_of(bytes);
    for (size_t at = 0; at < whole.body.size(); ++at) {
      for (int delta : {1, 0x7f, 0x80, 0xff}) {
        std::vector<uint8_t> body(whole.body.span().begin(), whole.body.span().end());
        body[at] = static_cast<uint8_t>(body[at] + delta);
        Status status = decode_any(with_body(whole, body));
        if (!status.ok()) {
          EXPECT_EQ(status.code(), StatusCode::corruption) << name << " at " << at;
          ++refused;
        }
      }
    }
  }
  EXPECT_GT(refused, 1000u);
}

TEST(Decoders, CountsOverTheirLimitAllocateNothing) {
  ByteWriter lookup;
  lookup.u32(0);
  lookup.u32(7);
  lookup.raw(Id{}.bytes);
  lookup.u32(UINT32_MAX);  // tokens
  lookup.u32(0);
  EXPECT_FALSE(
      decode_any({{kProtocolVersion, FrameType::lookup, 1, 0, 0}, Bytes::owning(lookup.take())})
          .ok());
  ByteWriter at_limit;  // a count within the limit whose items aren't there
  at_limit.u32(0);
  at_limit.u32(7);
  at_limit.raw(Id{}.bytes);
  at_limit.u32(kMaxTokens);
  EXPECT_FALSE(
      decode_any({{kProtocolVersion, FrameType::lookup, 1, 0, 0}, Bytes::owning(at_limit.take())})
          .ok());
  ByteWriter stats;
  stats.u32(kMaxStatValues + 1);
  EXPECT_FALSE(
      decode_any({{kProtocolVersion, FrameType::stats_ok, 1, 0, 0}, Bytes::owning(stats.take())})
          .ok());
}

TEST(Decoders, RandomBytesAreSafe) {
  auto frames = sample_frames();
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    auto it = frames.begin();
    std::advance(it, static_cast<long>(random.below(frames.size())));
    Frame frame = frame_of(it->second);
    std::vector<uint8_t> body;
    if (random.coin() && !frame.body.empty()) {  // half: a real body with a few random bytes
      body.assign(frame.body.span().begin(), frame.body.span().end());
      for (int i = 0; i < 4; ++i)
        body[random.below(body.size())] = static_cast<uint8_t>(random.u32());
    } else {
      body = random.bytes(random.below(400));
    }
    Status status = decode_any(with_body(frame, body));
    ASSERT_TRUE(status.ok() || status.code() == StatusCode::corruption) << "seed " << seed;
  }
}

bool same(const Query& a, const Query& b) { return a.tokens == b.tokens && a.extras == b.extras; }
bool same(const CodingReport& a, const CodingReport& b) {
  return a.layer == b.layer && a.part == b.part && a.kind == b.kind &&
         a.requested_k_bits == b.requested_k_bits && a.requested_v_bits == b.requested_v_bits &&
         a.active_k_bits == b.active_k_bits && a.active_v_bits == b.active_v_bits &&
         a.reason == b.reason;
}
bool same(const std::vector<CodingReport>& a, const std::vector<CodingReport>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return same(x, y); });
}
bool same(const Object& a, const Object& b) {
  return a.name == b.name && a.parent == b.parent && a.profile == b.profile && a.ns == b.ns &&
         a.fingerprint == b.fingerprint && a.first_token == b.first_token && a.tokens == b.tokens &&
         a.extras == b.extras && a.planes == b.planes && a.states == b.states;
}

template <typename T>
T round_trip(const T& m) {
  Frame frame = frame_of(flatten(request_frame(FrameType::lookup, 77, 1234, m)));
  uint32_t timeout_ms = 0;
  auto back = decode_request<T>(FrameType::lookup, frame.body.span(), timeout_ms);
  EXPECT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(timeout_ms, 1234u);
  return back.ok() ? std::move(*back) : T{};
}

TEST(RoundTrip, RequestsComeBackEqual) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random r(seed);
    HelloRequest hello{1,           static_cast<uint16_t>(r.u32()), r.u32(), r.text(60),
                       r.text(100), r.text(kMaxTokenBytes)};
    EXPECT_EQ(round_trip(hello), hello);
    OpenRequest open{r.model(), r.coin() ? std::make_shared<const Profile>(r.profile()) : nullptr,
                     r.coin(), r.pick<PrefillMode>(0, 1)};
    auto open2 = round_trip(open);
    EXPECT_TRUE(open2.model == open.model && open2.replace == open.replace &&
                open2.prefill == open.prefill && bool(open2.profile) == bool(open.profile) &&
                (!open.profile || *open2.profile == *open.profile));
    QueryRequest query{r.u32(), r.query(), r.id()};
    auto query2 = round_trip(query);
    EXPECT_TRUE(query2.model == query.model && query2.profile == query.profile &&
                same(query2.query, query.query));
    EraseRequest erase{r.u32(), r.query()};
    auto erase2 = round_trip(erase);
    EXPECT_TRUE(erase2.model == erase.model && same(erase2.query, erase.query));
    ReserveRequest reserve{
        r.u32(), r.id(), r.query(), {r.u32(), r.u32()}, {r.u32(), r.text(kMaxLabelBytes)}};
    auto reserve2 = round_trip(reserve);
    EXPECT_TRUE(reserve2.model == reserve.model && reserve2.profile == reserve.profile &&
                same(reserve2.query, reserve.query) && reserve2.ends == reserve.ends &&
                reserve2.words == reserve.words);
    CommitRequest commit{r.rng(), r.pick<Durability>(0, 3)};
    auto commit2 = round_trip(commit);
    EXPECT_TRUE(commit2.reservation == commit.reservation && commit2.wait_for == commit.wait_for);
    AbortRequest abort{r.rng()};
    EXPECT_EQ(round_trip(abort).reservation, abort.reservation);
    FetchCall fetch{{r.u32(),
                     r.query(),
                     r.pick<FetchForm>(0, 3),
                     r.coin(),
                     r.u32(),
                     r.coin(),
                     r.id(),
                     {r.u32(), {1, 3}, {0, Selection::kToEnd}, {2, 5}},
                     r.rng()},
                    r.rng()};
    auto fetch2 = round_trip(fetch);
    EXPECT_TRUE(fetch2.request.model == fetch.request.model &&
                same(fetch2.request.query, fetch.request.query) &&
                fetch2.request.form == fetch.request.form &&
                fetch2.request.selection == fetch.request.selection &&
                fetch2.request.profile == fetch.request.profile &&
                fetch2.request.wait == fetch.request.wait &&
                fetch2.request.hold == fetch.request.hold &&
                fetch2.request.max_tokens == fetch.request.max_tokens &&
                fetch2.request.round_to_block == fetch.request.round_to_block &&
                fetch2.max_reply_bytes == fetch.max_reply_bytes);
  }
}

TEST(RoundTrip, IntentComesBackEqual) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random r(seed);
    const std::chrono::milliseconds time(r.u32());
    PrefetchRequest prefetch{r.u32(), r.query(), r.id(), r.coin(), r.rng()};
    auto prefetch2 = round_trip(prefetch);
    EXPECT_TRUE(prefetch2.model == prefetch.model && prefetch2.profile == prefetch.profile &&
                prefetch2.wait == prefetch.wait && prefetch2.hold == prefetch.hold &&
                same(prefetch2.query, prefetch.query));
    HoldRequest hold{r.u32(), r.query(), r.id(), time};
    auto hold2 = round_trip(hold);
    EXPECT_TRUE(hold2.model == hold.model && hold2.profile == hold.profile && hold2.time == time &&
                same(hold2.query, hold.query));
    RenewRequest renew{r.rng(), time};
    auto renew2 = round_trip(renew);
    EXPECT_TRUE(renew2.hold == renew.hold && renew2.time == time);
    EXPECT_EQ(round_trip(ReleaseRequest{renew.hold}).hold, renew.hold);
    RetainRequest retain{r.u32(), r.query(), r.id(), time};
    auto retain2 = round_trip(retain);
    EXPECT_TRUE(retain2.model == retain.model && retain2.profile == retain.profile &&
                retain2.time == time && same(retain2.query, retain.query));
    ExpireRequest expire{r.u32(), r.query(), r.id(), r.coin(), std::chrono::seconds(r.u32())};
    auto expire2 = round_trip(expire);
    EXPECT_TRUE(expire2.model == expire.model && expire2.profile == expire.profile &&
                expire2.whole == expire.whole && expire2.time == expire.time &&
                same(expire2.query, expire.query));
    DemoteRequest demote{r.u32(), r.query(), r.id(), r.rng()};
    auto demote2 = round_trip(demote);
    EXPECT_TRUE(demote2.model == demote.model && demote2.profile == demote.profile &&
                demote2.hold == demote.hold && same(demote2.query, demote.query));
    WhyRequest why{r.rng(), static_cast<uint32_t>(1 + r.rng() % kMaxWhyRecords), r.coin(),
                   r.text(kMaxNamespaceBytes), r.query().tokens};
    auto why2 = round_trip(why);
    EXPECT_TRUE(why2.number == why.number && why2.limit == why.limit && why2.ns == why.ns &&
                why2.missed == why.missed && why2.tokens == why.tokens);
    RequestRecord record = sample_record();
    record.missing = r.pick<Missing>(0, 16);
    record.kind = r.pick<RequestKind>(1, 3);
    record.number = r.rng();
    record.reason = r.text(kMaxReasonBytes);
    record.missed_ms = r.u32();
    auto told = round_trip(WhyReply{r.rng(), r.rng(), {record, sample_record()}});
    EXPECT_EQ(told.records, (std::vector<RequestRecord>{record, sample_record()}));
    EXPECT_EQ(round_trip(Cancel{renew.hold}).request, renew.hold);
    RetainReply kept{r.pick<Outcome>(1, 5), r.rng(), time, r.u32(), r.text(30)};
    auto kept2 = round_trip(kept);
    EXPECT_TRUE(kept2.outcome == kept.outcome && kept2.number == kept.number &&
                kept2.time == time && kept2.tokens == kept.tokens && kept2.reason == kept.reason);
    ExpireReply given{r.pick<Outcome>(1, 5), r.rng(), r.text(30)};
    auto given2 = round_trip(given);
    EXPECT_TRUE(given2.outcome == given.outcome && given2.objects == given.objects &&
                given2.reason == given.reason);
  }
}

TEST(RoundTrip, RepliesComeBackEqual) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random r(seed);
    HelloReply hello{
        static_cast<uint16_t>(r.u32()), r.u32(), {}, r.u32(), r.rng(), r.text(60), r.text(100)};
    for (auto& b : hello.boot) b = static_cast<uint8_t>(r.u32());
    EXPECT_EQ(round_trip(hello), hello);
    ErrorReply error{r.pick<StatusCode>(1, 11), r.text(200)};
    EXPECT_EQ(round_trip(error), error);
    OpenReply open{r.u32(),
                   {r.text(20), r.id(), r.id()},
                   std::make_shared<const Profile>(r.profile()),
                   r.reports()};
    auto open2 = round_trip(open);
    EXPECT_TRUE(open2.model == open.model && open2.realm == open.realm && open2.profile &&
                *open2.profile == *open.profile && same(open2.parts, open.parts));
    LookupReply lookup{r.u32(), r.u32(), r.pick<Tier>(0, 3), r.pick<HitForm>(0, 2), r.text(50)};
    auto lookup2 = round_trip(lookup);
    EXPECT_TRUE(lookup2.tokens == lookup.tokens && lookup2.common == lookup.common &&
                lookup2.tier == lookup.tier && lookup2.form == lookup.form &&
                lookup2.reason == lookup.reason);
    ReserveReply reserve{r.rng(), std::vector<Need>(r.below(5))};
    for (auto& n : reserve.needs) {
      n = {r.pick<ObjectKind>(1, 4),
           r.u32(),
           static_cast<uint16_t>(r.u32()),
           r.u32(),
           r.u32(),
           r.coin()};
    }
    auto reserve2 = round_trip(reserve);
    EXPECT_EQ(reserve2.reservation, reserve.reservation);
    ASSERT_EQ(reserve2.needs.size(), reserve.needs.size());
    for (size_t i = 0; i < reserve.needs.size(); ++i) {
      const Need &a = reserve.needs[i], &b = reserve2.needs[i];
      EXPECT_TRUE(a.kind == b.kind && a.block_index == b.block_index && a.group == b.group &&
                  a.first_row == b.first_row && a.end_row == b.end_row && a.required == b.required);
    }
    CommitReply commit{r.pick<Durability>(0, 3),
                       {r.name(), r.name()},
                       {r.name()},
                       {{r.u32(), r.coin(), r.text(30)}, {r.u32(), r.coin(), ""}}};
    auto commit2 = round_trip(commit);
    EXPECT_TRUE(commit2.level == commit.level && commit2.foreign == commit.foreign &&
                commit2.lost == commit.lost && commit2.ends == commit.ends);
    FetchHeader fetch{r.u32(),
                      r.u32(),
                      r.coin(),
                      r.pick<Tier>(0, 3),
                      r.pick<HitForm>(0, 2),
                      r.text(30),
                      static_cast<uint32_t>(r.below(kMaxFetchObjects)),
                      r.rng()};
    EXPECT_EQ(round_trip(fetch), fetch);
    FetchDone done{r.u32()};
    EXPECT_EQ(round_trip(done).objects, done.objects);
    EraseCount erase{r.rng()};
    EXPECT_EQ(round_trip(erase).objects, erase.objects);
    StatsReply stats{{{r.text(20), r.rng()}}, {{r.text(20), r.reports()}}};
    auto stats2 = round_trip(stats);
    EXPECT_EQ(stats2.values, stats.values);
    ASSERT_EQ(stats2.models.size(), 1u);
    EXPECT_TRUE(stats2.models[0].first == stats.models[0].first &&
                same(stats2.models[0].second, stats.models[0].second));
  }
}

TEST(RoundTrip, ObjectsComeBackEqualAndShareOneBuffer) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random r(seed);
    PutRequest put{r.rng(), r.object(), {}};
    for (uint64_t i = r.below(3); i > 0; --i) put.copies.push_back({r.name(), r.u32(), r.u32()});
    Frame frame = frame_of(flatten(put_frame(5, 99, put)));
    uint32_t timeout_ms = 0;
    auto put2 = decode_put(frame.body, timeout_ms);
    ASSERT_TRUE(put2.ok()) << put2.status().to_string();
    EXPECT_EQ(timeout_ms, 99u);
    EXPECT_EQ(put2->reservation, put.reservation);
    EXPECT_TRUE(same(put2->object, put.object));
    ASSERT_EQ(put2->copies.size(), put.copies.size());
    for (size_t i = 0; i < put.copies.size(); ++i) {
      EXPECT_TRUE(put2->copies[i].source == put.copies[i].source &&
                  put2->copies[i].first_row == put.copies[i].first_row &&
                  put2->copies[i].end_row == put.copies[i].end_row);
    }
    for (const auto& plane : put2->object.planes) {
      EXPECT_TRUE(plane.bytes.data() >= frame.body.data() &&
                  plane.bytes.data() + plane.bytes.size() <= frame.body.data() + frame.body.size());
    }
    if (!put2->object.planes.empty()) {
      EXPECT_EQ((put2->object.planes[0].bytes.data() - frame.body.data()) % kPayloadAlignment, 0u);
    }
    FetchedObject fetched{std::make_shared<const Object>(r.object()), r.u32()};
    auto fetched2 = decode_fetch_object(frame_of(flatten(fetch_object_frame(5, fetched))).body);
    ASSERT_TRUE(fetched2.ok());
    EXPECT_EQ(fetched2->end_token, fetched.end_token);
    EXPECT_TRUE(same(*fetched2->object, *fetched.object));
  }
}

// ------------------------------------------------------------------ refusals

template <typename T>
std::string refusal(FrameType type, std::vector<uint8_t> body) {
  uint32_t timeout_ms = 0;
  auto read = decode_request<T>(type, body, timeout_ms);
  EXPECT_EQ(read.status().code(), StatusCode::corruption);
  return read.status().message();
}

std::vector<uint8_t> body_of(std::initializer_list<uint32_t> words) {
  ByteWriter out;
  for (uint32_t w : words) out.u32(w);
  return out.take();
}

TEST(Refusal, NamesTheFieldWhatWasGivenAndTheLimit) {
  EXPECT_EQ(refusal<AbortRequest>(FrameType::abort, {1, 2, 3}),
            "abort: timeout: truncated: 4 bytes expected, 3 left");
  EXPECT_EQ(refusal<AbortRequest>(FrameType::abort, body_of({0, 7})),
            "abort: reservation: truncated: 8 bytes expected, 4 left");
  EXPECT_EQ(refusal<AbortRequest>(FrameType::abort, body_of({0, 7, 0, 1})),
            "abort: 4 bytes after the last field");
  auto commit = body_of({0, 7, 0});
  commit.push_back(9);
  EXPECT_EQ(refusal<CommitRequest>(FrameType::commit, commit),
            "commit: wait_for: 9, expected 0 to 3");
  EXPECT_EQ(refusal<EraseRequest>(FrameType::erase, body_of({0, 7, kMaxTokens + 1})),
            "erase: tokens: 4194305 values, at most 4194304");
  EXPECT_EQ(refusal<EraseRequest>(FrameType::erase, body_of({0, 7, 0, 2, 5, 0, 6, 2000})),
            "erase: extras[1].bytes: 2000 values, at most 1024");
}

TEST(Refusal, NamesFieldsOfAModelAProfileAndAnObject) {
  Random r(3);
  OpenRequest open{r.model(), std::make_shared<const Profile>(r.profile()), false,
                   PrefillMode::exact};
  open.model.layers = {{}, {{PartSpec{}, PartSpec{}}}};
  open.model.layers[1].parts[1].kind = static_cast<PartKind>(9);
  auto body = [](FrameType type, const auto& m) {
    Bytes all = frame_of(flatten(request_frame(type, 1, 0, m))).body;
    return std::vector<uint8_t>(all.data(), all.data() + all.size());
  };
  EXPECT_EQ(refusal<OpenRequest>(FrameType::open, body(FrameType::open, open)),
            "open: model: model: layers[1].parts[1].kind: 9, expected 1 to 7");
  open.model.layers[1].parts[1].kind = PartKind::full;
  Profile profile = *open.profile;
  profile.parts = {{PartCoding{}}};
  profile.parts[0][0].v_bits = 5;
  open.profile = std::make_shared<const Profile>(profile);
  EXPECT_EQ(refusal<OpenRequest>(FrameType::open, body(FrameType::open, open)),
            "open: profile: profile: layers[0].parts[0].v_bits: 5, expected 0, 1, 2, 3, 4 or 8");
  PutRequest put{1, r.object(), {}};
  put.object.planes.resize(1);
  put.object.states.clear();
  put.object.planes[0].dim = 0;
  uint32_t timeout_ms = 0;
  auto read = decode_put(frame_of(flatten(put_frame(1, 0, put))).body, timeout_ms);
  EXPECT_EQ(read.status().message(), "object header: planes[0].dim: 0, expected 1 to 65536");
  put.copies.resize(2);
  put.copies[1].source.kind = static_cast<ObjectKind>(0);
  read = decode_put(frame_of(flatten(put_frame(1, 0, put))).body, timeout_ms);
  EXPECT_EQ(read.status().message(), "put: copies[1].source.kind: 0, expected 1 to 4");
}

TEST(Error, LongTextsAreCut) {
  Status status(StatusCode::io_error, std::string(100'000, 'x'));
  auto frame = frame_of(flatten(error_frame(3, status)));
  auto error = decode_reply<ErrorReply>(FrameType::error, frame.body.span());
  ASSERT_TRUE(error.ok());
  EXPECT_EQ(error->message.size(), kMaxMessageBytes);
  EXPECT_LE(frame.header.length, kMaxHelloBytes) << "an error may come before the hello";
}

TEST(RequestWords, EachTierThatServedIsNamed) {
  RequestRecord r = testing::sample_record();
  EXPECT_EQ(words(r, r.at_ms)[0],
            "served: 1,536 of 4,096 tokens (37 %), 1,024 from RAM, 256 from SSD and 256 from the "
            "shared tier");
  r.ssd_tokens = 0;
  EXPECT_EQ(words(r, r.at_ms)[0],
            "served: 1,280 of 4,096 tokens (31 %), 1,024 from RAM and 256 from the shared tier");
  r.ram_tokens = 0;
  EXPECT_EQ(words(r, r.at_ms)[0], "served: 256 of 4,096 tokens (6 %) from the shared tier");
}

}  // namespace
}  // namespace kv
