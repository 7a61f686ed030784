// ModelState and RestingModel: what the core knows of a model that somebody uses, and of one that
// nobody does. Values of the loop; core/models.cc keeps them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cachesvc/core/coded_model.h"
#include "cachesvc/core/object_index.h"

namespace kv {

/// Bytes of a model's records on the SSD.
struct RecordBytes {
  uint64_t model = 0, profile = 0;
};

RecordBytes record_bytes(const ModelSpec& spec, const Profile& profile);
/// While records are written each lies in memory once more, encoded; while its id is made, too.
uint64_t record_encoding_bytes(const Profile* profile);

/// A model as some namespace has it. Sessions, reservations and waiting commits hold it; one that
/// nobody holds and nothing is stored of makes room for others.
struct ModelState {
  std::string ns;
  std::shared_ptr<const ModelSpec> spec;
  std::shared_ptr<RealmState> realm;  ///< of the profile in force; null: recovered without it
  uint64_t serial = 0;                ///< of its newest model record; the tier may have raised it
  bool records_durable = false;       ///< profile and model record are on the SSD
  bool records_writing = false;       ///< an attempt is under way: spills of the model wait for it
  RecordBytes record_bytes;
  std::shared_ptr<const CodedModel> coded;  ///< null until it is opened
};

/// A model that nobody holds and nothing is stored of. Its records are on the SSD: the profile is
/// in force again when it is opened.
struct RestingModel {
  Id profile, key;  ///< of its CodedModel
  uint64_t serial = 0;
  uint64_t since = 0;        ///< in the order in which they came to rest
  uint64_t coded_bytes = 0;  ///< that it will take in memory
  RecordBytes record_bytes;
};

}  // namespace kv
