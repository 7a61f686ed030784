// Fuzz target: what a service says of segments, to a client that has one mapped: announcements with
// that segment's descriptor, mapped replies, revocations. Whatever is given, every byte of an
// object that comes of it can be read.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/segment_map.h"
#include "tests/support/proto_testing.h"

namespace {

constexpr uint64_t kBytes = 64u << 10;

int sealed_memfd() {
  const int fd = ::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  KV_CHECK(fd >= 0 && ::ftruncate(fd, kBytes) == 0);
  KV_CHECK(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  return fd;
}

uint64_t sum_of(const kv::Prefix& prefix) {
  uint64_t sum = 0;
  auto add = [&sum](const kv::Bytes& bytes) {
    for (uint8_t byte : bytes.span()) sum += byte;
  };
  for (const auto& o : prefix.objects) {
    if (!o.object) continue;
    for (const auto& p : o.object->planes) add(p.bytes);
    for (const auto& s : o.object->states) add(s.bytes);
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int fd = sealed_memfd();
  if (size < kv::kFrameHeaderBytes) return 0;
  const std::span<const uint8_t> body(data + kv::kFrameHeaderBytes, size - kv::kFrameHeaderBytes);
  const auto type = static_cast<kv::FrameType>(data[6] | data[7] << 8);
  kv::SegmentMap map;
  KV_CHECK(map.add({3, kBytes, 4096}, fd).ok());
  if (type == kv::FrameType::segment) {
    auto m = kv::decode_reply<kv::SegmentAnnounced>(type, body);
    if (m.ok()) (void)map.add(*m, fd).ok();
  } else if (type == kv::FrameType::segment_revoked) {
    auto m = kv::decode_reply<kv::SegmentRevoked>(type, body);
    if (m.ok()) map.revoke(m->segment);
  } else if (auto m = kv::decode_reply<kv::MappedReply>(type, body); m.ok()) {
    auto taken = map.take(*m, {});
    volatile uint64_t read = taken.ok() ? sum_of(taken->prefix) : 0;
    (void)read;
    if (taken.ok() && taken->lease) (void)taken->lease->valid();
  }
  return 0;
}
