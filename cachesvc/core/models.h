// Models: models in use (held by a client, or with stored objects) and resting ones (neither). A
// resting model's memory goes with its last client; its records stay, so that its profile is in
// force again once it is opened. Models have shares of RAM and of the SSD, each namespace one of
// their number.
//
//   new ──put──> in use ──nobody holds it, nothing stored──> resting ──room for others──> gone
//                  ▲                                            │
//                  └────────────────opened again────────────────┘
//
// Loop thread only. Opened by Opens (core/opens.h), found by the reconciler.
#pragma once

#include <map>
#include <optional>

#include "cachesvc/core/model_state.h"
#include "cachesvc/core/ssd_lane.h"

namespace kv {

class Models {
 public:
  using Key = std::pair<std::string, Id>;  ///< namespace, fingerprint

  Models(Env& env, ObjectIndex& index, SsdLane& lane, Found& found)
      : env_(env), index_(index), lane_(lane), found_(found) {}
  Models(const Models&) = delete;  // jobs point here
  Models& operator=(const Models&) = delete;

  ModelState* find(const Key& key) const;
  std::shared_ptr<ModelState> share(const Key& key) const;
  ModelState* of(const Record& record) const;  ///< null: nothing of its model was opened or found
  const RestingModel* resting(const Key& key) const;
  const std::map<Key, std::shared_ptr<ModelState>>& all() const { return models_; }

  /// Adds a model whose record a start found.
  void found(ModelRecord record, const std::map<Id, std::shared_ptr<const Profile>>& profiles);
  /// State of a model's records on the SSD, as the open that puts it in force knows it.
  struct RecordsOnSsd {
    uint64_t serial = 0;          ///< of the model record
    std::optional<bool> durable;  ///< nullopt: as before
  };
  /// An open puts `coded` in force. Returns: the model as sessions hold it.
  std::shared_ptr<ModelState> put_in_force(const std::string& ns,
                                           std::shared_ptr<const CodedModel> coded,
                                           RecordsOnSsd records);
  /// The equal model under the same profile that is in use already, else `made`.
  std::shared_ptr<const CodedModel> shared(std::shared_ptr<CodedModel> made);

  // Shares.
  /// Checks that the namespace may have one more model. Resting models make room. Returns: busy.
  Status place_for(const std::string& ns);
  /// Checks that the models' share of RAM has `bytes` more; unused models come to rest for it.
  /// Returns: busy, resource_exhausted.
  Status room_for(const std::string& name, uint64_t bytes);
  /// Checks that the records have room in their share of the SSD. Returns: busy.
  Status room_for_records(const std::string& ns, const CodedModel& model);

  /// Puts unused models to rest, which frees their codecs.
  void rest_unused() {
    if (!suspended_) rest();
  }
  /// Releases realms without objects that no model has in force, and their profiles that nothing
  /// names.
  void release_realms() {
    if (!suspended_) release({}, {});
  }
  /// Suspends both while an open is under way: nothing names its profile yet.
  void suspend(bool on) { suspended_ = on; }
  /// True if no open is under way, and no file is unknown.
  bool may_forget() const { return !suspended_ && !found_.files_unknown(); }
  /// Forgets the resting models of `ns`. Returns: the ids of their records.
  std::vector<Id> forget_resting(const std::string& ns);
  /// Ends the process if a model is in two places, or in force by another name.
  void check_invariants() const;

 private:
  void rest();
  void reorder(const std::shared_ptr<RealmState>& realm, NodeId first);
  bool unused(const std::shared_ptr<ModelState>& model) const;
  RestingModel rested(const ModelState& model);
  bool forget_oldest();
  void release(std::vector<Id> gone_models, std::vector<Id> gone_profiles);
  uint64_t ram_limit() const;
  uint64_t record_limit() const;
  uint64_t records_on_ssd(const std::string& ns, const CodedModel& with) const;
  size_t count_of(const std::string& ns) const;

  Env& env_;
  ObjectIndex& index_;
  SsdLane& lane_;
  Found& found_;
  std::map<Key, std::shared_ptr<ModelState>> models_;
  std::map<Key, RestingModel> resting_;
  uint64_t rests_ = 0;
  std::map<Id, std::weak_ptr<const CodedModel>> coded_;  // by key
  bool suspended_ = false;
};

}  // namespace kv
