// Reads: prefix first, then exactly as many bytes as it and the file's length agree on.
#include "storage/file_reader.h"

#include <algorithm>
#include <array>
#include <memory>

namespace kv {
namespace {

struct OpenFile {
  FilePrefix prefix;
  uint64_t bytes = 0;
  std::array<uint8_t, kPrefixBytes> head{};
};

Result<OpenFile> read_prefix(Files& files, Fd fd) {
  KV_ASSIGN_OR_RETURN(FileInfo info, files.stat(fd));
  if (!info.is_file) return corruption("not a regular file");
  OpenFile out;
  out.bytes = info.bytes;
  if (info.bytes >= kPrefixBytes) KV_RETURN_IF_ERROR(read_all(files, fd, out.head, 0));
  KV_ASSIGN_OR_RETURN(out.prefix, decode_prefix(out.head, info.bytes));
  return out;
}

// [0, bytes) of the file, of which the prefix is known.
Result<Bytes> read_front(Files& files, Fd fd, const OpenFile& file, uint64_t bytes) {
  auto buffer = std::make_shared_for_overwrite<uint8_t[]>(bytes);
  std::copy(file.head.begin(), file.head.end(), buffer.get());
  std::span<uint8_t> rest(buffer.get() + kPrefixBytes, bytes - kPrefixBytes);
  KV_RETURN_IF_ERROR(read_all(files, fd, rest, kPrefixBytes));
  const uint8_t* data = buffer.get();
  return Bytes(std::move(buffer), data, bytes);
}

}  // namespace

Result<Bytes> read_file(Files& files, const std::string& path) {
  KV_ASSIGN_OR_RETURN(Fd fd, files.open_read(path));
  FdGuard guard(files, fd);
  KV_ASSIGN_OR_RETURN(OpenFile file, read_prefix(files, fd));
  return read_front(files, fd, file, file.bytes);
}

Result<HeaderView> read_head(Files& files, const std::string& path) {
  KV_ASSIGN_OR_RETURN(Fd fd, files.open_read(path));
  FdGuard guard(files, fd);
  KV_ASSIGN_OR_RETURN(OpenFile file, read_prefix(files, fd));
  KV_ASSIGN_OR_RETURN(Bytes head,
                      read_front(files, fd, file, kPrefixBytes + file.prefix.header_bytes));
  return decode_head(head.span(), file.bytes);
}

Result<FileImage> read_object(Files& files, const std::string& path, const ObjectName& name) {
  KV_ASSIGN_OR_RETURN(Bytes file, read_file(files, path));
  KV_ASSIGN_OR_RETURN(FileImage image, decode_file(file));
  if (image.header.name != name)
    return corruption("the file holds another object than its name says");
  return image;
}

}  // namespace kv
