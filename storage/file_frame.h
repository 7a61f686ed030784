// The frame around every file: prefix, header section, payload, two checksums. FORMAT.md, "Prefix".
//
// Header and payload are opaque here. Pure functions, any thread.
#pragma once

#include <span>
#include <vector>

#include "proto/bytes.h"
#include "proto/status.h"
#include "storage/block_file.h"

namespace kv {

/// Returns: invalid_argument if header or payload is over its limit.
Result<EncodedFile> frame_file(FileKind kind, std::span<const uint8_t> header,
                               std::vector<Bytes> payload, uint16_t version = kFileVersion);

/// First bytes of every file.
inline constexpr char kFileMagic[8] = {'c', 'a', 'c', 'h', 'e', 's', 'v', 'c'};

/// Reads an id; leaves it as it is where the input has ended.
void read_id(ByteReader& in, Id& id);

/// Bytes of the prefix that the file's hash covers: all before the hash itself.
inline constexpr size_t kFileHashAt = 40;

/// A file taken apart, every byte verified. Header and payload share the file's owner.
struct UnframedFile {
  FilePrefix prefix;
  Bytes header;
  Bytes payload;
};
/// Takes a file apart; any bytes are safe input. Returns: corruption; unsupported (another format
/// version).
Result<UnframedFile> unframe_file(const Bytes& file);

/// Returns: corruption if the header hash in the prefix is not that of its bytes.
Status check_header_hash(std::span<const uint8_t> prefix_bytes, std::span<const uint8_t> header,
                         const FilePrefix& prefix);

}  // namespace kv
