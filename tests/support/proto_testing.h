// Shared by the tests of frames and messages: fixed samples of every frame, and random messages.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "proto/memory_message.h"
#include "proto/message.h"
#include "proto/segment_message.h"

namespace kv::testing {

inline std::vector<uint8_t> flatten(const OutFrame& frame) {
  std::vector<uint8_t> out = frame.head;
  for (const auto& p : frame.pieces) out.insert(out.end(), p.span().begin(), p.span().end());
  return out;
}

inline Id id_of(uint8_t n) {
  Id id;
  for (size_t i = 0; i < id.bytes.size(); ++i) id.bytes[i] = static_cast<uint8_t>(n + i);
  return id;
}

/// Values of one seed; every field that has a range gets all of it.
class Random {
 public:
  explicit Random(uint64_t seed) : rng(seed) {}
  uint64_t below(uint64_t n) { return std::uniform_int_distribution<uint64_t>(0, n - 1)(rng); }
  template <typename E>
  E pick(int first, int last) {
    return static_cast<E>(first + static_cast<int>(below(static_cast<uint64_t>(last - first + 1))));
  }
  uint32_t u32() { return static_cast<uint32_t>(rng()); }
  bool coin() { return below(2) == 1; }
  std::vector<uint8_t> bytes(size_t n) {
    std::vector<uint8_t> out(n);
    for (auto& b : out) b = static_cast<uint8_t>(rng());
    return out;
  }
  std::string text(size_t max) {
    std::string s(below(max + 1), ' ');
    for (auto& c : s) c = static_cast<char>(rng());
    return s;
  }
  Id id() {
    Id id;
    for (auto& b : id.bytes) b = static_cast<uint8_t>(rng());
    return id;
  }
  Query query() {
    Query q;
    q.tokens.resize(below(200));
    for (auto& t : q.tokens) t = static_cast<Token>(rng());
    q.extras.resize(below(4));
    for (auto& e : q.extras) e = {u32(), bytes(below(40))};
    return q;
  }
  ObjectName name() {
    return {pick<ObjectKind>(1, 4), id(), static_cast<uint16_t>(rng()), u32(), u32()};
  }
  std::vector<CodingReport> reports() {
    std::vector<CodingReport> out(below(5));
    for (auto& r : out) {
      r = {static_cast<uint16_t>(rng()),
           static_cast<uint16_t>(rng()),
           pick<PartKind>(1, 7),
           4,
           3,
           static_cast<uint8_t>(below(9)),
           0,
           text(30)};
    }
    return out;
  }
  ModelSpec model() {
    ModelSpec m;
    m.name = text(20);
    m.fingerprint = id();
    m.layers.resize(1 + below(4));
    for (auto& layer : m.layers) {
      layer.parts.resize(below(3));
      for (auto& p : layer.parts) {
        p = {pick<PartKind>(1, 7),
             pick<DType>(1, 3),
             u32(),
             u32(),
             u32(),
             u32(),
             u32(),
             u32(),
             u32(),
             coin(),
             pick<SnapshotPlace>(0, 1),
             text(10)};
      }
    }
    return m;
  }
  Profile profile() {
    Profile p;
    p.block_tokens = 1 + static_cast<uint32_t>(below(kMaxBlockTokens));
    p.prefill = pick<PrefillMode>(0, 1);
    p.raw_dtype = pick<DType>(1, 3);
    p.rotation_seed = rng();
    p.exact_tokens = u32();
    p.parts.resize(1 + below(3));
    for (auto& layer : p.parts) {
      layer.resize(below(3));
      for (auto& c : layer) {
        c.k_bits = coin() ? 4 : 8;
        c.v_bits = coin() ? 0 : 3;
        c.key_mean.assign(below(6), 0.25f);
        c.key_gain.assign(below(6), 2.0f);
      }
    }
    return p;
  }
  Object object() {
    Object o;
    o.name = name();
    o.parent = id();
    o.profile = id();
    o.ns = text(10);
    o.fingerprint = id();
    o.first_token = 256 * static_cast<uint32_t>(below(100));
    o.tokens.resize(below(64));
    for (auto& t : o.tokens) t = static_cast<Token>(rng());
    o.extras.resize(below(3));
    for (auto& e : o.extras) e = {u32(), bytes(below(9))};
    o.planes.resize(below(4));
    for (auto& p : o.planes) {
      p.layer = static_cast<uint16_t>(below(30));
      p.side = pick<Side>(0, 2);
      p.dtype = pick<DType>(1, 3);
      p.bits = coin() ? 4 : 0;
      p.heads = 1 + static_cast<uint32_t>(below(3));
      p.dim = 8 * (1 + static_cast<uint32_t>(below(4)));
      p.first_row = static_cast<uint32_t>(below(1000));
      p.runs = {{RunForm::exact, 1 + static_cast<uint32_t>(below(5))}};
      if (p.bits != 0) p.runs.push_back({RunForm::codes, 1 + static_cast<uint32_t>(below(9))});
      p.bytes = Bytes::owning(bytes(plane_bytes(p)));
    }
    o.states.resize(below(3));
    for (auto& s : o.states) s = {1, 2, Bytes::owning(bytes(below(50)))};
    return o;
  }
  std::mt19937_64 rng;
};

inline ModelSpec sample_model() {
  ModelSpec m;
  m.name = "sample";
  m.fingerprint = id_of(1);
  PartSpec part;
  part.heads = 1;
  part.k_dim = part.v_dim = 8;
  m.layers.push_back({{part}});
  return m;
}

inline Profile sample_profile() {
  Profile p;
  p.block_tokens = 4;
  p.exact_tokens = 2;
  p.requested_k_bits = p.requested_v_bits = 4;
  PartCoding coding;
  coding.k_bits = coding.v_bits = 4;
  coding.key_mean = {0, 0.5, 0, 0, 0, 0, 0, 0};
  coding.key_gain = {1, 1, 1, 2, 1, 1, 1, 1};
  p.parts = {{coding}};
  return p;
}

inline Object sample_object() {
  Object o;
  o.name.kind = ObjectKind::tail;
  o.name.id = id_of(2);
  o.parent = id_of(3);
  o.profile = id_of(4);
  o.ns = "tenant";
  o.fingerprint = id_of(1);
  o.first_token = 4;
  o.tokens = {11, -12, 13};
  o.extras = {{5, {0xaa, 0xbb}}};
  Plane k;
  k.heads = 1;
  k.dim = 8;
  k.first_row = 4;
  k.bits = 4;
  k.runs = {{RunForm::codes, 2}, {RunForm::exact, 1}};
  std::vector<uint8_t> bytes(plane_bytes(k));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  k.bytes = Bytes::owning(bytes);
  o.planes = {k};
  o.states = {{0, 0, Bytes::owning({7, 8, 9})}};
  return o;
}

/// One fixed frame of every type, by name: tests/golden/proto/NAME.bin.
/// A block that lies in segment 3, one that is known, and a streamed one.
inline MappedReply sample_mapped_reply() {
  MappedReply m;
  m.tokens = 6;
  m.common = 7;
  m.tier = Tier::ram;
  m.form = HitForm::coded;
  m.lease = 5;
  m.lease_ms = 600'000;
  m.streamed_bytes = 300;
  ByteWriter header;
  encode_header(sample_object(), header);
  m.objects = {{ObjectPlace::mapped, 2, 9, 3, 8192, 1, header.take()},
               {ObjectPlace::known, 4, 8, 0, 0, 0, {}},
               {ObjectPlace::streamed, 6, 0, 0, 0, 0, {}}};
  return m;
}

inline void add_memory_frames(std::map<std::string, OutFrame>& frames) {
  using T = FrameType;
  PutFrom put{{42, sample_object(), {}}, 1, {{4096, 8, 256, 2}}};
  uint64_t bytes = 0;
  for (const Plane& p : put.put.object.planes) bytes += p.bytes.size();
  for (const StateBlob& s : put.put.object.states) bytes += s.bytes.size();
  put.runs.push_back({65536, bytes - bytes_of(put.runs), 0, 1});
  frames["memory"] = request_frame(T::memory, 18, 100, MemoryOffer{1});
  frames["memory_ok"] = reply_frame(T::memory_ok, 18, MemoryReply{1 << 20});
  frames["memory_ended"] = reply_frame(T::memory_ended, 0, MemoryEnded{1});
  frames["put_from"] = put_from_frame(19, 100, put);
  frames["put_from_ok"] = reply_frame(T::put_from_ok, 19, Empty{});
  FetchRequest held;
  held.model = 7;
  held.profile = id_of(4);
  held.form = FetchForm::f16;
  held.hold = 11;
  const FetchInto into{1, {{4096, 1024, 4096, 2}, {65536, 500, 0, 1}}, {held, 1 << 30}};
  frames["fetch_into"] = request_frame(T::fetch_into, 23, 100, into);
  frames["fetch_placed"] =
      fetch_placed_frame(23, {std::make_shared<const Object>(sample_object()), 6});
}

inline RequestRecord sample_record() {
  RequestRecord r;
  r.number = 42;
  r.at_ms = 1'764'313'200'500;
  r.ns = "chat";
  r.model = "tiny";
  r.fingerprint = id_of(1);
  r.profile = id_of(2);
  r.block_tokens = 256;
  r.asked = 4097;
  r.ram_tokens = 1024;
  r.ssd_tokens = 256;
  r.remote_tokens = 256;
  r.common = r.missing_from = 1536;
  r.end = 1503;
  r.label = "system";
  r.missing = Missing::evicted_ssd;
  r.since_ms = 1'764'313'000'000;
  r.total_us = 2500;
  r.read_us = 1900;
  r.saved_ms = 620;
  r.missed_ms = 1030;
  return r;
}

inline void add_hold_frames(const Query& query, std::map<std::string, OutFrame>& frames) {
  using T = FrameType;
  const std::chrono::milliseconds time(30'000);
  frames["hold"] = request_frame(T::hold, 15, 100, HoldRequest{7, query, id_of(4), time});
  frames["hold_ok"] = reply_frame(
      T::hold_ok, 15, HoldReply{11, time, {3, 4, Tier::ssd, HitForm::coded, "a carry is missing"}});
  frames["renew"] = request_frame(T::renew, 16, 100, RenewRequest{11, time});
  frames["renew_ok"] = reply_frame(T::renew_ok, 16, RenewReply{time});
  frames["release"] = request_frame(T::release, 17, 100, ReleaseRequest{11});
  frames["release_ok"] = reply_frame(T::release_ok, 17, Empty{});
  frames["demote"] = request_frame(T::demote, 18, 100, DemoteRequest{7, {}, id_of(4), 11});
  frames["demote_ok"] =
      reply_frame(T::demote_ok, 18, DemoteReply{Outcome::clipped, 3, "1 of 4 objects stay"});
  frames["retain"] = request_frame(T::retain, 20, 100, RetainRequest{7, query, id_of(4), time});
  frames["retain_ok"] =
      reply_frame(T::retain_ok, 20, RetainReply{Outcome::clipped, 13, time, 3, "held bytes"});
  frames["expire"] = request_frame(
      T::expire, 21, 100, ExpireRequest{7, query, id_of(4), true, std::chrono::seconds(3600)});
  frames["expire_ok"] = reply_frame(T::expire_ok, 21, ExpireReply{Outcome::accepted, 5, ""});
  WhyRequest why{0, 8, true, "chat", {}};
  frames["why"] = request_frame(T::why, 22, 100, why);
  frames["why_ok"] = reply_frame(T::why_ok, 22, WhyReply{42, 512, {sample_record()}});
  frames["cancel"] = reply_frame(T::cancel, 0, Cancel{10});
}

inline std::map<std::string, std::vector<uint8_t>> sample_frames() {
  using T = FrameType;
  Query query{{1, 2, 3, 70000}, {{2, {0xde, 0xad}}}};
  ObjectName name{ObjectKind::supplement, id_of(5), 1, 16, 32};
  CodingReport report{3, 1, PartKind::latent, 4, 4, 0, 0, "latent: never coded"};
  auto profile = std::make_shared<const Profile>(sample_profile());
  std::map<std::string, OutFrame> frames;
  frames["hello"] = reply_frame(
      T::hello, 1, HelloRequest{2, 2, 0, "tenant", "engine 1.0", "a secret of 24 bytes ..."});
  BootToken boot;
  for (uint8_t i = 0; i < boot.size(); ++i) boot[i] = static_cast<uint8_t>(0xb0 + i);
  frames["hello_ok"] =
      reply_frame(T::hello_ok, 1, HelloReply{2, 0, boot, 16, 1 << 20, "tenant", "cachesvc 0.1.0"});
  frames["error"] = reply_frame(T::error, 9, ErrorReply{StatusCode::busy, "no room"});
  frames["open"] = request_frame(T::open, 2, 5000,
                                 OpenRequest{sample_model(), profile, true, PrefillMode::exact});
  frames["open_ok"] =
      reply_frame(T::open_ok, 2, OpenReply{7, {"tenant", id_of(1), id_of(4)}, profile, {report}});
  frames["lookup"] = request_frame(T::lookup, 3, 100, QueryRequest{7, query, id_of(4)});
  frames["lookup_ok"] = reply_frame(
      T::lookup_ok, 3, LookupReply{3, 4, Tier::mixed, HitForm::exact_tail, "a carry is missing"});
  frames["prefetch"] =
      request_frame(T::prefetch, 4, 100, PrefetchRequest{7, {}, id_of(4), true, 11});
  frames["prefetch_ok"] =
      reply_frame(T::prefetch_ok, 4, LookupReply{3, 3, Tier::ssd, HitForm::coded, ""});
  frames["reserve"] = request_frame(T::reserve, 5, 100,
                                    ReserveRequest{7, id_of(4), query, {2, 4}, {1500, "chat 17"}});
  frames["reserve_ok"] = reply_frame(T::reserve_ok, 5,
                                     ReserveReply{42,
                                                  {{ObjectKind::block, 0, 0, 0, 4, true},
                                                   {ObjectKind::supplement, 1, 2, 5, 8, false}}});
  frames["put"] = put_frame(6, 100, PutRequest{42, sample_object(), {{name, 16, 20}}});
  frames["put_ok"] = reply_frame(T::put_ok, 6, Empty{});
  frames["commit"] = request_frame(T::commit, 7, 100, CommitRequest{42, Durability::spilled});
  frames["commit_ok"] = reply_frame(
      T::commit_ok, 7,
      CommitReply{Durability::spilled, {name}, {name, name}, {{2, true, ""}, {4, false, "gone"}}});
  frames["abort"] = request_frame(T::abort, 8, 100, AbortRequest{42});
  frames["abort_ok"] = reply_frame(T::abort_ok, 8, Empty{});
  FetchRequest fetch{7,    query, FetchForm::f16, false,
                     1000, true,  id_of(4),       {256, {0, 2}, {}, {1, 3}}};
  frames["fetch"] = request_frame(T::fetch, 10, 100, FetchCall{fetch, 1 << 30});
  frames["fetch_header"] =
      reply_frame(T::fetch_header, 10,
                  FetchHeader{3, 4, false, Tier::ram, HitForm::coded, "tail gone", 1, 300});
  frames["fetch_object"] =
      fetch_object_frame(10, FetchedObject{std::make_shared<const Object>(sample_object()), 6});
  frames["fetch_done"] = reply_frame(T::fetch_done, 10, FetchDone{1});
  frames["erase"] = request_frame(T::erase, 11, 100, EraseRequest{7, {}});
  frames["erase_ok"] = reply_frame(T::erase_ok, 11, EraseCount{12});
  frames["erase_entry"] = request_frame(T::erase_entry, 13, 100, QueryRequest{7, query, id_of(4)});
  frames["erase_entry_ok"] = reply_frame(T::erase_entry_ok, 13, EraseCount{3});
  add_hold_frames(query, frames);
  add_memory_frames(frames);
  frames["stats"] = request_frame(T::stats, 12, 100, Empty{});
  frames["stats_ok"] = reply_frame(
      T::stats_ok, 12, StatsReply{{{"lookups", 5}, {"busy", 0}}, {{"sample", {report}}}});
  frames["fetch_mapped"] = request_frame(T::fetch_mapped, 14, 100, FetchCall{fetch, 1 << 30});
  frames["fetch_mapped_ok"] = reply_frame(T::fetch_mapped_ok, 14, sample_mapped_reply());
  frames["segment"] = reply_frame(T::segment, 0, SegmentAnnounced{3, 2 << 20, 4096});
  frames["segment_revoked"] = reply_frame(T::segment_revoked, 0, SegmentRevoked{3});
  frames["segment_unmapped"] = reply_frame(T::segment_unmapped, 0, SegmentUnmapped{3});
  frames["leases_ended"] = reply_frame(T::leases_ended, 0, LeasesEnded{{5, 6}});
  std::map<std::string, std::vector<uint8_t>> out;
  for (const auto& [key, frame] : frames) out[key] = flatten(frame);
  return out;
}

/// Bytes that lie elsewhere into the parser, as many as it takes. Returns: how many.
inline Result<size_t> feed(FrameParser& parser, std::span<const uint8_t> bytes) {
  size_t taken = 0;
  if (!parser.error().ok()) return parser.error();
  while (taken < bytes.size()) {
    const auto to = parser.prepare();
    if (to.empty()) break;
    const size_t n = std::min(to.size(), bytes.size() - taken);
    std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(taken), n, to.begin());
    taken += n;
    KV_RETURN_IF_ERROR(parser.commit(n));
  }
  return taken;
}

/// Decodes the body of a frame that names or answers a hold.
inline Status decode_hold_frame(const Frame& frame) {
  using T = FrameType;
  uint32_t ms = 0;
  auto body = frame.body.span();
  switch (frame.header.type) {
    case T::prefetch:
      return decode_request<PrefetchRequest>(T::prefetch, body, ms).status();
    case T::hold:
      return decode_request<HoldRequest>(T::hold, body, ms).status();
    case T::hold_ok:
      return decode_reply<HoldReply>(T::hold_ok, body).status();
    case T::renew:
      return decode_request<RenewRequest>(T::renew, body, ms).status();
    case T::renew_ok:
      return decode_reply<RenewReply>(T::renew_ok, body).status();
    case T::release:
      return decode_request<ReleaseRequest>(T::release, body, ms).status();
    case T::demote:
      return decode_request<DemoteRequest>(T::demote, body, ms).status();
    case T::demote_ok:
      return decode_reply<DemoteReply>(T::demote_ok, body).status();
    case T::retain:
      return decode_request<RetainRequest>(T::retain, body, ms).status();
    case T::retain_ok:
      return decode_reply<RetainReply>(T::retain_ok, body).status();
    case T::expire:
      return decode_request<ExpireRequest>(T::expire, body, ms).status();
    case T::expire_ok:
      return decode_reply<ExpireReply>(T::expire_ok, body).status();
    case T::why:
      return decode_request<WhyRequest>(T::why, body, ms).status();
    case T::why_ok:
      return decode_reply<WhyReply>(T::why_ok, body).status();
    case T::cancel:
      return decode_reply<Cancel>(T::cancel, body).status();
    default:
      return unsupported("a frame of another kind");
  }
}

/// Decodes the body of a frame about a client's own memory.
inline Status decode_memory_frame(const Frame& frame) {
  using T = FrameType;
  uint32_t ms = 0;
  auto body = frame.body.span();
  switch (frame.header.type) {
    case T::memory:
      return decode_request<MemoryOffer>(T::memory, body, ms).status();
    case T::memory_ok:
      return decode_reply<MemoryReply>(T::memory_ok, body).status();
    case T::memory_ended:
      return decode_reply<MemoryEnded>(T::memory_ended, body).status();
    case T::put_from:
      return decode_put_from(body, ms).status();
    case T::fetch_into:
      return decode_request<FetchInto>(T::fetch_into, body, ms).status();
    case T::fetch_placed:
      return decode_fetch_placed(body).status();
    default:
      return decode_hold_frame(frame);
  }
}

/// Decodes a frame's body by its type, as a peer would. Returns: corruption, or ok.
inline Status decode_any(const Frame& frame) {
  using T = FrameType;
  uint32_t ms = 0;
  auto body = frame.body.span();
  switch (frame.header.type) {
    case T::hello:
      return decode_reply<HelloRequest>(T::hello, body).status();
    case T::hello_ok:
      return decode_reply<HelloReply>(T::hello_ok, body).status();
    case T::error:
      return decode_reply<ErrorReply>(T::error, body).status();
    case T::open:
      return decode_request<OpenRequest>(T::open, body, ms).status();
    case T::open_ok:
      return decode_reply<OpenReply>(T::open_ok, body).status();
    case T::lookup:
    case T::erase_entry:
      return decode_request<QueryRequest>(frame.header.type, body, ms).status();
    case T::erase:
      return decode_request<EraseRequest>(T::erase, body, ms).status();
    case T::lookup_ok:
    case T::prefetch_ok:
      return decode_reply<LookupReply>(frame.header.type, body).status();
    case T::reserve:
      return decode_request<ReserveRequest>(T::reserve, body, ms).status();
    case T::reserve_ok:
      return decode_reply<ReserveReply>(T::reserve_ok, body).status();
    case T::put:
      return decode_put(frame.body, ms).status();
    case T::put_ok:
    case T::put_from_ok:
    case T::abort_ok:
    case T::release_ok:
      return decode_reply<Empty>(frame.header.type, body).status();
    case T::commit:
      return decode_request<CommitRequest>(T::commit, body, ms).status();
    case T::commit_ok:
      return decode_reply<CommitReply>(T::commit_ok, body).status();
    case T::abort:
      return decode_request<AbortRequest>(T::abort, body, ms).status();
    case T::fetch:
    case T::fetch_mapped:
      return decode_request<FetchCall>(frame.header.type, body, ms).status();
    case T::fetch_mapped_ok:
      return decode_reply<MappedReply>(T::fetch_mapped_ok, body).status();
    case T::segment:
      return decode_reply<SegmentAnnounced>(T::segment, body).status();
    case T::segment_revoked:
      return decode_reply<SegmentRevoked>(T::segment_revoked, body).status();
    case T::segment_unmapped:
      return decode_reply<SegmentUnmapped>(T::segment_unmapped, body).status();
    case T::leases_ended:
      return decode_reply<LeasesEnded>(T::leases_ended, body).status();
    case T::fetch_header:
      return decode_reply<FetchHeader>(T::fetch_header, body).status();
    case T::fetch_object:
      return decode_fetch_object(frame.body).status();
    case T::fetch_done:
      return decode_reply<FetchDone>(T::fetch_done, body).status();
    case T::erase_ok:
    case T::erase_entry_ok:
      return decode_reply<EraseCount>(frame.header.type, body).status();
    case T::stats:
      return decode_request<Empty>(T::stats, body, ms).status();
    case T::stats_ok:
      return decode_reply<StatsReply>(T::stats_ok, body).status();
    default:
      return decode_memory_frame(frame);
  }
}

}  // namespace kv::testing
