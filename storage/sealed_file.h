// The envelope around a sealed file: its layout, sealing and opening. FORMAT.md, "Sealed files".
//
// The content is a whole plain file: its prefix and header section are one message, its payload
// messages of 1 MiB, each with a tag of its own that covers the envelope, the file's name, its
// place and whether it is the last. So bytes of another file, place, length or version don't open.
// All tags stand before the head, so a reader opens each part in place while the rest is being
// read, and a writer fills them in at the end. Pure, any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/bytes.h"
#include "storage/seal_key.h"

namespace kv {

inline constexpr uint16_t kSealedVersion = 2;           ///< stands in the place of kFileVersion
inline constexpr size_t kEnvelopeBytes = 72;            ///< bytes before the tags
inline constexpr uint64_t kSealedChunkBytes = 1 << 20;  ///< bytes of payload under one tag

/// The plain first bytes of a sealed file.
struct Envelope {
  bool ephemeral = false;      ///< the key was in memory only
  uint32_t head_bytes = 0;     ///< the plain file's prefix and header section
  uint64_t payload_bytes = 0;  ///< the plain file's payload
  KeyId key_id{};
  SealSalt salt{};

  uint64_t chunks() const { return (payload_bytes + kSealedChunkBytes - 1) / kSealedChunkBytes; }
  uint64_t plain_bytes() const { return head_bytes + payload_bytes; }
  /// Offset of the head, and of the plain file once it is opened in place.
  uint64_t head_at() const { return kEnvelopeBytes + (1 + chunks()) * kSealTagBytes; }
  uint64_t file_bytes() const { return head_at() + plain_bytes(); }
};

/// True if `front`, a file's first bytes, says that it is sealed, whether it can be opened or not.
bool is_sealed(std::span<const uint8_t> front);
/// `front` is a file's first kEnvelopeBytes, if it has so many; any bytes are safe input. The
/// lengths are as given: whose key it is comes first. Returns: corruption; unsupported (cipher).
Result<Envelope> decode_envelope(std::span<const uint8_t> front);
/// Returns: corruption unless the lengths are within their limits and agree with `file_bytes`.
Status check_lengths(const Envelope& envelope, uint64_t file_bytes);
/// Length of a plain file of these parts once it is sealed.
uint64_t sealed_file_bytes(uint64_t head_bytes, uint64_t payload_bytes);

/// Seals one file, front to back. One thread at a time.
class FileSealer {
 public:
  /// `name`: the file's name, without folder. `salt`: of no other file of this key, ever: random.
  /// Returns: io_error.
  Status start(const SealKey& key, std::string_view name, uint64_t payload_bytes,
               std::span<const uint8_t> head, const SealSalt& salt);
  /// The file's bytes before its payload; the tags are complete after all of the payload only.
  std::span<const uint8_t> front() const { return front_; }
  /// Tags, part of front(), at kEnvelopeBytes.
  std::span<const uint8_t> tags() const {
    return std::span(front_).subspan(kEnvelopeBytes, (1 + chunks_) * kSealTagBytes);
  }
  /// The payload in order, in parts of any size; out[i] is in[i] sealed, and apart from it.
  Status seal(std::span<const uint8_t> in, uint8_t* out);

 private:
  Gcm gcm_;
  std::vector<uint8_t> front_, associated_;
  uint64_t chunks_ = 0, chunk_ = 0;  // the payload's; the one under way, from 1
  uint64_t payload_left_ = 0, chunk_left_ = 0;
};

/// Opens one file, front to back. Nothing of it may be used before all calls said ok. One thread at
/// a time.
class FileOpener {
 public:
  /// `front`: the file's first head_at() bytes, which stay where they are; `envelope`: decoded from
  /// them, of `key`, its lengths checked.
  Status start(const SealKey& key, std::string_view name, std::span<const uint8_t> front,
               const Envelope& envelope);
  /// The head and then the payload in order, in parts of any size, each opened in place.
  /// Returns: corruption; io_error.
  Status open(std::span<uint8_t> bytes);
  /// True if all was opened, and every tag was right.
  bool done() const { return left_ == 0; }

 private:
  Gcm gcm_;
  std::vector<uint8_t> associated_;
  std::span<const uint8_t> tags_;
  uint64_t messages_ = 0, message_ = 0;   // the file's; the one under way
  uint64_t left_ = 0, message_left_ = 0;  // bytes
};

}  // namespace kv
