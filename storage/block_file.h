// Object files: encoding of a stored object, and decoding that trusts nothing. FORMAT.md, "Object
// file".
//
// A FileImage holds planes and states as they lie on disk: already packed by the caller (storage
// knows no compression). Decoding checks lengths before allocating, then the checksum over every
// byte, then that the id follows from the content; an accepted file is exactly what was encoded.
// Pure functions, any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "proto/bytes.h"
#include "proto/checksum.h"
#include "proto/plane.h"
#include "proto/status.h"
#include "storage/file_names.h"
#include "storage/object_note.h"

namespace kv {

/// Form of a piece's bytes. FORMAT.md, "Packing".
enum class Packing : uint8_t { raw = 0, zstd = 1, split = 2 };
/// "raw", "zstd", "split".
const char* to_string(Packing packing);

/// The bytes of one plane or state as stored.
struct Piece {
  Packing packing = Packing::raw;
  uint64_t unpacked_bytes = 0;  ///< raw: bytes.size()
  Bytes bytes;                  ///< no more than unpacked_bytes
};

/// One object, packed. `header` is an Object whose planes carry no bytes and whose states carry
/// only their length (as decode_header leaves them; an Object with its bytes will do for encoding
/// too).
struct FileImage {
  Object header;
  std::vector<Piece> pieces;  ///< one per plane, then one per state, in the header's order
  /// XXH3-128 of the pieces as stored, one after the other: of a file read with a PlacePayload,
  /// taken where they were placed.
  std::optional<Xxh128> placed_sum{};
  ObjectNote note{};  ///< for the catalog: not in the file

  uint64_t stored_bytes() const;    ///< sum of the pieces as stored
  uint64_t unpacked_bytes() const;  ///< sum of the pieces in memory
};

/// Packs every piece raw; shares the object's bytes.
FileImage raw_image(const Object& object);
/// Turns stored bytes into memory bytes: `piece.unpacked_bytes` of them, or corruption.
using Unpack = std::function<Result<Bytes>(const Piece& piece)>;
/// The object with its planes and states in place. Raw pieces share the image's bytes; `unpack` is
/// called for the others. Returns: corruption (from unpack, or if a size differs).
Result<Object> to_object(const FileImage& image, const Unpack& unpack);

/// A file ready to be written: `head` (prefix and header), then `payload` piece by piece.
struct EncodedFile {
  std::vector<uint8_t> head;
  std::vector<Bytes> payload;
  uint64_t bytes() const;                ///< length of the file
  std::vector<uint8_t> flatten() const;  ///< the file's bytes in one run
};

/// Returns: invalid_argument if pieces don't match planes and states, a size is over its limit, or
/// the id does not follow from the content (proto/identity.h).
Result<EncodedFile> encode_file(const FileImage& image);

/// The fixed first bytes of every file. FORMAT.md, "Prefix".
inline constexpr size_t kPrefixBytes = 56;
inline constexpr uint16_t kFileVersion = 1;
/// Version of object files with a split piece; all else is as in kFileVersion. It differs from the
/// other versions in two bits: no flipped bit makes one of another.
inline constexpr uint16_t kSplitVersion = 4;
/// Version of object files with a stream, whose pieces may be split too, and of profiles with a set
/// of transforms.
inline constexpr uint16_t kStreamVersion = 7;

struct FilePrefix {
  uint16_t version = kFileVersion;
  FileKind kind = FileKind::block;
  uint32_t header_bytes = 0;
  uint64_t payload_bytes = 0;
  Xxh128 header_hash;  ///< hash of bytes [0, 24) and the header
  Xxh128 file_hash;    ///< hash of bytes [0, 40), the header and the payload
  uint64_t file_bytes() const { return kPrefixBytes + header_bytes + payload_bytes; }
};
/// Reads the prefix of a file that is `file_bytes` long; lengths are capped and agree with it.
/// Returns: corruption; unsupported (another format version).
Result<FilePrefix> decode_prefix(std::span<const uint8_t> prefix, uint64_t file_bytes);

/// A decoded header: enough for recovery and listings, payload unread.
struct HeaderView {
  Object header;  ///< planes without bytes, states with lengths only
  uint64_t unpacked_bytes = 0;
  std::vector<Piece> pieces;  ///< packing and sizes; `bytes` are empty slices with a length
};
/// Gives memory for the stored payload: all pieces, one after the other; it outlives the image made
/// of them. Called when the header is verified, the payload not; again, if the file is read again.
/// An error ends the read.
using PlacePayload = std::function<Result<std::span<uint8_t>>(const HeaderView& head)>;
/// `head` is the prefix and the header, at least kPrefixBytes + header_bytes long. Verifies the
/// header hash and the id. Returns: corruption; unsupported (another version, or a record file).
Result<HeaderView> decode_head(std::span<const uint8_t> head, uint64_t file_bytes);

}  // namespace kv
