// Objects, streamed: requests of a whole buffer, bytes hashed while they are in the cache.
#include "storage/object_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "storage/file_frame.h"
#include "storage/file_reader.h"

namespace kv {
namespace {

constexpr size_t kCopyStepBytes = 256 << 10;  // copied and then hashed: stays in a core's cache

// The plain bytes of an open file, front to back. Bytes may be used only once the last one was
// taken: a sealed file's bytes are all checked by then.
class PlainBytes {
 public:
  PlainBytes(Files& files, Fd fd, std::span<uint8_t> buffer)
      : files_(files), fd_(fd), buffer_(buffer) {}

  /// Returns: io_error; corruption; unsupported.
  Status start(const SealKey* key, std::string_view name) {
    KV_ASSIGN_OR_RETURN(FileInfo info, files_.stat(fd_));
    if (!info.is_file) return corruption("not a regular file");
    left_ = plain_bytes_ = info.bytes;
    if (left_ > 0) KV_RETURN_IF_ERROR(load());
    return is_sealed(ready_) ? unseal(key, name) : Status();
  }
  /// Length of the plain file.
  uint64_t bytes() const { return plain_bytes_; }
  /// The next bytes; `hash` and `second` get them too, if they are not null.
  Status take(std::span<uint8_t> out, Xxh128Stream* hash, Xxh128Stream* second = nullptr) {
    while (!out.empty()) {
      if (ready_.empty()) {
        KV_RETURN_IF_ERROR(load());
        if (opener_) KV_RETURN_IF_ERROR(opener_->open(ready_));
      }
      auto step = out.first(std::min({out.size(), ready_.size(), kCopyStepBytes}));
      std::memcpy(step.data(), ready_.data(), step.size());
      if (hash != nullptr) hash->update(step);
      if (second != nullptr) second->update(step);
      ready_ = ready_.subspan(step.size());
      out = out.subspan(step.size());
    }
    return {};
  }

 private:
  // Offset, memory and length of the request are aligned for direct reads.
  Status load() {
    size_t wanted = std::min<uint64_t>(left_, buffer_.size());
    if (wanted == 0) return corruption("file ends at byte " + std::to_string(at_));
    size_t asked = (wanted + kDirectAlign - 1) / kDirectAlign * kDirectAlign;
    for (size_t got = 0; got < wanted;) {
      KV_ASSIGN_OR_RETURN(size_t n,
                          files_.pread(fd_, buffer_.subspan(got, asked - got), at_ + got));
      if (n == 0) return corruption("file ends at byte " + std::to_string(at_ + got));
      got += n;
    }
    at_ += wanted;
    left_ -= wanted;
    ready_ = buffer_.first(wanted);
    return {};
  }

  Status unseal(const SealKey* key, std::string_view name) {
    if (plain_bytes_ < kEnvelopeBytes) {
      return corruption("shorter than the envelope of a sealed file");
    }
    KV_ASSIGN_OR_RETURN(Envelope envelope, decode_envelope(ready_.first(kEnvelopeBytes)));
    if (key == nullptr || envelope.key_id != key->id()) {
      return unsupported("sealed with another key (key id " + to_hex(envelope.key_id) + ")");
    }
    KV_RETURN_IF_ERROR(check_lengths(envelope, plain_bytes_));
    plain_bytes_ = envelope.plain_bytes();
    auto front = ready_.first(envelope.head_at());
    ready_ = ready_.subspan(front.size());
    front_.assign(front.begin(), front.end());
    opener_.emplace();
    KV_RETURN_IF_ERROR(opener_->start(*key, name, front_, envelope));
    return opener_->open(ready_);
  }

  Files& files_;
  Fd fd_;
  std::span<uint8_t> buffer_, ready_;  // ready_: read, opened, not taken
  uint64_t at_ = 0, left_ = 0;         // position in the file, bytes left
  uint64_t plain_bytes_ = 0;
  std::vector<uint8_t> front_;
  std::optional<FileOpener> opener_;
};
// The first request has all tags.
static_assert(kEnvelopeBytes + (2 + kMaxObjectBytes / kSealedChunkBytes) * kSealTagBytes <
              kReadBufferBytes);

struct Head {
  FilePrefix prefix;
  HeaderView view;
};

Result<Head> take_head(PlainBytes& file, Xxh128Stream& hash) {
  std::array<uint8_t, kPrefixBytes> front{};
  if (file.bytes() >= kPrefixBytes) KV_RETURN_IF_ERROR(file.take(front, nullptr));
  Head head;
  KV_ASSIGN_OR_RETURN(head.prefix, decode_prefix(front, file.bytes()));
  const size_t bytes = kPrefixBytes + head.prefix.header_bytes;
  KV_ASSIGN_OR_RETURN(auto memory, file_buffer(bytes));
  std::span<uint8_t> all(memory.get(), bytes);
  std::copy(front.begin(), front.end(), all.begin());
  hash.update(std::span(front).first(kFileHashAt));
  KV_RETURN_IF_ERROR(file.take(all.subspan(kPrefixBytes), &hash));
  KV_ASSIGN_OR_RETURN(head.view, decode_head(all, file.bytes()));
  return head;
}

}  // namespace

Result<FileImage> read_object(Files& files, ReadBuffers& buffers, const std::string& path,
                              const ObjectName& name, const SealKey* key,
                              std::string_view sealed_as, const PlacePayload& place) {
  KV_ASSIGN_OR_RETURN(Fd fd, files.open_stream(path));
  FdGuard guard(files, fd);
  ReadBuffers::Use buffer(buffers);
  if (!buffer) return Status(StatusCode::busy, "out of memory: no buffer to read through");
  PlainBytes file(files, fd, buffer.span());
  if (sealed_as.empty()) sealed_as = std::string_view(path).substr(path.rfind('/') + 1);
  KV_RETURN_IF_ERROR(file.start(key, sealed_as));
  Xxh128Stream hash;
  KV_ASSIGN_OR_RETURN(Head head, take_head(file, hash));
  if (head.view.header.name != name) {
    return corruption("the file holds another object than its name says");
  }
  std::shared_ptr<uint8_t[]> own;
  std::span<uint8_t> payload;
  if (place) {
    KV_ASSIGN_OR_RETURN(payload, place(head.view));
    KV_CHECK(payload.size() == head.prefix.payload_bytes);
  } else {
    KV_ASSIGN_OR_RETURN(own, file_buffer(head.prefix.payload_bytes));
    payload = {own.get(), head.prefix.payload_bytes};
  }
  Xxh128Stream placed;
  KV_RETURN_IF_ERROR(file.take(payload, &hash, place ? &placed : nullptr));
  if (hash.digest() != head.prefix.file_hash) return corruption("file checksum differs");
  FileImage image{std::move(head.view.header), std::move(head.view.pieces), std::nullopt};
  if (place) image.placed_sum = placed.digest();
  for (Piece& piece : image.pieces) {  // decode_head: they add up to the payload
    piece.bytes = Bytes(own, payload.data(), piece.bytes.size());
    payload = payload.subspan(piece.bytes.size());
  }
  return image;
}

}  // namespace kv
