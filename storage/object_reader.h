// Reading one object's file: front to back through a recycled buffer, verified on the way, its
// payload copied once to its final place. Any thread.
//
// Sealed files are opened in the buffer, see file_reader.h.
#pragma once

#include <string>
#include <string_view>

#include "storage/block_file.h"
#include "storage/files.h"
#include "storage/read_buffers.h"
#include "storage/sealed_file.h"

namespace kv {

/// The object of that name, every byte verified. `sealed_as`: the name under which it was sealed;
/// empty: that of `path`. `place`: see PlacePayload; null: the pieces share a buffer of their own.
/// Returns: not_found; io_error; corruption; unsupported (another format version or key, or a
/// record file); busy (no memory for a buffer, the header or the payload); what `place` returned.
Result<FileImage> read_object(Files& files, ReadBuffers& buffers, const std::string& path,
                              const ObjectName& name, const SealKey* key,
                              std::string_view sealed_as = {}, const PlacePayload& place = {});

}  // namespace kv
