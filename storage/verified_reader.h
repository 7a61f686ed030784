// VerifiedReader: reads whole files and verifies them. A file that fails is read once more, and if
// it fails again it leaves the store for quarantine.
//
// read() and verify() run on any thread beside each other and one writer: only a file that fails
// takes the tier's writer lock, for its second read and its move, so that the file that fails is
// the file that is moved. The other calls are made under that lock. Internal to storage/.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "storage/catalog_mirror.h"
#include "storage/file_names.h"
#include "storage/object_reader.h"
#include "storage/quarantine.h"
#include "storage/read_buffers.h"
#include "storage/ssd_stats.h"
#include "storage/store_dir.h"

namespace kv {

class VerifiedReader {
 public:
  /// `writer`: the tier's lock. `buffers`: files are read through so many, at most
  /// kMostReadBuffers.
  VerifiedReader(StoreDir& dir, CatalogMirror& catalog, Quarantine& quarantine, std::mutex& writer,
                 size_t buffers);

  /// See SsdTier::read().
  Result<FileImage> read(const ObjectName& name, const PlacePayload& place);
  /// See SsdTier::verify().
  Status verify(const std::string& file);
  void make_ready() { buffers_.make_ready(); }

  /// Reads like read(), for a caller that has the writer lock; counts no read.
  Result<FileImage> read_as_writer(const ObjectName& name);
  /// Takes a damaged file out of the store: its row goes, then the file moves to quarantine.
  /// Returns: io_error.
  Status move_away(const Id& id, const std::string& file);
  /// Clears the buffers: no read bytes stay in memory.
  void clear() { buffers_.clear(); }

  /// reads, bytes_read, read_errors, corruptions, rereads_saved. Any thread.
  void count(SsdStats& out) const;

 private:
  Result<FileImage> read_once(const ObjectName& name, const PlacePayload& place);
  Result<FileImage> read_again(const ObjectName& name, const PlacePayload& place);
  Status read_record(const ParsedName& name, const std::string& path);
  Status verify_record(const ParsedName& name, const std::string& file);

  StoreDir& dir_;
  CatalogMirror& catalog_;
  Quarantine& quarantine_;
  std::mutex& writer_mutex_;
  ReadBuffers buffers_;
  std::atomic<uint64_t> reads_{0}, bytes_read_{0}, read_errors_{0}, corruptions_{0},
      rereads_saved_{0};
};

}  // namespace kv
