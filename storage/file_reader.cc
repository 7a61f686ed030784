// Reads: prefix first, then exactly as many bytes as it and the file's length agree on.
#include "storage/file_reader.h"

#include <algorithm>
#include <array>
#include <memory>
#include <new>

namespace kv {
namespace {

constexpr uint64_t kStepBytes = 4 << 20;  // step of a sealed file: read, then opened

struct OpenFile {
  uint64_t bytes = 0;
  std::array<uint8_t, kPrefixBytes> head{};  // zeros beyond the file's end
};

Result<OpenFile> read_prefix(Files& files, Fd fd) {
  KV_ASSIGN_OR_RETURN(FileInfo info, files.stat(fd));
  if (!info.is_file) return corruption("not a regular file");
  OpenFile out;
  out.bytes = info.bytes;
  if (info.bytes >= kPrefixBytes) KV_RETURN_IF_ERROR(read_all(files, fd, out.head, 0));
  return out;
}

// [0, bytes) of the file, of which the prefix is known.
Result<std::shared_ptr<uint8_t[]>> read_front(Files& files, Fd fd, const OpenFile& file,
                                              uint64_t bytes) {
  KV_ASSIGN_OR_RETURN(auto buffer, file_buffer(bytes));
  std::copy(file.head.begin(), file.head.end(), buffer.get());
  std::span<uint8_t> rest(buffer.get() + kPrefixBytes, bytes - kPrefixBytes);
  KV_RETURN_IF_ERROR(read_all(files, fd, rest, kPrefixBytes));
  return buffer;
}

Result<Envelope> read_envelope(Files& files, Fd fd, const OpenFile& file) {
  std::array<uint8_t, kEnvelopeBytes> front{};
  if (file.bytes < kEnvelopeBytes) return corruption("shorter than the envelope of a sealed file");
  std::copy(file.head.begin(), file.head.end(), front.begin());
  KV_RETURN_IF_ERROR(read_all(files, fd, std::span(front).subspan(kPrefixBytes), kPrefixBytes));
  return decode_envelope(front);
}

bool is_of(const Envelope& envelope, const SealKey* key) {
  return key != nullptr && envelope.key_id == key->id();
}

// A sealed file's head, or all of it, opened in one buffer.
Result<Bytes> read_sealed(Files& files, Fd fd, const OpenFile& file, const SealKey* key,
                          std::string_view name, bool all, uint64_t& plain_bytes) {
  KV_ASSIGN_OR_RETURN(Envelope envelope, read_envelope(files, fd, file));
  if (!is_of(envelope, key)) {
    return unsupported("sealed with another key (key id " + to_hex(envelope.key_id) + ")");
  }
  KV_RETURN_IF_ERROR(check_lengths(envelope, file.bytes));
  plain_bytes = envelope.plain_bytes();
  uint64_t head_at = envelope.head_at(), head_end = head_at + envelope.head_bytes;
  uint64_t wanted = all ? file.bytes : head_end;
  KV_ASSIGN_OR_RETURN(auto buffer, file_buffer(wanted));
  std::span<uint8_t> bytes(buffer.get(), wanted);
  uint64_t end = std::min(wanted, std::max(head_end, kStepBytes));
  KV_RETURN_IF_ERROR(read_all(files, fd, bytes.first(end), 0));
  FileOpener opener;
  KV_RETURN_IF_ERROR(opener.start(*key, name, bytes.first(head_at), envelope));
  KV_RETURN_IF_ERROR(opener.open(bytes.subspan(head_at, end - head_at)));
  while (end < wanted) {
    auto step = bytes.subspan(end, std::min(wanted - end, kStepBytes));
    KV_RETURN_IF_ERROR(read_all(files, fd, step, end));
    KV_RETURN_IF_ERROR(opener.open(step));
    end += step.size();
  }
  KV_CHECK(opener.done() == (wanted == file.bytes));
  const uint8_t* plain = buffer.get() + head_at;
  return Bytes(std::move(buffer), plain, wanted - head_at);
}

std::string_view name_in(const std::string& path) {
  return std::string_view(path).substr(path.rfind('/') + 1);
}

}  // namespace

Result<std::shared_ptr<uint8_t[]>> file_buffer(uint64_t bytes) {
  std::unique_ptr<uint8_t[]> memory(new (std::nothrow) uint8_t[bytes]);
  if (memory == nullptr) {
    return Status(StatusCode::busy,
                  "out of memory: " + std::to_string(bytes) + " bytes for a file");
  }
  return std::shared_ptr<uint8_t[]>(std::move(memory));
}

Result<Bytes> read_file(Files& files, const std::string& path, const SealKey* key,
                        std::string_view sealed_as) {
  KV_ASSIGN_OR_RETURN(Fd fd, files.open_read(path));
  FdGuard guard(files, fd);
  KV_ASSIGN_OR_RETURN(OpenFile file, read_prefix(files, fd));
  uint64_t plain_bytes = 0;
  if (is_sealed(file.head)) {
    std::string_view name = sealed_as.empty() ? name_in(path) : sealed_as;
    return read_sealed(files, fd, file, key, name, true, plain_bytes);
  }
  KV_RETURN_IF_ERROR(decode_prefix(file.head, file.bytes).status());
  KV_ASSIGN_OR_RETURN(auto buffer, read_front(files, fd, file, file.bytes));
  const uint8_t* data = buffer.get();
  return Bytes(std::move(buffer), data, file.bytes);
}

Result<HeaderView> read_head(Files& files, const std::string& path, const SealKey* key) {
  KV_ASSIGN_OR_RETURN(Fd fd, files.open_read(path));
  FdGuard guard(files, fd);
  KV_ASSIGN_OR_RETURN(OpenFile file, read_prefix(files, fd));
  if (is_sealed(file.head)) {
    uint64_t plain_bytes = 0;
    KV_ASSIGN_OR_RETURN(Bytes head,
                        read_sealed(files, fd, file, key, name_in(path), false, plain_bytes));
    return decode_head(head.span(), plain_bytes);
  }
  KV_ASSIGN_OR_RETURN(FilePrefix prefix, decode_prefix(file.head, file.bytes));
  uint64_t bytes = kPrefixBytes + prefix.header_bytes;
  KV_ASSIGN_OR_RETURN(auto buffer, read_front(files, fd, file, bytes));
  return decode_head({buffer.get(), bytes}, file.bytes);
}

std::optional<Envelope> sealed_by_other(Files& files, const std::string& path, const SealKey* key) {
  auto fd = files.open_read(path);
  if (!fd.ok()) return std::nullopt;
  FdGuard guard(files, *fd);
  auto file = read_prefix(files, *fd);
  if (!file.ok() || !is_sealed(file->head)) return std::nullopt;
  auto envelope = read_envelope(files, *fd, *file);
  if (!envelope.ok() || is_of(*envelope, key)) return std::nullopt;
  return *envelope;
}

}  // namespace kv
