// Reads: prefix first, then exactly as many bytes as it and the file's length agree on.
#include "storage/file_reader.h"

#include <algorithm>
#include <array>
#include <memory>
#include <new>

namespace kv {
namespace {

constexpr uint64_t kStepBytes = 4 << 20;  // step of a sealed file: read, then opened

// Bytes that the first read brings: most heads, whole.
constexpr size_t kFirstRead = 4096;

struct OpenFile {
  FileInfo info;
  std::array<uint8_t, kFirstRead> front;  // [0, known) is the file's; zeros up to kPrefixBytes
  size_t known = 0;

  uint64_t bytes() const { return info.bytes; }
  std::span<const uint8_t> prefix() const { return std::span(front).first(kPrefixBytes); }
};

Result<OpenFile> open_front(Files& files, Fd fd) {
  OpenFile out;
  KV_ASSIGN_OR_RETURN(out.info, files.stat(fd));
  if (!out.info.is_file) return corruption("not a regular file");
  out.known = std::min<uint64_t>(kFirstRead, out.bytes());
  std::fill_n(out.front.begin(), kPrefixBytes, uint8_t{0});
  if (out.bytes() < kPrefixBytes) out.known = 0;
  KV_RETURN_IF_ERROR(read_all(files, fd, std::span(out.front).first(out.known), 0));
  return out;
}

// Fills `into` with the file's first bytes, of which some are known.
Status read_front(Files& files, Fd fd, const OpenFile& file, std::span<uint8_t> into) {
  const size_t known = std::min(file.known, into.size());
  std::copy_n(file.front.begin(), known, into.begin());
  return read_all(files, fd, into.subspan(known), known);
}

Result<Envelope> read_envelope(Files& files, Fd fd, const OpenFile& file) {
  std::array<uint8_t, kEnvelopeBytes> front{};
  if (file.bytes() < kEnvelopeBytes)
    return corruption("shorter than the envelope of a sealed file");
  KV_RETURN_IF_ERROR(read_front(files, fd, file, front));
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
  KV_RETURN_IF_ERROR(check_lengths(envelope, file.bytes()));
  plain_bytes = envelope.plain_bytes();
  uint64_t head_at = envelope.head_at(), head_end = head_at + envelope.head_bytes;
  uint64_t wanted = all ? file.bytes() : head_end;
  KV_ASSIGN_OR_RETURN(auto buffer, file_buffer(wanted));
  std::span<uint8_t> bytes(buffer.get(), wanted);
  uint64_t end = std::min(wanted, std::max(head_end, kStepBytes));
  KV_RETURN_IF_ERROR(read_front(files, fd, file, bytes.first(end)));
  FileOpener opener;
  KV_RETURN_IF_ERROR(opener.start(*key, name, bytes.first(head_at), envelope));
  KV_RETURN_IF_ERROR(opener.open(bytes.subspan(head_at, end - head_at)));
  while (end < wanted) {
    auto step = bytes.subspan(end, std::min(wanted - end, kStepBytes));
    KV_RETURN_IF_ERROR(read_all(files, fd, step, end));
    KV_RETURN_IF_ERROR(opener.open(step));
    end += step.size();
  }
  KV_CHECK(opener.done() == (wanted == file.bytes()));
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
  KV_ASSIGN_OR_RETURN(OpenFile file, open_front(files, fd));
  uint64_t plain_bytes = 0;
  if (is_sealed(file.prefix())) {
    std::string_view name = sealed_as.empty() ? name_in(path) : sealed_as;
    return read_sealed(files, fd, file, key, name, true, plain_bytes);
  }
  KV_RETURN_IF_ERROR(decode_prefix(file.prefix(), file.bytes()).status());
  KV_ASSIGN_OR_RETURN(auto buffer, file_buffer(file.bytes()));
  KV_RETURN_IF_ERROR(read_front(files, fd, file, {buffer.get(), file.bytes()}));
  const uint8_t* data = buffer.get();
  return Bytes(std::move(buffer), data, file.bytes());
}

Result<HeaderView> read_head(Files& files, const std::string& path, const SealKey* key,
                             FileInfo* info) {
  KV_ASSIGN_OR_RETURN(Fd fd, files.open_read(path));
  FdGuard guard(files, fd);
  KV_ASSIGN_OR_RETURN(OpenFile file, open_front(files, fd));
  if (info != nullptr) *info = file.info;
  if (is_sealed(file.prefix())) {
    uint64_t plain_bytes = 0;
    KV_ASSIGN_OR_RETURN(Bytes head,
                        read_sealed(files, fd, file, key, name_in(path), false, plain_bytes));
    return decode_head(head.span(), plain_bytes);
  }
  KV_ASSIGN_OR_RETURN(FilePrefix prefix, decode_prefix(file.prefix(), file.bytes()));
  uint64_t bytes = kPrefixBytes + prefix.header_bytes;
  if (bytes <= file.known) return decode_head(std::span(file.front).first(bytes), file.bytes());
  KV_ASSIGN_OR_RETURN(auto buffer, file_buffer(bytes));
  KV_RETURN_IF_ERROR(read_front(files, fd, file, {buffer.get(), bytes}));
  return decode_head({buffer.get(), bytes}, file.bytes());
}

std::optional<Envelope> sealed_by_other(Files& files, const std::string& path, const SealKey* key) {
  auto fd = files.open_read(path);
  if (!fd.ok()) return std::nullopt;
  FdGuard guard(files, *fd);
  auto file = open_front(files, *fd);
  if (!file.ok() || !is_sealed(file->prefix())) return std::nullopt;
  auto envelope = read_envelope(files, *fd, *file);
  if (!envelope.ok() || is_of(*envelope, key)) return std::nullopt;
  return *envelope;
}

}  // namespace kv
