// ModelState and RestingModel: a model in use, and one that is not. Values of the loop;
// core/models.cc keeps them.
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
/// Memory of the encoded copy of a record, while it is written or its id is made.
uint64_t record_encoding_bytes(const Profile* profile);

/// True: the shared tier has the profile in force. REMOTE.md, "Profiles".
enum class FleetProfile : uint8_t {
  none,     ///< there is no shared tier
  unasked,  ///< it will be asked soon
  unheard,  ///< it did not say
  same,
  other,  ///< it has another one: nothing that others store is found
};

/// A model of one namespace. Sessions, reservations and waiting commits hold it; one without
/// holders and stored objects makes room for others.
struct ModelState {
  std::string ns;
  std::shared_ptr<const ModelSpec> spec;
  std::shared_ptr<RealmState> realm;  ///< realm of the profile in force; null: recovered without it
  uint64_t serial = 0;           ///< serial of its newest model record; the tier may have raised it
  bool records_durable = false;  ///< profile and model record are on the SSD
  bool records_writing = false;  ///< an attempt is under way: spills of the model wait for it
  RecordBytes record_bytes;
  FleetProfile fleet = FleetProfile::none;
  std::shared_ptr<const CodedModel> coded;  ///< null until it is opened
};

/// A model that nobody holds and nothing is stored of. Its records are on the SSD: the profile is
/// in force again when it is opened.
struct RestingModel {
  Id profile, key;  ///< as in CodedModel
  uint64_t serial = 0;
  uint64_t since = 0;        ///< place in the order in which models came to rest
  uint64_t coded_bytes = 0;  ///< memory that it takes once opened
  RecordBytes record_bytes;
};

}  // namespace kv
