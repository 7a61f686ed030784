// The eviction orders of the two tiers.
#include "cachesvc/core/tiers.h"

#include <algorithm>
#include <cmath>

namespace kv {
namespace {

constexpr float kNewWeight = 1.0f / 16;  // of the newest cost in the mean

}  // namespace

void Tiers::told_cost(const Record& record) {
  const float ms = record.realm->ms_per_mib;
  if (!(ms > 0)) return;
  const auto [mean, is_first] = mean_cost_.try_emplace(record.share, std::log2(ms));
  mean->second += (std::log2(ms) - mean->second) * kNewWeight;
}

Worth Tiers::worth_of(const Record& record) const {
  const auto mean = mean_cost_.find(record.share);
  const float ms = record.realm ? record.realm->ms_per_mib : 0;
  if (mean == mean_cost_.end() || !(ms > 0)) return 0;
  const float over = std::round(std::log2(ms) - mean->second);
  return static_cast<Worth>(std::clamp<float>(over, -kMostWorth, kMostWorth));
}

EntryOptions Tiers::entry_options(const Record& record, uint64_t charge_bytes) const {
  EntryOptions options;
  options.charge_bytes = charge_bytes;
  options.urgency = drop_urgency(record);
  options.worth = worth_of(record);
  if (record.realm) {
    const NodeId parent = parent_node(record);
    if (parent != kRootNode) options.parent = node_key(*record.realm, parent);
  }
  return options;
}

void Tiers::set_ram(Record& record, RamObject object) {
  uint64_t payload_bytes = object->payload_bytes();
  EntryOptions options = entry_options(record, RamPool::slab_bytes(payload_bytes));
  options.dirty = !record.on_ssd();
  if (ram_.insert(record.share, record.key, options) && record.pins > 0)
    ram_of(record).pin(record.key);
  record.payload_bytes = payload_bytes;
  record.ram = std::move(object);
  checked(record);
}

void Tiers::moved(Record& record, RamObject object) {
  KV_CHECK(record.ram && record.pins == 0 && record.payload_bytes == object->payload_bytes());
  record.ram = std::move(object);
}

void Tiers::drop_ram(Record& record) {
  if (!record.ram) return;
  if (record.pins > 0) ram_of(record).unpin(record.key);
  KV_CHECK(ram_.erase(record.share, record.key));
  record.ram = {};
}

void Tiers::set_disk(Record& record, Disk to, uint64_t allocated_bytes,
                     std::optional<uint64_t> recency) {
  if (record.on_ssd() && !on_ssd(to)) quit_ssd(record);
  if (!record.on_ssd() && kv::on_ssd(to)) {
    EntryOptions options = entry_options(record, allocated_bytes);
    options.recency = recency;
    if (ssd_.insert(record.share, record.key, options) && record.pins > 0)
      ssd_of(record).pin(record.key);
  }
  record.disk = to;
  if (record.ram) ram_of(record).set_dirty(record.key, !record.on_ssd());
}

void Tiers::quit_ssd(const Record& record) {
  if (record.pins > 0) ssd_of(record).unpin(record.key);
  KV_CHECK(ssd_.erase(record.share, record.key));
}

void Tiers::pin(Record& record) {
  ++pins_;
  if (++record.pins > 1) return;
  if (record.ram) ram_of(record).pin(record.key);
  if (record.on_ssd()) ssd_of(record).pin(record.key);
}

void Tiers::unpin(Record& record) {
  KV_CHECK(record.pins > 0);
  --pins_;
  if (--record.pins > 0) return;
  if (record.ram) ram_of(record).unpin(record.key);
  if (record.on_ssd()) ssd_of(record).unpin(record.key);
}

void Tiers::retain(Record& record) {
  if (++record.wishes.retained == 1) reorder(record);
}

void Tiers::let_go(Record& record) {
  KV_CHECK(record.wishes.retained > 0);
  if (--record.wishes.retained == 0) reorder(record);
}

void Tiers::touch(const std::vector<Record*>& records) {
  if (records.empty()) return;
  std::vector<EntryKey> keys;
  for (Record* r : records) {
    KV_CHECK(r->share == records.front()->share);
    keys.push_back(r->key);
  }
  const Worth worth = worth_of(*records.front());  // all are of one model, or nearly so
  ram_of(*records.front()).touch_all(keys, worth);
  ssd_of(*records.front()).touch_all(keys, worth);
}

void Tiers::use(const std::vector<Record*>& records) {
  touch(records);
  for (Record* r : records) r->use.untold = true;
}

void Tiers::reorder(const Record& record) {
  DropUrgency now = drop_urgency(record);
  ram_of(record).set_urgency(record.key, now);
  ssd_of(record).set_urgency(record.key, now);
}

void Tiers::forget(Record& record) {
  while (record.pins > 0) unpin(record);
  drop_ram(record);
  if (record.on_ssd()) quit_ssd(record);
}

void Tiers::key_changed(const Record& record, EntryKey before) {
  EntryOptions options = entry_options(record, ssd_of(record).charge_bytes(before));
  options.recency = ssd_of(record).recency(before);
  ssd_.insert(record.share, record.key, options);
  KV_CHECK(record.pins == 0 && ssd_.erase(record.share, before));
}

}  // namespace kv
