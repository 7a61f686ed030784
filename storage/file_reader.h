// Reading whole files and headers through Files, sizes checked before memory is taken. Any thread.
#pragma once

#include <string>

#include "proto/bytes.h"
#include "storage/block_file.h"
#include "storage/files.h"

namespace kv {

/// A file's bytes, its prefix plausible and of its length, otherwise unverified.
/// Returns: not_found; io_error; corruption (no regular file, or the prefix says so); unsupported.
Result<Bytes> read_file(Files& files, const std::string& path);
/// Prefix and header section only, the header's hash verified.
/// Returns: as read_file.
Result<HeaderView> read_head(Files& files, const std::string& path);

/// read_file and decode_file, and the content is what the name says.
Result<FileImage> read_object(Files& files, const std::string& path, const ObjectName& name);

}  // namespace kv
