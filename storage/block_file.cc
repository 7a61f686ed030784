// Object files: encoding and decoding. FORMAT.md, "Prefix", "Object file" and "Packing".
#include "storage/block_file.h"

#include <algorithm>

#include "proto/identity.h"
#include "storage/file_frame.h"

namespace kv {
namespace {

// The unpacked size that the header demands of each piece, in order.
Result<std::vector<uint64_t>> piece_sizes(const Object& header) {
  std::vector<uint64_t> sizes;
  sizes.reserve(header.planes.size() + header.states.size());
  for (const auto& plane : header.planes) sizes.push_back(plane_bytes(plane));
  for (const auto& state : header.states) sizes.push_back(state.bytes.size());
  uint64_t total = 0;
  for (uint64_t size : sizes) {
    // Terms are capped before they are added, so the sum can't overflow.
    if (size > kMaxObjectBytes || (total += size) > kMaxObjectBytes) {
      return corruption("planes and states need more than the limit of " +
                        std::to_string(kMaxObjectBytes) + " bytes");
    }
  }
  return sizes;
}

// Reads one entry of the piece table; its bytes are an empty slice that carries the stored length.
Result<Piece> decode_piece(ByteReader& in, uint16_t version, uint64_t expected, size_t index) {
  uint8_t packing = in.u8();
  uint64_t unpacked = in.u64();
  uint64_t stored = in.u64();
  std::string where = "piece " + std::to_string(index) + ": ";
  if (in.failed()) return corruption(where + "table is truncated");
  const Packing last = version == kFileVersion ? Packing::zstd : Packing::split;
  if (packing > static_cast<uint8_t>(last)) {
    return corruption(where + "unknown packing " + std::to_string(packing));
  }
  if (unpacked != expected) {
    return corruption(where + "unpacked bytes: expected " + std::to_string(expected) + ", given " +
                      std::to_string(unpacked));
  }
  bool raw = packing == 0;
  if (stored > unpacked || (raw && stored != unpacked)) {
    return corruption(where + "stored bytes " + std::to_string(stored) + " for " +
                      std::to_string(unpacked) + (raw ? " raw" : " packed"));
  }
  return Piece{static_cast<Packing>(packing), unpacked, Bytes(nullptr, nullptr, stored)};
}

bool has_streams(const Object& header) {
  return std::ranges::any_of(header.planes,
                             [](const Plane& p) { return coding_word(p) == kTransformWord; });
}

Result<HeaderView> decode_header_section(std::span<const uint8_t> section,
                                         const FilePrefix& prefix) {
  ByteReader in(section);
  HeaderView view;
  KV_ASSIGN_OR_RETURN(view.header, decode_header(in));
  if (static_cast<uint8_t>(view.header.name.kind) != static_cast<uint8_t>(prefix.kind)) {
    return corruption("header is of another kind than the prefix");
  }
  if (has_streams(view.header) != (prefix.version == kStreamVersion)) {
    return corruption("streams in a file of another version, or none in one of theirs");
  }
  KV_ASSIGN_OR_RETURN(auto sizes, piece_sizes(view.header));
  if (in.u32() != sizes.size() || in.failed()) return corruption("piece table: wrong count");
  uint64_t stored = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    KV_ASSIGN_OR_RETURN(Piece piece, decode_piece(in, prefix.version, sizes[i], i));
    view.unpacked_bytes += piece.unpacked_bytes;
    stored += piece.bytes.size();
    view.pieces.push_back(std::move(piece));
  }
  if (!in.done()) return corruption("header: bytes left over");
  if (stored != prefix.payload_bytes) {
    return corruption("payload bytes: expected " + std::to_string(stored) + ", given " +
                      std::to_string(prefix.payload_bytes));
  }
  if (!id_matches(view.header)) return corruption("id does not follow from the content");
  return view;
}

Status check_piece(const Piece& piece, uint64_t expected, size_t index) {
  bool raw = piece.packing == Packing::raw;
  if (piece.unpacked_bytes != expected || piece.bytes.size() > expected ||
      (raw && piece.bytes.size() != expected)) {
    return invalid_argument("piece " + std::to_string(index) + ": expected " +
                            std::to_string(expected) + " bytes, given " +
                            std::to_string(piece.bytes.size()) + " stored of " +
                            std::to_string(piece.unpacked_bytes) + " unpacked");
  }
  return {};
}

// Limits that decode_header checks: encode_header may write nothing beyond them.
Status check_limits(const Object& o) {
  if (o.ns.size() > kMaxNamespaceBytes) return invalid_argument("namespace over its limit");
  if (o.tokens.size() > kMaxBlockTokens) return invalid_argument("tokens over their limit");
  if (o.extras.size() > kMaxExtras) return invalid_argument("extras over their limit");
  if (o.planes.size() > kMaxPlanesPerObject || o.states.size() > kMaxPlanesPerObject) {
    return invalid_argument("planes or states over their limit");
  }
  bool ranged = o.name.kind == ObjectKind::supplement;
  if (!ranged && (o.name.group != 0 || o.name.first_row != 0 || o.name.end_row != 0)) {
    return invalid_argument("group and row range belong to supplements only");
  }
  if (o.name.first_row > o.name.end_row) return invalid_argument("row range ends before it begins");
  return {};
}

}  // namespace

const char* to_string(Packing packing) {
  return packing == Packing::raw ? "raw" : packing == Packing::zstd ? "zstd" : "split";
}

uint64_t FileImage::stored_bytes() const {
  uint64_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.bytes.size();
  return bytes;
}

uint64_t FileImage::unpacked_bytes() const {
  uint64_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.unpacked_bytes;
  return bytes;
}

FileImage raw_image(const Object& object) {
  FileImage image{object, {}};
  for (const auto& p : object.planes) {
    image.pieces.push_back({Packing::raw, p.bytes.size(), p.bytes});
  }
  for (const auto& s : object.states) {
    image.pieces.push_back({Packing::raw, s.bytes.size(), s.bytes});
  }
  return image;
}

Result<Object> to_object(const FileImage& image, const Unpack& unpack) {
  Object object = image.header;
  KV_CHECK(image.pieces.size() == object.planes.size() + object.states.size());
  for (size_t i = 0; i < image.pieces.size(); ++i) {
    const Piece& piece = image.pieces[i];
    Bytes bytes = piece.bytes;
    if (piece.packing != Packing::raw) {
      KV_ASSIGN_OR_RETURN(bytes, unpack(piece));
    }
    if (bytes.size() != piece.unpacked_bytes) {
      return corruption("piece " + std::to_string(i) + ": unpacked to " +
                        std::to_string(bytes.size()) + " bytes, expected " +
                        std::to_string(piece.unpacked_bytes));
    }
    bool plane = i < object.planes.size();
    (plane ? object.planes[i].bytes : object.states[i - object.planes.size()].bytes) = bytes;
  }
  return object;
}

uint64_t EncodedFile::bytes() const {
  uint64_t bytes = head.size();
  for (const auto& piece : payload) bytes += piece.size();
  return bytes;
}

std::vector<uint8_t> EncodedFile::flatten() const {
  std::vector<uint8_t> out = head;
  out.reserve(bytes());
  for (const auto& piece : payload) {
    auto span = piece.span();
    out.insert(out.end(), span.begin(), span.end());
  }
  return out;
}

Result<EncodedFile> encode_file(const FileImage& image) {
  const Object& o = image.header;
  KV_RETURN_IF_ERROR(check_limits(o));
  auto sizes = piece_sizes(o);
  if (!sizes.ok()) return invalid_argument(sizes.status().message());
  if (image.pieces.size() != sizes->size()) {
    return invalid_argument("pieces: expected " + std::to_string(sizes->size()) + ", given " +
                            std::to_string(image.pieces.size()));
  }
  if (!id_matches(o)) return invalid_argument("id does not follow from the content");
  ByteWriter header;
  encode_header(o, header);
  header.u32(static_cast<uint32_t>(image.pieces.size()));
  std::vector<Bytes> payload;
  uint16_t version = has_streams(o) ? kStreamVersion : kFileVersion;
  for (size_t i = 0; i < image.pieces.size(); ++i) {
    const Piece& piece = image.pieces[i];
    KV_RETURN_IF_ERROR(check_piece(piece, (*sizes)[i], i));
    if (piece.packing == Packing::split && version == kFileVersion) version = kSplitVersion;
    header.u8(static_cast<uint8_t>(piece.packing));
    header.u64(piece.unpacked_bytes);
    header.u64(piece.bytes.size());
    payload.push_back(piece.bytes);
  }
  return frame_file(static_cast<FileKind>(o.name.kind), header.span(), std::move(payload), version);
}

Result<HeaderView> decode_head(std::span<const uint8_t> head, uint64_t file_bytes) {
  KV_ASSIGN_OR_RETURN(FilePrefix prefix, decode_prefix(head, file_bytes));
  if (head.size() < kPrefixBytes + prefix.header_bytes) return corruption("header is truncated");
  auto section = head.subspan(kPrefixBytes, prefix.header_bytes);
  KV_RETURN_IF_ERROR(check_header_hash(head.first(kPrefixBytes), section, prefix));
  if (prefix.kind > FileKind::snapshot) return unsupported("a record, not an object file");
  return decode_header_section(section, prefix);
}

}  // namespace kv
