// Fields that every put begins with, and an object's header within a message. For the messages of
// proto/ only.
#pragma once

#include "proto/fields.h"
#include "proto/message.h"

namespace kv {

/// A put's fields before its object.
template <typename Io>
void put_fields(Io& io, Of<Io, uint32_t>& timeout_ms, Of<Io, PutRequest>& m) {
  io.number("timeout", timeout_ms);
  io.number("reservation", m.reservation);
  io.list("copies", m.copies, kMaxCopies, [](Io& item, auto& c) {
    item.choice("source.kind", c.source.kind, ObjectKind::block, ObjectKind::snapshot);
    item.id("source.id", c.source.id);
    item.number("source.group", c.source.group);
    item.number("source.first_row", c.source.first_row);
    item.number("source.end_row", c.source.end_row);
    item.number("first_row", c.first_row);
    item.number("end_row", c.end_row);
  });
}

/// The object of a header blob that `in` stands at; its planes and states have no bytes yet.
/// Returns: corruption, naming the frame and the field.
Result<Object> read_header(ByteReader& in, FrameType type);

}  // namespace kv
