// Fields of the messages in PROTOCOL.md, "Pools".
#include "proto/segment_message.h"

#include "proto/fields.h"

namespace kv {
namespace {

template <typename Io>
void fields(Io& io, Of<Io, SegmentAnnounced>& m) {
  io.number("segment", m.segment, 1);
  io.number("bytes", m.bytes, kSlotPageBytes);
  io.number("page_bytes", m.page_bytes, 1);
}

template <typename Io>
void fields(Io& io, Of<Io, SegmentRevoked>& m) {
  io.number("segment", m.segment, 1);
}

template <typename Io>
void fields(Io& io, Of<Io, SegmentUnmapped>& m) {
  io.number("segment", m.segment, 1);
}

template <typename Io>
void fields(Io& io, Of<Io, LeasesEnded>& m) {
  io.array("leases", m.leases, kMaxEndedLeases);
}

// A header is kept as it came, and decoded by its users.
template <typename Io>
void header_field(Io& io, Of<Io, std::vector<uint8_t>>& header) {
  if constexpr (Io::kReads) {
    auto bytes = io.in().blob(kMaxObjectHeaderBytes);
    header.assign(bytes.begin(), bytes.end());
    io.named("header");
  } else {
    io.out().blob(header);
  }
}

template <typename Io>
void object_fields(Io& io, Of<Io, MappedObject>& m) {
  io.choice("place", m.place, ObjectPlace::streamed, ObjectPlace::known);
  io.number("end_token", m.end_token);
  if (m.place == ObjectPlace::streamed) return;
  io.number("number", m.number, 1);
  if (m.place == ObjectPlace::known) return;
  io.number("segment", m.segment, 1);
  io.number("offset", m.offset);
  io.number("generation", m.generation);
  header_field(io, m.header);
}

template <typename Io>
void fields(Io& io, Of<Io, MappedReply>& m) {
  io.number("tokens", m.tokens);
  io.number("common", m.common);
  io.boolean("pending", m.pending);
  io.choice("tier", m.tier, Tier::none, Tier::remote);
  io.choice("form", m.form, HitForm::none, HitForm::coded);
  io.clipped("reason", m.reason, kMaxMessageBytes);
  io.number("lease", m.lease);
  io.number("lease_ms", m.lease_ms);
  io.number("streamed_bytes", m.streamed_bytes);
  io.list("objects", m.objects, kMaxFetchObjects,
          [](Io& item, auto& object) { object_fields(item, object); });
}

}  // namespace

KV_MESSAGE(SegmentAnnounced)
KV_MESSAGE(SegmentRevoked)
KV_MESSAGE(SegmentUnmapped)
KV_MESSAGE(LeasesEnded)
KV_MESSAGE(MappedReply)

std::vector<uint8_t> encoded(const MappedObject& object) {
  ByteWriter out;
  out.reserve(sizeof(object) + object.header.size());
  FieldWriter io(out);
  object_fields(io, object);
  return out.take();
}

void set_number(std::vector<uint8_t>& encoded_object, uint64_t number) {
  constexpr size_t kAt = sizeof(uint8_t) + sizeof(uint32_t);  // offset behind place and end_token
  KV_CHECK(encoded_object.size() >= kAt + sizeof(number));
  std::memcpy(encoded_object.data() + kAt, &number, sizeof(number));
}

OutFrame mapped_frame(uint64_t request, const MappedReply& m, std::vector<Bytes> objects) {
  KV_CHECK(m.objects.empty());
  ByteWriter out = start_frame();
  encode(m, out);
  const auto count = static_cast<uint32_t>(objects.size());  // the last field, 0 until now
  std::memcpy(out.bytes().data() + out.size() - sizeof(count), &count, sizeof(count));
  return finish_frame(FrameType::fetch_mapped_ok, request, std::move(out), std::move(objects));
}

}  // namespace kv
