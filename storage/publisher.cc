// Temporary files: written in 1 MiB runs, synced, renamed.
#include "storage/publisher.h"

#include <algorithm>

namespace kv {
namespace {

constexpr size_t kRunBytes = 1 << 20;  // bytes of one pwrite; smaller pieces are gathered
constexpr uint64_t kBlockBytes = 4096;

// Gathers small pieces and passes large ones through.
class RunWriter {
 public:
  /// `run`: has kRunBytes of memory.
  RunWriter(Files& files, Fd fd, std::vector<uint8_t>& run) : files_(files), fd_(fd), run_(run) {
    run_.clear();
  }
  Status append(std::span<const uint8_t> bytes) {
    if (run_.size() + bytes.size() > kRunBytes) KV_RETURN_IF_ERROR(flush());
    if (bytes.size() >= kRunBytes) return write(bytes);
    run_.insert(run_.end(), bytes.begin(), bytes.end());
    return {};
  }
  /// Appends what `sealer` makes of `bytes`.
  Status append_sealed(FileSealer& sealer, std::span<const uint8_t> bytes) {
    while (!bytes.empty()) {
      if (run_.size() == kRunBytes) KV_RETURN_IF_ERROR(flush());
      size_t at = run_.size();
      auto part = bytes.first(std::min(bytes.size(), kRunBytes - at));
      run_.resize(at + part.size());
      KV_RETURN_IF_ERROR(sealer.seal(part, run_.data() + at));
      bytes = bytes.subspan(part.size());
    }
    return {};
  }
  Status flush() {
    Status status = write(run_);
    run_.clear();
    return status;
  }

 private:
  Status write(std::span<const uint8_t> bytes) {
    KV_RETURN_IF_ERROR(write_all(files_, fd_, bytes, at_));
    at_ += bytes.size();
    return {};
  }
  Files& files_;
  Fd fd_;
  std::vector<uint8_t>& run_;
  uint64_t at_ = 0;
};

uint64_t payload_bytes(const EncodedFile& file) { return file.bytes() - file.head.size(); }

}  // namespace

uint64_t file_room(uint64_t bytes) {
  uint64_t blocks = (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  // Extents: a 4 KiB index block holds 340 of them; even single-block extents stay below 1/256.
  return blocks + blocks / 256 + kBlockBytes + kFolderGrowthBytes;
}

Publisher::Publisher(StoreDir& dir, OtherKeys& others, StepObserver observer)
    : dir_(dir), others_(others), observer_(std::move(observer)) {
  run_.reserve(kRunBytes);
}

Status Publisher::check_room(uint64_t room) {
  if (!dir_.ledger().reserve(room)) {
    const Ledger& ledger = dir_.ledger();
    return {StatusCode::resource_exhausted, "ssd limit: " + std::to_string(room) +
                                                " bytes needed, " + std::to_string(ledger.left()) +
                                                " left of limit_bytes " +
                                                std::to_string(ledger.limit())};
  }
  Status status = dir_.check_free(room);
  if (!status.ok()) dir_.ledger().unreserve(room);
  return status;
}

Status Publisher::write_pieces(const EncodedFile& file, const PendingFile& pending) {
  // Space first: a full disk shows before any byte is written, and extents stay few.
  KV_RETURN_IF_ERROR(dir_.files().allocate(pending.file->get(), pending.bytes));
  bytes_written_ += pending.bytes;
  RunWriter writer(dir_.files(), pending.file->get(), run_);
  FileSealer sealer;
  if (dir_.key() != nullptr) {
    SealSalt salt;
    KV_RETURN_IF_ERROR(random_fill(salt));
    KV_RETURN_IF_ERROR(
        sealer.start(*dir_.key(), pending.name, payload_bytes(file), file.head, salt));
  }
  KV_RETURN_IF_ERROR(writer.append(dir_.key() != nullptr ? sealer.front() : file.head));
  if (observer_) {
    KV_RETURN_IF_ERROR(writer.flush());
    observe(Step::temp_first_byte, pending.name);
  }
  for (const auto& piece : file.payload) {
    KV_RETURN_IF_ERROR(dir_.key() != nullptr ? writer.append_sealed(sealer, piece.span())
                                             : writer.append(piece.span()));
  }
  KV_RETURN_IF_ERROR(writer.flush());
  if (dir_.key() == nullptr) return {};
  KV_RETURN_IF_ERROR(write_all(dir_.files(), pending.file->get(), sealer.tags(), kEnvelopeBytes));
  dir_.files().write_behind(pending.file->get());  // runs while the next file is sealed
  return {};
}

Status Publisher::write_temp(const EncodedFile& file, uint64_t extra_room, PendingFile& pending) {
  Status status = try_write_temp(file, extra_room, pending);
  while (status.code() == StatusCode::resource_exhausted &&
         others_.make_room(file_room(file.bytes()) + extra_room)) {
    status = try_write_temp(file, extra_room, pending);
  }
  return status;
}

Status Publisher::try_write_temp(const EncodedFile& file, uint64_t extra_room,
                                 PendingFile& pending) {
  pending.bytes = dir_.key() == nullptr ? file.bytes()
                                        : sealed_file_bytes(file.head.size(), payload_bytes(file));
  uint64_t room = file_room(pending.bytes) + extra_room;
  KV_RETURN_IF_ERROR(check_room(room));
  pending.reserved = room;
  std::string path = dir_.temp_folder() + "/" + std::to_string(next_temp_++) + kTempSuffix;
  auto fd = dir_.files().create(path);
  if (!fd.ok()) {
    settle(pending);
    return fd.status();
  }
  pending.file.emplace(dir_.files(), *fd);
  pending.temp_path = std::move(path);
  observe(Step::temp_created, pending.name);
  Status status = write_pieces(file, pending);
  if (!status.ok()) abandon(pending);
  return status;
}

Status Publisher::sync_temp(PendingFile& pending) {
  Status status = dir_.files().fdatasync(pending.file->get());
  if (status.ok()) {
    auto info = dir_.files().stat(pending.file->get());
    // Unmeasurable: charge the bound, which is never too low.
    pending.allocated_bytes = info.ok() ? info->allocated_bytes : file_room(pending.bytes);
  }
  pending.file.reset();
  if (!status.ok()) {
    abandon(pending);
    return status;
  }
  observe(Step::temp_synced, pending.name);
  return {};
}

Status Publisher::publish(PendingFile& pending) {
  std::string path = dir_.file_path(pending.id, pending.name);
  auto replaced = dir_.files().stat(path);
  Status status = dir_.files().rename(pending.temp_path, path);
  if (!status.ok()) {
    abandon(pending);
    return status;
  }
  pending.temp_path.clear();
  others_.forget(pending.name);
  uint32_t folder = folder_of(pending.id);
  dir_.mark_dirty(folder);
  dir_.ledger().replace(replaced.ok() ? replaced->allocated_bytes : 0, pending.allocated_bytes);
  dir_.measure(folder);
  observe(Step::renamed, pending.name);
  return {};
}

Result<uint64_t> Publisher::remove(const Id& id, const std::string& name) {
  std::string path = dir_.file_path(id, name);
  KV_ASSIGN_OR_RETURN(FileInfo info, dir_.files().stat(path));
  KV_RETURN_IF_ERROR(dir_.files().unlink(path));
  dir_.ledger().remove(info.allocated_bytes);
  others_.forget(name);
  dir_.mark_dirty(folder_of(id));
  ++removed_;
  observe(Step::unlinked, name);
  return info.allocated_bytes;
}

void Publisher::settle(PendingFile& pending) {
  dir_.ledger().unreserve(pending.reserved);
  pending.reserved = 0;
}

void Publisher::abandon(PendingFile& pending) {
  pending.file.reset();
  if (!pending.temp_path.empty()) {
    // The file may still be there: its bytes stay charged until the next start removes it.
    bool gone = dir_.files().unlink(pending.temp_path).ok();
    if (!gone) dir_.ledger().add(file_room(pending.bytes));
    pending.temp_path.clear();
  }
  dir_.measure(folder_of(pending.id));
  settle(pending);
}

}  // namespace kv
