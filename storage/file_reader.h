// Reading whole files and headers through Files, sizes checked before memory is taken. Any thread.
// Objects: object_reader.h.
//
// Sealed files (sealed_file.h) are opened here, and callers see the plain file. Without `key`, or
// with another, a sealed file is `unsupported` and stays as it is; sealed_by_other() tells it from
// a file of another version.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "proto/bytes.h"
#include "storage/block_file.h"
#include "storage/files.h"
#include "storage/sealed_file.h"

namespace kv {

/// Memory for a file's bytes, uninitialised. Returns: busy (there is none: a file's length decides
/// how much it is, so it is asked for).
Result<std::shared_ptr<uint8_t[]>> file_buffer(uint64_t bytes);

/// A file's bytes, opened if it is sealed, its prefix plausible and of its length, otherwise
/// unverified. `sealed_as`: the name under which it was sealed; empty: that of `path`.
/// Returns: not_found; io_error; corruption (no regular file, the prefix says so, or sealed bytes
/// don't verify); unsupported; busy (file_buffer).
Result<Bytes> read_file(Files& files, const std::string& path, const SealKey* key,
                        std::string_view sealed_as = {});
/// Prefix and header section only, the header's hash verified.
/// `info`: what the file is, once it is open; null: nobody asks. Returns: as read_file.
Result<HeaderView> read_head(Files& files, const std::string& path, const SealKey* key,
                             FileInfo* info = nullptr);

/// The envelope of a file that is sealed with another key than `key`; else nullopt.
std::optional<Envelope> sealed_by_other(Files& files, const std::string& path, const SealKey* key);

}  // namespace kv
