// Files in memory: framed, sealed, opened, verified.
#include "cachesvc/remote/value.h"

#include <algorithm>
#include <utility>

#include "storage/file_frame.h"
#include "storage/file_names.h"
#include "storage/record_file.h"
#include "storage/sealed_file.h"

namespace kv {
namespace {

static_assert(kRemoteFrontBytes >= kEnvelopeBytes && kRemoteFrontBytes >= kPrefixBytes);
// The front of a file, even the shortest one, is there: an object header is longer than 16 bytes.
static_assert(kRemoteFrontBytes <= kPrefixBytes + 16);

constexpr size_t kHeaderBytesAt = 12;

RemoteSum sum_at(std::span<const uint8_t> bytes, size_t at) {
  RemoteSum sum;
  std::copy_n(bytes.begin() + static_cast<long>(at), sum.size(), sum.begin());
  return sum;
}

// Bytes [at, at + size) of the pieces, shared.
std::vector<Bytes> cut(const std::vector<Bytes>& pieces, uint64_t at, uint64_t size) {
  std::vector<Bytes> out;
  for (const Bytes& piece : pieces) {
    if (at >= piece.size()) {
      at -= piece.size();
      continue;
    }
    const uint64_t here = std::min(size, piece.size() - at);
    if (here > 0) out.push_back(piece.slice(at, here));
    size -= here;
    at = 0;
    if (size == 0) break;
  }
  return out;
}

Result<std::vector<Bytes>> seal(const EncodedFile& file, std::string_view name,
                                const SealKey& key) {
  SealSalt salt;
  KV_RETURN_IF_ERROR(random_fill(salt));
  uint64_t payload_bytes = 0;
  for (const Bytes& piece : file.payload) payload_bytes += piece.size();
  FileSealer sealer;
  KV_RETURN_IF_ERROR(sealer.start(key, name, payload_bytes, file.head, salt));
  std::vector<uint8_t> payload(payload_bytes);
  uint64_t at = 0;
  for (const Bytes& piece : file.payload) {
    KV_RETURN_IF_ERROR(sealer.seal(piece.span(), payload.data() + at));
    at += piece.size();
  }
  return std::vector<Bytes>{Bytes::copy_of(sealer.front()), Bytes::owning(std::move(payload))};
}

// Opens a sealed value in place. Returns: where the plain file begins.
Result<uint64_t> unseal(std::span<uint8_t> all, std::string_view name, const SealKey& key) {
  KV_ASSIGN_OR_RETURN(Envelope envelope, decode_envelope(all.first(kEnvelopeBytes)));
  const uint64_t plain_at = envelope.head_at();
  FileOpener opener;
  KV_RETURN_IF_ERROR(opener.start(key, name, all.first(plain_at), envelope));
  KV_RETURN_IF_ERROR(opener.open(all.subspan(plain_at)));
  KV_CHECK(opener.done());
  return plain_at;
}

}  // namespace

Result<RemoteFront> decode_remote_front(std::span<const uint8_t> front, const SealKey* key) {
  if (front.size() < kRemoteFrontBytes) return corruption("shorter than any file");
  front = front.first(kRemoteFrontBytes);
  if (is_sealed(front)) {
    KV_ASSIGN_OR_RETURN(Envelope envelope, decode_envelope(front.first(kEnvelopeBytes)));
    if (key == nullptr || envelope.key_id != key->id()) {
      return unsupported("sealed with another key (key id " + to_hex(envelope.key_id) + ")");
    }
    const uint64_t bytes = envelope.file_bytes();
    KV_RETURN_IF_ERROR(check_lengths(envelope, bytes));
    return RemoteFront{bytes, sum_at(envelope.salt, 0)};
  }
  ByteReader in(front);
  in.raw(kHeaderBytesAt);
  uint64_t bytes = kPrefixBytes + uint64_t{in.u32()};
  bytes += in.u64();
  KV_RETURN_IF_ERROR(decode_prefix(front, bytes).status());
  if (key != nullptr) return unsupported("plain, where all is sealed");
  return RemoteFront{bytes, sum_at(front, kFileHashAt)};
}

std::vector<Bytes> RemoteValue::part(uint64_t index) const {
  const uint64_t at = index * kRemotePartBytes;
  return cut(pieces, at, std::min(kRemotePartBytes, front.file_bytes - at));
}

Result<RemoteValue> make_remote_value(const FileImage& image, const SealKey* key) {
  KV_ASSIGN_OR_RETURN(EncodedFile file, encode_file(image));
  RemoteValue value;
  if (key != nullptr) {
    KV_ASSIGN_OR_RETURN(value.pieces, seal(file, file_name(image.header.name), *key));
  } else {
    value.pieces.push_back(Bytes::owning(std::move(file.head)));
    for (Bytes& piece : file.payload) value.pieces.push_back(std::move(piece));
  }
  KV_ASSIGN_OR_RETURN(value.front, decode_remote_front(value.pieces[0].span(), key));
  return value;
}

Result<FileImage> open_remote_value(std::shared_ptr<uint8_t[]> bytes, uint64_t size,
                                    const ObjectName& name, const SealKey* key) {
  std::span<uint8_t> all(bytes.get(), size);
  KV_ASSIGN_OR_RETURN(RemoteFront front, decode_remote_front(all, key));
  if (front.file_bytes != size) return corruption("of another length than its front says");
  uint64_t plain_at = 0;
  if (key != nullptr) {
    KV_ASSIGN_OR_RETURN(plain_at, unseal(all, file_name(name), *key));
  }
  const uint8_t* plain = bytes.get() + plain_at;
  const Bytes file(std::move(bytes), plain, size - plain_at);
  KV_ASSIGN_OR_RETURN(UnframedFile frame, unframe_file(file));
  auto head = file.span().first(kPrefixBytes + frame.prefix.header_bytes);
  KV_ASSIGN_OR_RETURN(HeaderView view, decode_head(head, file.size()));
  if (view.header.name != name) return corruption("the value holds another object than its name");
  FileImage image{std::move(view.header), std::move(view.pieces)};
  size_t at = 0;
  for (Piece& piece : image.pieces) {
    const size_t stored = piece.bytes.size();  // decode_head: they add up to the payload
    piece.bytes = frame.payload.slice(at, stored);
    at += stored;
  }
  return image;
}

Result<std::vector<Bytes>> make_remote_profile(const Profile& profile, std::string_view name,
                                               const SealKey* key) {
  KV_ASSIGN_OR_RETURN(EncodedFile file, encode_profile_file(profile));
  if (key != nullptr) return seal(file, name, *key);
  std::vector<Bytes> pieces{Bytes::owning(std::move(file.head))};
  for (Bytes& piece : file.payload) pieces.push_back(std::move(piece));
  return pieces;
}

Result<Profile> open_remote_profile(std::shared_ptr<uint8_t[]> bytes, uint64_t size,
                                    std::string_view name, const SealKey* key) {
  std::span<uint8_t> all(bytes.get(), size);
  KV_ASSIGN_OR_RETURN(RemoteFront front, decode_remote_front(all, key));
  if (front.file_bytes != size) return corruption("of another length than its front says");
  uint64_t plain_at = 0;
  if (key != nullptr) {
    KV_ASSIGN_OR_RETURN(plain_at, unseal(all, name, *key));
  }
  const uint8_t* plain = bytes.get() + plain_at;
  return decode_profile_file(Bytes(std::move(bytes), plain, size - plain_at));
}

}  // namespace kv
