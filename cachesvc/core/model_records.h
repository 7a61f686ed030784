// ModelRecords: the writing of models' records on the SSD: a profile and a model record each. How
// many bytes they may take, Models says.
//
// One attempt of a model at a time (ModelState::records_writing), so that the newest record names
// the profile in force. Loop thread only; called by whoever opens, publishes, spills, checks,
// erases or drains.
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
  /// The records of a model that are not on the SSD, unless they are being written.
  void write(ModelState& state);
  void write_missing();  ///< of all models
  /// A record was found damaged, and is in quarantine.
  void rewrite(bool is_profile, const Id& id);
  /// A namespace was erased: its name goes from the SSD. Returns: the ids of records to remove.
  std::vector<Id> forget(const std::string& ns);

 private:
  Env& env_;
  ObjectIndex& index_;
  SsdLane& lane_;
  Models& models_;
};

}  // namespace kv
