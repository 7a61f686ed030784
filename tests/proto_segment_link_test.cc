// A client's end of shared pools against services that lie: descriptors too many, of the wrong kind
// or none, places outside of their segment. Whatever comes, no descriptor and no mapping stays.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "proto/segment_link.h"
#include "tests/support/proto_testing.h"

namespace kv {
namespace {

using testing::flatten;

constexpr uint64_t kBytes = 64u << 10;

// A descriptor of this size; `seals` 0: none.
class Memory {
 public:
  explicit Memory(uint64_t bytes = kBytes, int seals = F_SEAL_SHRINK | F_SEAL_GROW)
      : fd_(::memfd_create("a segment", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    KV_CHECK(fd_ >= 0 && ::ftruncate(fd_, static_cast<off_t>(bytes)) == 0);
    if (seals != 0) KV_CHECK(::fcntl(fd_, F_ADD_SEALS, seals) == 0);
  }
  ~Memory() { ::close(fd_); }
  Memory(const Memory&) = delete;  // owns the descriptor
  Memory& operator=(const Memory&) = delete;
  int fd() const { return fd_; }
  void write(uint64_t at, const void* bytes, size_t size) const {
    KV_CHECK(::pwrite(fd_, bytes, size, static_cast<off_t>(at)) == static_cast<ssize_t>(size));
  }

 private:
  const int fd_;
};

size_t open_files() {
  size_t n = 0;
  for (const auto& e : std::filesystem::directory_iterator("/proc/self/fd")) {
    n += !e.path().empty();
  }
  return n;
}

// A service's end of a connection whose other end is a link.
class Peer {
 public:
  Peer() {
    KV_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds_) == 0);
    parser_.set_greeted(true);
    link_.enable();
  }
  ~Peer() {
    ::close(fds_[0]);
    ::close(fds_[1]);
  }
  Peer(const Peer&) = delete;  // owns the descriptors
  Peer& operator=(const Peer&) = delete;

  void send(const std::vector<uint8_t>& bytes, const std::vector<int>& descriptors = {}) {
    iovec piece{const_cast<uint8_t*>(bytes.data()), bytes.size()};
    std::vector<char> control(CMSG_SPACE(descriptors.size() * sizeof(int)));
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
      std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
    }
    KV_CHECK(::sendmsg(fds_[0], &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
  }
  void announce(uint32_t segment, const std::vector<int>& descriptors, uint64_t bytes = kBytes) {
    send(flatten(reply_frame(FrameType::segment, 0, SegmentAnnounced{segment, bytes, 4096})),
         descriptors);
  }
  // What the link says of all that was sent.
  Status take() {
    while (true) {
      auto to = parser_.prepare();
      const ssize_t n = link_.receive(fds_[1], to);
      if (n < 0 && errno == EAGAIN) return {};
      if (n <= 0) return {StatusCode::unavailable, std::strerror(errno)};
      KV_RETURN_IF_ERROR(parser_.commit(static_cast<size_t>(n)));
      while (auto frame = parser_.next()) KV_RETURN_IF_ERROR(link_.take(*frame));
    }
  }
  SegmentLink& link() { return link_; }

 private:
  int fds_[2];
  FrameParser parser_;
  SegmentLink link_;
};

TEST(SegmentLink, TakesSegmentsInTheOrderOfTheirDescriptors) {
  const size_t before = open_files();
  {
    Memory a, b(2 * kBytes);
    Peer peer;
    peer.announce(1, {a.fd()});
    peer.announce(2, {b.fd()}, 2 * kBytes);
    ASSERT_TRUE(peer.take().ok()) << peer.take().to_string();
    EXPECT_EQ(peer.link().map().segments(), 2u);
    EXPECT_EQ(open_files(), before + 4) << "two of ours and the sockets";
    peer.send(flatten(reply_frame(FrameType::segment_revoked, 0, SegmentRevoked{1})));
    ASSERT_TRUE(peer.take().ok());
    EXPECT_EQ(peer.link().owed(),
              flatten(reply_frame(FrameType::segment_unmapped, 0, SegmentUnmapped{1})));
    EXPECT_TRUE(peer.link().owed().empty()) << "said once";
  }
  EXPECT_EQ(open_files(), before);
}

struct SegmentLie {
  const char* name;
  std::function<void(Peer&)> tell;
  StatusCode code = StatusCode::corruption;
};

std::vector<SegmentLie> segment_lies() {
  auto announce = [](uint64_t bytes, std::shared_ptr<Memory> memory) {
    return [bytes, memory](Peer& p) { p.announce(1, {memory->fd()}, bytes); };
  };
  return {
      {"no descriptor", [](Peer& p) { p.announce(1, {}); }},
      {"too many",
       [m = std::make_shared<Memory>()](Peer& p) { p.announce(1, std::vector<int>(9, m->fd())); },
       StatusCode::unavailable},
      {"too many in several messages",
       [m = std::make_shared<Memory>()](Peer& p) {
         for (uint32_t i = 1; i < 4; ++i) p.announce(i, std::vector<int>(5, m->fd()));
       },
       StatusCode::unavailable},
      {"longer than said", announce(kBytes, std::make_shared<Memory>(2 * kBytes))},
      {"shorter than said", announce(2 * kBytes, std::make_shared<Memory>())},
      {"without seals", announce(kBytes, std::make_shared<Memory>(kBytes, 0))},
      {"it may shrink", announce(kBytes, std::make_shared<Memory>(kBytes, F_SEAL_GROW))},
      {"a socket",
       [](Peer& p) {
         const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
         p.announce(1, {fd});
         ::close(fd);
       }},
      {"a file",
       [](Peer& p) {
         const std::string path = ::testing::TempDir() + "kv_no_memfd";
         const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
         KV_CHECK(::ftruncate(fd, kBytes) == 0);
         p.announce(1, {fd});
         ::close(fd);
         std::filesystem::remove(path);
       }},
      {"one twice",
       [m = std::make_shared<Memory>()](Peer& p) {
         p.announce(1, {m->fd()});
         p.announce(1, {m->fd()});
       }},
      {"under a request's id",
       [m = std::make_shared<Memory>()](Peer& p) {
         p.send(flatten(reply_frame(FrameType::segment, 7, SegmentAnnounced{1, kBytes, 4096})),
                {m->fd()});
       }},
  };
}

TEST(SegmentLink, LiesAreErrorsAndLeaveNothingOpen) {
  for (const SegmentLie& lie : segment_lies()) {
    SCOPED_TRACE(lie.name);
    const size_t before = open_files();
    {
      Peer peer;
      lie.tell(peer);
      EXPECT_EQ(peer.take().code(), lie.code);
    }
    EXPECT_EQ(open_files(), before);
  }
}

template <typename T>
T round_trip(FrameType type, const T& m) {
  ByteWriter body;
  encode(m, body);
  auto back = decode_reply<T>(type, body.span());
  EXPECT_TRUE(back.ok()) << back.status().to_string();
  return back.ok() ? *back : T{};
}

TEST(SegmentMessages, ComeBackEqual) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    testing::Random r(seed);
    MappedReply m;
    m.tokens = r.u32();
    m.common = r.u32();
    m.pending = r.coin();
    m.tier = r.pick<Tier>(0, 3);
    m.form = r.pick<HitForm>(0, 2);
    m.reason = r.text(40);
    m.lease = r.rng();
    m.lease_ms = r.u32();
    m.streamed_bytes = r.rng();
    for (uint64_t i = r.below(5); i > 0; --i) {
      MappedObject& o = m.objects.emplace_back();
      o.place = r.pick<ObjectPlace>(0, 2);
      o.end_token = r.u32();
      if (o.place == ObjectPlace::streamed) continue;
      o.number = 1 + r.u32();
      if (o.place == ObjectPlace::known) continue;
      o.segment = 1 + r.u32() / 2;
      o.offset = r.rng();
      o.generation = r.rng();
      o.header = r.bytes(r.below(100));
    }
    EXPECT_EQ(round_trip(FrameType::fetch_mapped_ok, m), m);
    LeasesEnded ended{{r.rng(), r.rng()}};
    EXPECT_EQ(round_trip(FrameType::leases_ended, ended), ended);
    SegmentAnnounced segment{1 + r.u32() / 2, 4096 + r.u32(), 1 + r.u32() / 2};
    EXPECT_EQ(round_trip(FrameType::segment, segment), segment);
  }
}

// ------------------------------------------------------------------ places

// A reply that names the sample object at `offset` of segment 3.
MappedReply one_object(uint64_t offset, uint64_t number = 1, uint32_t segment = 3) {
  MappedReply m = testing::sample_mapped_reply();
  m.objects.resize(1);
  m.objects[0].number = number;
  m.objects[0].segment = segment;
  m.objects[0].offset = offset;
  return m;
}

TEST(SegmentMap, APlaceIsReadAndChecked) {
  Memory memory;
  const uint64_t generation = 1;
  memory.write(8 * 2, &generation, sizeof(generation));  // page 2's
  const char mark = 'x';
  memory.write(8192, &mark, 1);
  SegmentMap map;
  ASSERT_TRUE(map.add({3, kBytes, 4096}, memory.fd()).ok());
  auto taken = map.take(one_object(8192), {});
  ASSERT_TRUE(taken.ok()) << taken.status().to_string();
  const Object& object = *taken->prefix.objects[0].object;
  EXPECT_EQ(object.planes[0].bytes.data()[0], 'x');
  EXPECT_TRUE(taken->lease->valid());
  const uint64_t later = 2;
  memory.write(8 * 2, &later, sizeof(later));
  EXPECT_FALSE(taken->lease->valid());
  MappedReply known = one_object(8192);
  known.objects[0] = {ObjectPlace::known, 6, 1, 0, 0, 0, {}};
  auto again = map.take(known, {});
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(again->prefix.objects[0].object.get(), &object);
  EXPECT_EQ(again->prefix.objects[0].end_token, 6u);
}

TEST(SegmentMap, PlacesThatCannotBe) {
  Memory memory;
  SegmentMap map;
  ASSERT_TRUE(map.add({3, kBytes, 4096}, memory.fd()).ok());
  std::map<std::string, MappedReply> wrong{
      {"in the middle of a page", one_object(8192 + 64)},
      {"past the end", one_object(kBytes)},
      {"over the end", one_object(UINT64_MAX - 4095)},
      {"over its own generation", one_object(0)},
      {"in a segment that nobody announced", one_object(8192, 1, 4)},
  };
  wrong["without a lease"] = one_object(8192);
  wrong["without a lease"].lease = 0;
  wrong["an unknown number"] = one_object(8192);
  wrong["an unknown number"].objects[0] = {ObjectPlace::known, 6, 5, 0, 0, 0, {}};
  wrong["a header and more"] = one_object(8192);
  wrong["a header and more"].objects[0].header.push_back(0);
  wrong["a longer object than the segment"] = one_object(8192);
  Object large = testing::sample_object();
  for (Plane& p : large.planes) p.heads = 60'000;
  ByteWriter header;
  encode_header(large, header);
  wrong["a longer object than the segment"].objects[0].header = header.take();
  for (const auto& [name, reply] : wrong) {
    SCOPED_TRACE(name);
    EXPECT_EQ(map.take(reply, {}).status().code(), StatusCode::corruption);
  }
}

// Both sides keep the newest numbers.
TEST(SegmentMap, OldNumbersGo) {
  Memory memory;
  SegmentMap map;
  ASSERT_TRUE(map.add({3, kBytes, 4096}, memory.fd()).ok());
  for (uint64_t n = 1; n <= kKnownHeaders + 1; ++n) {
    ASSERT_TRUE(map.take(one_object(8192, n), {}).ok()) << n;
  }
  MappedReply known = one_object(8192);
  known.objects[0] = {ObjectPlace::known, 6, 2, 0, 0, 0, {}};
  EXPECT_TRUE(map.take(known, {}).ok());
  known.objects[0].number = 1;
  EXPECT_FALSE(map.take(known, {}).ok());
  EXPECT_EQ(map.ended()->take().size(), kMaxEndedLeases) << "every lease of these has ended";
}

TEST(SegmentMap, ARevokedSegmentStaysUntilItsLastObjectGoes) {
  Memory memory;
  SegmentMap map;
  ASSERT_TRUE(map.add({3, kBytes, 4096}, memory.fd()).ok());
  auto taken = map.take(one_object(8192), {});
  ASSERT_TRUE(taken.ok());
  map.revoke(3);
  EXPECT_TRUE(map.unmapped().empty()) << "it is read";
  EXPECT_EQ(taken->prefix.objects[0].object->planes[0].bytes.data()[0], 0);
  MappedReply known = one_object(8192);
  known.objects[0] = {ObjectPlace::known, 6, 1, 0, 0, 0, {}};
  EXPECT_FALSE(map.take(known, {}).ok()) << "its numbers are forgotten";
  taken = Status(StatusCode::not_found, "");
  EXPECT_EQ(map.unmapped(), std::vector<uint32_t>{3});
  EXPECT_TRUE(map.unmapped().empty());
}

TEST(MappedReply, FromPiecesIsTheSameFrame) {
  MappedReply whole = testing::sample_mapped_reply();
  std::vector<Bytes> pieces;
  for (const MappedObject& object : whole.objects) {
    MappedObject other = object;
    other.number += 1;  // as if it was not known yet
    std::vector<uint8_t> bytes = encoded(other);
    if (object.place != ObjectPlace::streamed) set_number(bytes, object.number);
    pieces.push_back(Bytes::owning(std::move(bytes)));
  }
  MappedReply rest = whole;
  rest.objects.clear();
  EXPECT_EQ(testing::flatten(mapped_frame(14, rest, std::move(pieces))),
            testing::flatten(reply_frame(FrameType::fetch_mapped_ok, 14, whole)));
}

}  // namespace
}  // namespace kv
