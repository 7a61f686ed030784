// ModelRecords: writes models' records to the SSD: a profile and a model record each. Models limits
// their bytes.
//
// One attempt per model runs at a time (ModelState::records_writing), so that the newest record
// names the profile in force. Loop thread only; called by owners that open, publish, spill, check,
// erase or drain.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/core/models.h"

namespace kv {

class ModelRecords {
 public:
  ModelRecords(Env& env, ObjectIndex& index, SsdLane& lane, Models& models)
      : env_(env), index_(index), lane_(lane), models_(models) {}
  ModelRecords(const ModelRecords&) = delete;  // jobs point here
  ModelRecords& operator=(const ModelRecords&) = delete;

  /// Writes profile and model record; `done` follows. `model`: null while it is opened for the
  /// first time. Ends with progress().
  void put(ModelRecord record, std::shared_ptr<const Profile> profile,
           std::shared_ptr<ModelState> model, std::function<void(Status)> done);
  /// Writes a model's records that are not on the SSD, unless they are being written.
  void write(ModelState& state);
  void write_missing();  ///< for all models
  /// Writes a record again that was found damaged, and is in quarantine.
  void rewrite(bool is_profile, const Id& id);
  /// Removes the name of an erased namespace from the SSD. Returns: the ids of records to remove.
  std::vector<Id> forget(const std::string& ns);

 private:
  Env& env_;
  ObjectIndex& index_;
  SsdLane& lane_;
  Models& models_;
};

}  // namespace kv
