// Framing and verification common to all files. FORMAT.md, "Prefix".
#include "storage/file_frame.h"

#include <algorithm>
#include <cstring>

namespace kv {
namespace {

constexpr size_t kHeaderHashAt = 24;  // it covers the prefix before it

void write_hash(ByteWriter& out, const Xxh128& hash) {
  out.u64(hash.low);
  out.u64(hash.high);
}

Xxh128 read_hash(ByteReader& in) {
  Xxh128 hash;
  hash.low = in.u64();
  hash.high = in.u64();
  return hash;
}

Xxh128 hash_header(std::span<const uint8_t> prefix, std::span<const uint8_t> header) {
  Xxh128Stream stream;
  stream.update(prefix.first(kHeaderHashAt));
  stream.update(header);
  return stream.digest();
}

bool is_kind(uint8_t kind) { return (kind >= 1 && kind <= 4) || kind == 16 || kind == 17; }

uint64_t max_payload(FileKind kind) { return is_record(kind) ? kMaxProfileBytes : kMaxObjectBytes; }

}  // namespace

void read_id(ByteReader& in, Id& id) {
  auto bytes = in.raw(id.bytes.size());
  if (!in.failed()) std::copy(bytes.begin(), bytes.end(), id.bytes.begin());
}

Result<EncodedFile> frame_file(FileKind kind, std::span<const uint8_t> header,
                               std::vector<Bytes> payload, uint16_t version) {
  uint64_t payload_bytes = 0;
  for (const auto& piece : payload) payload_bytes += piece.size();
  if (header.size() > kMaxObjectHeaderBytes || payload_bytes > max_payload(kind)) {
    return invalid_argument("file of " + std::to_string(header.size()) + " header and " +
                            std::to_string(payload_bytes) + " payload bytes is over its limit");
  }
  ByteWriter out;
  out.bytes().reserve(kPrefixBytes + header.size());
  out.raw({reinterpret_cast<const uint8_t*>(kFileMagic), sizeof(kFileMagic)});
  out.u16(version);
  out.u8(static_cast<uint8_t>(kind));
  out.u8(0);
  out.u32(static_cast<uint32_t>(header.size()));
  out.u64(payload_bytes);
  write_hash(out, hash_header(out.span(), header));
  Xxh128Stream stream;
  stream.update(out.span());
  stream.update(header);
  for (const auto& piece : payload) stream.update(piece.span());
  write_hash(out, stream.digest());
  KV_CHECK(out.size() == kPrefixBytes);
  out.raw(header);
  return EncodedFile{out.take(), std::move(payload)};
}

Result<FilePrefix> decode_prefix(std::span<const uint8_t> prefix, uint64_t file_bytes) {
  if (prefix.size() < kPrefixBytes || file_bytes < kPrefixBytes) {
    return corruption("file of " + std::to_string(file_bytes) + " bytes is shorter than a prefix");
  }
  if (std::memcmp(prefix.data(), kFileMagic, sizeof(kFileMagic)) != 0) {
    return corruption("wrong magic");
  }
  ByteReader in(prefix.first(kPrefixBytes));
  in.raw(sizeof(kFileMagic));
  FilePrefix out;
  out.version = in.u16();
  if (out.version != kFileVersion && out.version != kSplitVersion &&
      out.version != kStreamVersion) {
    return unsupported("format version " + std::to_string(out.version) + ", this program reads " +
                       std::to_string(kFileVersion) + ", " + std::to_string(kSplitVersion) +
                       " and " + std::to_string(kStreamVersion));
  }
  uint8_t kind = in.u8(), zero = in.u8();
  if (!is_kind(kind) || zero != 0) return corruption("unknown file kind " + std::to_string(kind));
  out.kind = static_cast<FileKind>(kind);
  const bool streams = out.version == kStreamVersion;
  if ((out.version == kSplitVersion && is_record(out.kind)) ||
      (streams && out.kind == FileKind::model_record)) {
    return corruption("a record of the version of split planes or streams");
  }
  out.header_bytes = in.u32();
  out.payload_bytes = in.u64();
  out.header_hash = read_hash(in);
  out.file_hash = read_hash(in);
  if (out.header_bytes > kMaxObjectHeaderBytes || out.payload_bytes > max_payload(out.kind)) {
    return corruption("header or payload length is over its limit");
  }
  if (out.file_bytes() != file_bytes) {
    return corruption("file length: expected " + std::to_string(out.file_bytes()) + ", given " +
                      std::to_string(file_bytes));
  }
  return out;
}

Status check_header_hash(std::span<const uint8_t> prefix_bytes, std::span<const uint8_t> header,
                         const FilePrefix& prefix) {
  if (hash_header(prefix_bytes, header) == prefix.header_hash) return {};
  return corruption("header checksum differs");
}

Result<UnframedFile> unframe_file(const Bytes& file) {
  KV_ASSIGN_OR_RETURN(FilePrefix prefix, decode_prefix(file.span(), file.size()));
  Bytes header = file.slice(kPrefixBytes, prefix.header_bytes);
  Bytes payload = file.slice(kPrefixBytes + prefix.header_bytes, prefix.payload_bytes);
  Xxh128Stream stream;
  stream.update(file.span().first(kFileHashAt));
  stream.update(header.span());
  stream.update(payload.span());
  if (stream.digest() != prefix.file_hash) return corruption("file checksum differs");
  KV_RETURN_IF_ERROR(check_header_hash(file.span(), header.span(), prefix));
  return UnframedFile{prefix, header, payload};
}

}  // namespace kv
