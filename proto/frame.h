// Frames: the messages on the socket. A fixed 32-byte header, then `length` bytes of body.
//
// Sans-io: FrameParser takes bytes as they arrive and gives whole frames; it never reads a socket.
// It checks every header before it allocates, and its memory is at most what has arrived plus
// kBodyStepBytes and a small read-ahead, whatever length a header claims. After an error the stream
// is out of step: the connection must end. One parser per connection, one thread at a time.
// PROTOCOL.md, "Frames".
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "proto/bytes.h"
#include "proto/limits.h"
#include "proto/status.h"

namespace kv {

inline constexpr uint32_t kFrameMagic = 0x3143564b;  ///< "KVC1" as bytes on the wire
inline constexpr uint16_t kProtocolVersion = 2;
inline constexpr size_t kFrameHeaderBytes = 32;

/// A reply's type is its request's with bit 15 set. Never renumber.
enum class FrameType : uint16_t {
  hello = 0x0001,
  open = 0x0002,
  lookup = 0x0003,
  reserve = 0x0004,
  put = 0x0005,
  commit = 0x0006,
  abort = 0x0007,
  fetch = 0x0008,
  prefetch = 0x0009,
  erase = 0x000a,
  stats = 0x000b,
  erase_entry = 0x000c,
  why = 0x000d,
  // 0x0010 - 0x001f and their replies: intent.
  hold = 0x0010,
  renew = 0x0011,
  release = 0x0012,
  cancel = 0x0013,
  demote = 0x0014,
  retain = 0x0015,
  expire = 0x0016,
  // 0x0040 - 0x005f and their replies: shared pools.
  leases_ended = 0x0040,
  segment_unmapped = 0x0041,
  fetch_mapped = 0x0042,
  memory = 0x0045,
  memory_ended = 0x0046,
  put_from = 0x0047,
  fetch_into = 0x0048,

  hello_ok = 0x8001,
  open_ok = 0x8002,
  lookup_ok = 0x8003,
  reserve_ok = 0x8004,
  put_ok = 0x8005,
  commit_ok = 0x8006,
  abort_ok = 0x8007,
  fetch_header = 0x8008,
  prefetch_ok = 0x8009,
  erase_ok = 0x800a,
  stats_ok = 0x800b,
  erase_entry_ok = 0x800c,
  why_ok = 0x800d,
  hold_ok = 0x8010,
  renew_ok = 0x8011,
  release_ok = 0x8012,
  demote_ok = 0x8014,
  retain_ok = 0x8015,
  expire_ok = 0x8016,
  fetch_object = 0x8020,
  fetch_done = 0x8021,
  fetch_placed = 0x8022,
  fetch_mapped_ok = 0x8042,
  segment = 0x8043,
  segment_revoked = 0x8044,
  memory_ok = 0x8045,
  put_from_ok = 0x8047,
  error = 0x80ff,
};
const char* to_string(FrameType type);  ///< "unknown" for a type of another version

struct FrameHeader {
  uint16_t version = kProtocolVersion;
  FrameType type = FrameType::error;
  uint64_t request = 0;  ///< chosen by the client, repeated in every frame of the reply
  uint64_t length = 0;   ///< bytes of body
  uint32_t flags = 0;    ///< 0; others are refused
  bool operator==(const FrameHeader&) const = default;
};

inline constexpr uint64_t kMaxHelloBytes = 8192;  ///< limit of frames before the hello's answer
inline constexpr uint64_t kMaxControlBytes = 64u << 10;  ///< frames without tokens or lists
inline constexpr uint64_t kMaxQueryBytes = 24u << 20;    ///< frames with a token sequence or a list
inline constexpr uint64_t kMaxOpenBytes = kMaxProfileBytes + (4u << 20);
inline constexpr uint64_t kMaxObjectFrameBytes =
    kMaxObjectBytes + kMaxObjectHeaderBytes + (1u << 20);

/// The longest body that a frame of this type may have; unknown types count as control frames.
/// `greeted`: the hello was answered. `object_bytes` caps put and fetch_object further.
uint64_t max_body_bytes(FrameType type, bool greeted, uint64_t object_bytes = kMaxObjectFrameBytes);

std::array<uint8_t, kFrameHeaderBytes> encode_frame_header(const FrameHeader& header);
/// Returns: corruption (magic, CRC), unsupported (version, flags), each naming expected and given.
Result<FrameHeader> decode_frame_header(std::span<const uint8_t, kFrameHeaderBytes> bytes);

struct Frame {
  FrameHeader header;
  Bytes body;
};

/// Bodies grow by so much beyond what has arrived.
inline constexpr size_t kBodyStepBytes = 4u << 20;
/// Small frames are read many at a time; a large body is read straight into its buffer.
inline constexpr size_t kReadAheadBytes = 16u << 10;

/// Use: while (auto f = next()) …;  read into prepare();  commit(bytes read).
class FrameParser {
 public:
  using Message = Frame;

  FrameParser();
  ~FrameParser();
  FrameParser(const FrameParser&) = delete;  // callers hold spans into it
  FrameParser& operator=(const FrameParser&) = delete;

  /// Caps of the frames whose headers come from now on.
  void set_greeted(bool greeted) { greeted_ = greeted; }
  void set_object_bytes(uint64_t bytes) { object_bytes_ = bytes; }
  /// put bodies wait for use_buffer or skip_body: awaiting() names them. For a server that charges
  /// them before it takes them.
  void set_external_puts(bool external) { external_puts_ = external; }
  /// Bodies of more than `bytes` of other frames do so too, once greeted.
  void set_external_above(uint64_t bytes) { external_above_ = bytes; }

  /// Place of the next received bytes; never empty unless a frame is ready, awaiting() or failed.
  std::span<uint8_t> prepare();
  /// `bytes` of the span from prepare() were filled. Returns: as decode_frame_header, and
  /// invalid_argument for a length over its cap. An error repeats for good.
  Status commit(size_t bytes);

  /// The next complete frame. A body read into an external buffer is not in it. Taking one parses
  /// the header of the next: after nullopt, ask error().
  std::optional<Frame> next();
  const Status& error() const { return error_; }
  /// The header of a frame whose body needs a place, or nullptr.
  const FrameHeader* awaiting() const { return state_ == State::awaiting ? &header_ : nullptr; }
  /// Bytes of the body that is awaited.
  uint64_t body_bytes() const { return header_.length; }
  /// The place for the body that is awaited: body_bytes() of them, alive until next() gives its
  /// frame.
  void use_buffer(std::span<uint8_t> buffer);
  /// The awaited body is read and dropped; next() gives its frame without a body.
  void skip_body();

  /// Bytes of the body under way that have arrived.
  uint64_t received() const { return got_; }
  /// True if nothing of a frame has arrived: here a peer may close cleanly.
  bool at_boundary() const { return state_ == State::header && stage_begin_ == stage_end_; }
  /// Bytes allocated for the body that is arriving: for tests of the memory rule.
  size_t body_capacity() const;

 private:
  enum class State { header, awaiting, body, external, skip, ready, failed };
  class Body;
  Status advance();
  Status take_header();
  Status fail(Status status);

  State state_ = State::header;
  bool greeted_ = false, external_puts_ = false;
  uint64_t object_bytes_ = kMaxObjectFrameBytes, external_above_ = UINT64_MAX;
  FrameHeader header_;
  uint64_t got_ = 0;  // bytes of the body that have arrived
  std::unique_ptr<Body> body_;
  std::span<uint8_t> external_;
  std::vector<uint8_t> stage_;  // read ahead: [stage_begin_, stage_end_)
  size_t stage_begin_ = 0, stage_end_ = 0;
  Status error_;
};

/// A frame on its way out: `head` is the header and the body's first bytes, `pieces` the rest of
/// the body, sent from where they lie.
struct OutFrame {
  std::shared_ptr<const void> kept;  ///< alive until the frame is sent, and goes after `pieces`
  std::vector<uint8_t> head;
  std::vector<Bytes> pieces;
  int descriptor = -1;     ///< goes beside the first byte; `kept` keeps it open
  uint64_t bytes() const;  ///< header and body
};

/// The frame's bytes from offset `at` on, as pieces for one gathered write: at most `max` of them.
/// Returns how many were set.
size_t gather(const OutFrame& frame, uint64_t at, iovec* pieces, size_t max);

}  // namespace kv
