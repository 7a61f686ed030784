// Header encoding and the frame parser. A body lives in a malloc'ed buffer that grows by steps with
// what has arrived (realloc of a large buffer moves pages, not bytes) and becomes a Bytes at its
// end.
#include "proto/frame.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#include "proto/checksum.h"

namespace kv {

namespace {

constexpr std::pair<FrameType, const char*> kNames[] = {
    {FrameType::hello, "hello"},
    {FrameType::open, "open"},
    {FrameType::lookup, "lookup"},
    {FrameType::reserve, "reserve"},
    {FrameType::put, "put"},
    {FrameType::commit, "commit"},
    {FrameType::abort, "abort"},
    {FrameType::fetch, "fetch"},
    {FrameType::prefetch, "prefetch"},
    {FrameType::erase, "erase"},
    {FrameType::stats, "stats"},
    {FrameType::erase_entry, "erase_entry"},
    {FrameType::hello_ok, "hello_ok"},
    {FrameType::open_ok, "open_ok"},
    {FrameType::lookup_ok, "lookup_ok"},
    {FrameType::reserve_ok, "reserve_ok"},
    {FrameType::put_ok, "put_ok"},
    {FrameType::commit_ok, "commit_ok"},
    {FrameType::abort_ok, "abort_ok"},
    {FrameType::fetch_header, "fetch_header"},
    {FrameType::prefetch_ok, "prefetch_ok"},
    {FrameType::erase_ok, "erase_ok"},
    {FrameType::stats_ok, "stats_ok"},
    {FrameType::erase_entry_ok, "erase_entry_ok"},
    {FrameType::why, "why"},
    {FrameType::why_ok, "why_ok"},
    {FrameType::hold, "hold"},
    {FrameType::renew, "renew"},
    {FrameType::release, "release"},
    {FrameType::cancel, "cancel"},
    {FrameType::demote, "demote"},
    {FrameType::demote_ok, "demote_ok"},
    {FrameType::retain, "retain"},
    {FrameType::retain_ok, "retain_ok"},
    {FrameType::expire, "expire"},
    {FrameType::expire_ok, "expire_ok"},
    {FrameType::hold_ok, "hold_ok"},
    {FrameType::renew_ok, "renew_ok"},
    {FrameType::release_ok, "release_ok"},
    {FrameType::fetch_object, "fetch_object"},
    {FrameType::fetch_done, "fetch_done"},
    {FrameType::leases_ended, "leases_ended"},
    {FrameType::segment_unmapped, "segment_unmapped"},
    {FrameType::fetch_mapped, "fetch_mapped"},
    {FrameType::fetch_mapped_ok, "fetch_mapped_ok"},
    {FrameType::segment, "segment"},
    {FrameType::segment_revoked, "segment_revoked"},
    {FrameType::memory, "memory"},
    {FrameType::memory_ok, "memory_ok"},
    {FrameType::memory_ended, "memory_ended"},
    {FrameType::put_from, "put_from"},
    {FrameType::put_from_ok, "put_from_ok"},
    {FrameType::fetch_into, "fetch_into"},
    {FrameType::fetch_placed, "fetch_placed"},
    {FrameType::error, "error"},
};

}  // namespace

const char* to_string(FrameType type) {
  for (const auto& [known, name] : kNames) {
    if (known == type) return name;
  }
  return "unknown";
}

uint64_t max_body_bytes(FrameType type, bool greeted, uint64_t object_bytes) {
  if (!greeted) return kMaxHelloBytes;
  switch (type) {
    case FrameType::open:
    case FrameType::open_ok:
      return kMaxOpenBytes;
    case FrameType::put:
    case FrameType::fetch_object:
      return std::min(object_bytes, kMaxObjectFrameBytes);
    case FrameType::put_from:
    case FrameType::fetch_into:
    case FrameType::fetch_placed:
    case FrameType::lookup:
    case FrameType::reserve:
    case FrameType::reserve_ok:
    case FrameType::commit_ok:
    case FrameType::fetch:
    case FrameType::fetch_mapped:
    case FrameType::fetch_mapped_ok:
    case FrameType::prefetch:
    case FrameType::hold:
    case FrameType::demote:
    case FrameType::retain:
    case FrameType::expire:
    case FrameType::erase:
    case FrameType::erase_entry:
    case FrameType::why:
    case FrameType::why_ok:
    case FrameType::stats_ok:
      return kMaxQueryBytes;
    default:
      return kMaxControlBytes;
  }
}

std::array<uint8_t, kFrameHeaderBytes> encode_frame_header(const FrameHeader& header) {
  ByteWriter out;
  out.u32(kFrameMagic);
  out.u16(header.version);
  out.u16(static_cast<uint16_t>(header.type));
  out.u64(header.request);
  out.u64(header.length);
  out.u32(header.flags);
  out.u32(crc32c(out.span()));
  std::array<uint8_t, kFrameHeaderBytes> bytes;
  std::copy(out.span().begin(), out.span().end(), bytes.begin());
  return bytes;
}

Result<FrameHeader> decode_frame_header(std::span<const uint8_t, kFrameHeaderBytes> bytes) {
  ByteReader in(bytes);
  uint32_t magic = in.u32();
  if (magic != kFrameMagic) return corruption("frame: bad magic, expected \"KVC1\"");
  FrameHeader h;
  h.version = in.u16();
  h.type = static_cast<FrameType>(in.u16());
  h.request = in.u64();
  h.length = in.u64();
  h.flags = in.u32();
  if (in.u32() != crc32c(bytes.first<28>())) return corruption("frame: header checksum differs");
  if (h.version != kProtocolVersion) {
    return unsupported("frame: version " + std::to_string(h.version) + ", expected " +
                       std::to_string(kProtocolVersion));
  }
  if (h.flags != 0) return unsupported("frame: flags " + std::to_string(h.flags) + ", expected 0");
  return h;
}

// The growing body; `release` hands its memory to a Bytes.
class FrameParser::Body {
 public:
  ~Body() { std::free(data_); }
  uint8_t* data() { return data_; }
  size_t capacity() const { return capacity_; }
  void grow_to(size_t bytes) {
    if (bytes <= capacity_) return;
    void* grown = std::realloc(data_, bytes);
    if (grown == nullptr) throw std::bad_alloc();
    data_ = static_cast<uint8_t*>(grown);
    capacity_ = bytes;
  }
  Bytes release(size_t size) {
    if (size == 0) return {};
    uint8_t* data = std::exchange(data_, nullptr);  // `owner` frees it, even if its making fails
    capacity_ = 0;
    std::shared_ptr<const void> owner(data, [](const void* p) { std::free(const_cast<void*>(p)); });
    return {std::move(owner), data, size};
  }

 private:
  uint8_t* data_ = nullptr;
  size_t capacity_ = 0;
};

FrameParser::FrameParser() : body_(std::make_unique<Body>()), stage_(kReadAheadBytes) {}
FrameParser::~FrameParser() = default;

size_t FrameParser::body_capacity() const { return body_->capacity(); }

Status FrameParser::fail(Status status) {
  state_ = State::failed;
  error_ = std::move(status);
  return error_;
}

std::span<uint8_t> FrameParser::prepare() {
  uint64_t left = header_.length - got_;
  switch (state_) {
    case State::body: {
      // Memory grows at most a step beyond the bytes that have arrived.
      body_->grow_to(std::min<uint64_t>(header_.length, got_ + kBodyStepBytes));
      return {body_->data() + got_, body_->capacity() - got_};
    }
    case State::external:
      return external_.subspan(got_);
    case State::skip:
      return {stage_.data(), std::min<uint64_t>(left, stage_.size())};
    case State::header:
      if (stage_begin_ > 0) {
        std::copy(stage_.begin() + stage_begin_, stage_.begin() + stage_end_, stage_.begin());
        stage_end_ -= stage_begin_;
        stage_begin_ = 0;
      }
      return std::span(stage_).subspan(stage_end_);
    default:
      return {};
  }
}

Status FrameParser::commit(size_t bytes) {
  switch (state_) {
    case State::failed:
      return error_;
    case State::header:
      stage_end_ += bytes;
      break;
    default:
      got_ += bytes;
      break;
  }
  return advance();
}

Status FrameParser::advance() {
  if (state_ == State::header && stage_end_ - stage_begin_ >= kFrameHeaderBytes) {
    KV_RETURN_IF_ERROR(take_header());
  }
  bool in_body = state_ == State::body || state_ == State::external || state_ == State::skip;
  if (in_body && got_ == header_.length) state_ = State::ready;
  return {};
}

Status FrameParser::take_header() {
  auto bytes = std::span<const uint8_t>(stage_).subspan(stage_begin_).first<kFrameHeaderBytes>();
  auto header = decode_frame_header(bytes);
  if (!header.ok()) return fail(header.status());
  uint64_t cap = max_body_bytes(header->type, greeted_, object_bytes_);
  if (header->length > cap) {
    return fail(invalid_argument("frame: length " + std::to_string(header->length) + " of type " +
                                 to_string(header->type) + " over its limit " +
                                 std::to_string(cap)));
  }
  stage_begin_ += kFrameHeaderBytes;
  header_ = *header;
  got_ = 0;
  bool external =
      header_.length > external_above_ || (external_puts_ && header_.type == FrameType::put);
  if (greeted_ && external) {
    state_ = State::awaiting;
    return {};
  }
  state_ = State::body;
  uint64_t here = std::min<uint64_t>(header_.length, stage_end_ - stage_begin_);
  body_->grow_to(here);
  if (here > 0) std::copy_n(stage_.begin() + stage_begin_, here, body_->data());
  stage_begin_ += here;
  got_ = here;
  return {};
}

void FrameParser::use_buffer(std::span<uint8_t> buffer) {
  KV_CHECK(state_ == State::awaiting && buffer.size() == header_.length);
  state_ = State::external;
  external_ = buffer;
  uint64_t here = std::min<uint64_t>(header_.length, stage_end_ - stage_begin_);
  std::copy_n(stage_.begin() + stage_begin_, here, external_.begin());
  stage_begin_ += here;
  got_ = here;
  if (got_ == header_.length) state_ = State::ready;
}

void FrameParser::skip_body() {
  KV_CHECK(state_ == State::awaiting);
  state_ = State::skip;
  uint64_t here = std::min<uint64_t>(header_.length, stage_end_ - stage_begin_);
  stage_begin_ += here;
  got_ = here;
  if (got_ == header_.length) state_ = State::ready;
}

std::optional<Frame> FrameParser::next() {
  // Frames that were read ahead are parsed here, once the one before them is taken.
  if (state_ == State::header && !advance().ok()) return std::nullopt;
  if (state_ != State::ready) return std::nullopt;
  Frame frame{header_, {}};
  if (body_->capacity() > 0) frame.body = body_->release(header_.length);
  external_ = {};
  header_ = {};
  got_ = 0;
  state_ = State::header;
  return frame;
}

uint64_t OutFrame::bytes() const {
  uint64_t n = head.size();
  for (const auto& p : pieces) n += p.size();
  return n;
}

size_t gather(const OutFrame& frame, uint64_t at, iovec* pieces, size_t max) {
  size_t n = 0;
  auto add = [&](std::span<const uint8_t> piece) {
    if (at >= piece.size()) {
      at -= piece.size();
      return;
    }
    pieces[n++] = {const_cast<uint8_t*>(piece.data()) + at, piece.size() - at};
    at = 0;
  };
  add(frame.head);
  for (const auto& piece : frame.pieces) {
    if (n == max) break;
    add(piece.span());
  }
  return n;
}

}  // namespace kv
