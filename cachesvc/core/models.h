// Models: the models that somebody uses or has something stored of, and what becomes of a model
// that nobody holds and nothing is stored of: it rests. Its memory goes with its last client, its
// records stay, so that its profile is in force again. Models have shares: of RAM, of the SSD, and
// each namespace of their number.
//
//   new ──put──> in use ──nobody holds it, nothing stored──> resting ──room for others──> gone
//                  ▲                                            │
//                  └────────────────opened again────────────────┘
//
// Loop thread only. Opened by Opens (core/opens.h), found by the reconciler.
#pragma once

#include <map>

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

  /// A start found it.
  void found(ModelRecord record, const std::map<Id, std::shared_ptr<const Profile>>& profiles);
  /// An open puts `coded` in force. Returns: the model as sessions hold it.
  std::shared_ptr<ModelState> put_in_force(const std::string& ns,
                                           std::shared_ptr<const CodedModel> coded);
  /// The same model under the same profile that somebody has, or this one.
  std::shared_ptr<const CodedModel> shared(std::shared_ptr<CodedModel> made);

  // Shares.
  /// A place for one more. Models that rest make room. Returns: busy.
  Status place_for(const std::string& ns);
  /// So many bytes more of the models' share of RAM. Returns: busy, resource_exhausted.
  Status room_for(const std::string& name, uint64_t bytes);
  /// Room for its records in their share of the SSD. Returns: busy.
  Status room_for_records(const std::string& ns, const CodedModel& model);

  /// Codecs that nobody uses are given back.
  void rest_unused() {
    if (!held_) rest();
  }
  /// Realms without objects that no model has in force go, and their profiles that nothing names.
  void release_realms() {
    if (!held_) release({}, {});
  }
  /// An open is under way: nothing names its profile yet, so neither of these two does anything.
  void hold(bool on) { held_ = on; }
  /// True if no open is under way, and no file is unknown.
  bool may_forget() const { return !held_ && !found_.files_unknown(); }
  /// The models of `ns` that rest are forgotten. Returns: the ids of their records.
  std::vector<Id> forget_resting(const std::string& ns);

 private:
  void rest();
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
  bool held_ = false;
};

}  // namespace kv
