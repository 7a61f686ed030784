// A whole object file decoded at once; a tier reads head and payload apart
// (storage/object_reader.h). No test framework: for fuzz targets too.
#pragma once

#include "storage/block_file.h"
#include "storage/file_frame.h"

namespace kv::testing {

/// Any bytes are safe input. The image's pieces share `file`.
/// Returns: corruption with the reason; unsupported (another format version, a record file).
inline Result<FileImage> decode_file(const Bytes& file) {
  KV_ASSIGN_OR_RETURN(UnframedFile frame, unframe_file(file));
  auto head = file.span().first(kPrefixBytes + frame.prefix.header_bytes);
  KV_ASSIGN_OR_RETURN(HeaderView view, decode_head(head, file.size()));
  FileImage image{std::move(view.header), std::move(view.pieces)};
  size_t at = 0;
  for (auto& piece : image.pieces) {
    size_t size = piece.bytes.size();  // decode_head: they add up to the payload
    piece.bytes = frame.payload.slice(at, size);
    at += size;
  }
  return image;
}

}  // namespace kv::testing
