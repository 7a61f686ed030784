// Envelopes, and the order of messages in a file. FORMAT.md, "Sealed files".
#include "storage/sealed_file.h"

#include <algorithm>
#include <cstring>

#include "storage/block_file.h"
#include "storage/file_frame.h"

namespace kv {
namespace {

constexpr uint8_t kAes256Gcm = 1;
constexpr const char* kFilePurpose = "cachesvc file";

void write_envelope(const Envelope& e, ByteWriter& out) {
  out.raw({reinterpret_cast<const uint8_t*>(kFileMagic), sizeof(kFileMagic)});
  out.u16(kSealedVersion);
  out.u8(kAes256Gcm);
  out.u8(e.ephemeral ? 1 : 0);
  out.u32(e.head_bytes);
  out.u64(e.payload_bytes);
  out.raw(e.key_id);
  out.raw(e.salt);
  KV_CHECK(out.size() == kEnvelopeBytes);
}

// Associated data that every tag covers beside its message.
std::vector<uint8_t> associate(std::span<const uint8_t> envelope, std::string_view name) {
  std::vector<uint8_t> out(envelope.begin(), envelope.end());
  out.insert(out.end(), name.begin(), name.end());
  return out;
}

// Message 0 is the head, 1… the payload's chunks. A subkey seals one file, so a place is enough.
SealNonce nonce_of(uint64_t message, bool last) {
  SealNonce nonce{};
  std::memcpy(nonce.data(), &message, sizeof(message));
  nonce.back() = last ? 1 : 0;
  return nonce;
}

}  // namespace

bool is_sealed(std::span<const uint8_t> front) {
  if (front.size() < sizeof(kFileMagic) + 2) return false;
  ByteReader in(front);
  return std::memcmp(in.raw(sizeof(kFileMagic)).data(), kFileMagic, sizeof(kFileMagic)) == 0 &&
         in.u16() == kSealedVersion;
}

Result<Envelope> decode_envelope(std::span<const uint8_t> front) {
  if (front.size() < kEnvelopeBytes || !is_sealed(front)) {
    return corruption("shorter than the envelope of a sealed file, or not sealed");
  }
  ByteReader in(front.first(kEnvelopeBytes));
  in.raw(sizeof(kFileMagic) + 2);
  uint8_t cipher = in.u8();
  if (cipher != kAes256Gcm) return unsupported("sealed by cipher " + std::to_string(cipher));
  Envelope out;
  out.ephemeral = in.u8() == 1;
  out.head_bytes = in.u32();
  out.payload_bytes = in.u64();
  auto id = in.raw(out.key_id.size());
  std::copy(id.begin(), id.end(), out.key_id.begin());
  auto salt = in.raw(out.salt.size());
  std::copy(salt.begin(), salt.end(), out.salt.begin());
  return out;
}

Status check_lengths(const Envelope& envelope, uint64_t file_bytes) {
  if (envelope.head_bytes < kPrefixBytes ||
      envelope.head_bytes > kPrefixBytes + kMaxObjectHeaderBytes ||
      envelope.payload_bytes > kMaxObjectBytes) {
    return corruption("envelope: a length is over its limit");
  }
  if (envelope.file_bytes() == file_bytes) return {};
  return corruption("sealed file length: expected " + std::to_string(envelope.file_bytes()) +
                    ", given " + std::to_string(file_bytes));
}

uint64_t sealed_file_bytes(uint64_t head_bytes, uint64_t payload_bytes) {
  Envelope e;
  e.head_bytes = static_cast<uint32_t>(head_bytes);
  e.payload_bytes = payload_bytes;
  return e.file_bytes();
}

Status FileSealer::start(const SealKey& key, std::string_view name, uint64_t payload_bytes,
                         std::span<const uint8_t> head, const SealSalt& salt) {
  Envelope e;
  e.ephemeral = key.ephemeral();
  e.head_bytes = static_cast<uint32_t>(head.size());
  e.payload_bytes = payload_bytes;
  e.key_id = key.id();
  e.salt = salt;
  ByteWriter out;
  out.bytes().reserve(e.head_at() + head.size());
  write_envelope(e, out);
  associated_ = associate(out.span(), name);
  Subkey subkey;
  KV_RETURN_IF_ERROR(key.derive(salt, kFilePurpose, subkey));
  KV_RETURN_IF_ERROR(gcm_.set_key(subkey, Gcm::Direction::seal));
  chunks_ = e.chunks();
  payload_left_ = payload_bytes;
  front_ = out.take();
  front_.resize(e.head_at() + head.size());
  KV_RETURN_IF_ERROR(gcm_.start(nonce_of(0, chunks_ == 0), associated_));
  KV_RETURN_IF_ERROR(gcm_.update(head, front_.data() + e.head_at()));
  return gcm_.finish_seal(std::span(front_).subspan<kEnvelopeBytes, kSealTagBytes>());
}

Status FileSealer::seal(std::span<const uint8_t> in, uint8_t* out) {
  KV_CHECK(in.size() <= payload_left_);
  while (!in.empty()) {
    if (chunk_left_ == 0) {
      chunk_left_ = std::min(payload_left_, kSealedChunkBytes);
      ++chunk_;
      KV_RETURN_IF_ERROR(gcm_.start(nonce_of(chunk_, chunk_ == chunks_), associated_));
    }
    auto part = in.first(std::min<uint64_t>(in.size(), chunk_left_));
    KV_RETURN_IF_ERROR(gcm_.update(part, out));
    in = in.subspan(part.size());
    out += part.size();
    payload_left_ -= part.size();
    chunk_left_ -= part.size();
    if (chunk_left_ > 0) continue;
    auto tag = std::span(front_).subspan(kEnvelopeBytes + chunk_ * kSealTagBytes);
    KV_RETURN_IF_ERROR(gcm_.finish_seal(tag.first<kSealTagBytes>()));
  }
  return {};
}

Status FileOpener::start(const SealKey& key, std::string_view name, std::span<const uint8_t> front,
                         const Envelope& envelope) {
  KV_CHECK(front.size() >= envelope.head_at() && envelope.key_id == key.id());
  associated_ = associate(front.first(kEnvelopeBytes), name);
  tags_ = front.first(envelope.head_at()).subspan(kEnvelopeBytes);
  messages_ = 1 + envelope.chunks();
  message_ = 0;
  left_ = envelope.plain_bytes();
  message_left_ = envelope.head_bytes;
  Subkey subkey;
  KV_RETURN_IF_ERROR(key.derive(envelope.salt, kFilePurpose, subkey));
  KV_RETURN_IF_ERROR(gcm_.set_key(subkey, Gcm::Direction::open));
  return gcm_.start(nonce_of(0, messages_ == 1), associated_);
}

Status FileOpener::open(std::span<uint8_t> bytes) {
  KV_CHECK(bytes.size() <= left_);
  while (!bytes.empty()) {
    auto part = bytes.first(std::min<uint64_t>(bytes.size(), message_left_));
    KV_RETURN_IF_ERROR(gcm_.update(part, part.data()));
    bytes = bytes.subspan(part.size());
    message_left_ -= part.size();
    if (message_left_ > 0) {
      left_ -= part.size();
      continue;
    }
    auto tag = tags_.subspan(message_ * kSealTagBytes);
    KV_RETURN_IF_ERROR(gcm_.finish_open(tag.first<kSealTagBytes>()));
    left_ -= part.size();
    if (++message_ == messages_) continue;
    message_left_ = std::min(left_, kSealedChunkBytes);
    KV_RETURN_IF_ERROR(gcm_.start(nonce_of(message_, message_ + 1 == messages_), associated_));
  }
  return {};
}

}  // namespace kv
