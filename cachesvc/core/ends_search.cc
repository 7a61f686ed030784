// The search's phases, a node at a time.
#include "cachesvc/core/ends_search.h"

#include <algorithm>

namespace kv {
namespace {

bool is_superseded(const RealmState& realm, NodeId node) {
  const Record* main = realm.nodes.at(node).main;
  return main && main->superseded;
}

// An entry ends with the node, or has ended: nothing goes on behind it but superseded tails.
bool ends_at(const RealmState& realm, NodeId node) {
  if (node == kRootNode || is_superseded(realm, node)) return false;
  if (realm.tree.child_count(node) == 0) return true;
  const auto children = realm.tree.children(node);
  return std::all_of(children.begin(), children.end(), [&](NodeId child) {
    return realm.tree.child_count(child) == 0 && is_superseded(realm, child);
  });
}

}  // namespace

EndsSearch::EndsSearch(ObjectIndex& index, Ends& ends) : index_(index), ends_(ends) {
  for (const auto& realm : index.realms().all()) left_.push_back(realm);
}

bool EndsSearch::step(size_t nodes) {
  budget_ = nodes;
  while (budget_ > 0 && !left_.empty()) {
    const auto realm = left_.back().lock();
    if (!realm) {
      next_realm();
    } else if (next_ == realm->nodes.size()) {
      next_phase(*realm);
    } else {
      look(*realm, next_++);
      budget_ -= std::min<size_t>(budget_, 1);
    }
  }
  return !left_.empty();
}

void EndsSearch::next_realm() {
  left_.pop_back();
  phase_ = Phase::superseded;
  next_ = kRootNode;
  distance_.clear();
}

void EndsSearch::next_phase(const RealmState& realm) {
  const bool last = phase_ == Phase::served || !(realm.has_supplements() || realm.has_snapshots());
  if (last) return next_realm();
  phase_ = static_cast<Phase>(static_cast<uint8_t>(phase_) + 1);
  next_ = kRootNode;
}

void EndsSearch::look(RealmState& realm, NodeId node) {
  if (!realm.tree.alive(node)) return;
  switch (phase_) {
    case Phase::superseded:
      return find_superseded(realm, node);
    case Phase::distances:
      return find_distances(realm, node);
    case Phase::attached:
      return find_attached(realm, node);
    case Phase::served:
      return find_served(realm, node);
  }
}

// A tail's superseding siblings begin with its tokens, and stand right behind it.
void EndsSearch::find_superseded(RealmState& realm, NodeId node) {
  if (!realm.tree.has_tails(node)) return;
  const std::vector<NodeId> children = realm.tree.children(node);
  for (size_t i = 0; i + 1 < children.size(); ++i) {
    Record* tail = realm.nodes.at(children[i]).main;
    const bool longer = realm.tree.is_tail(children[i]) &&
                        realm.tree.begins_with(children[i + 1], children[i]) &&
                        realm.nodes.at(children[i + 1]).main;
    if (tail && longer) ends_.supersede(*tail);
  }
  budget_ -= std::min(budget_, children.size());
}

// Distances from an end upwards, as far as no other end is nearer.
void EndsSearch::find_distances(const RealmState& realm, NodeId node) {
  if (!ends_at(realm, node)) return;
  uint32_t distance = 0;
  for (NodeId at = node;; at = realm.tree.parent(at), ++distance) {
    auto [known, is_new] = distance_.try_emplace(at, distance);
    if (!is_new && known->second <= distance) return;
    known->second = distance;
    budget_ -= std::min<size_t>(budget_, 1);
    if (at == kRootNode) return;
  }
}

uint32_t EndsSearch::distance_of(NodeId node) const {
  auto known = distance_.find(node);
  return known == distance_.end() ? kNoEnd : known->second;
}

void EndsSearch::find_attached(RealmState& realm, NodeId node) {
  std::vector<Record*> attached;
  realm.nodes.at(node).attached.list(SIZE_MAX, attached);
  for (Record* r : attached) {
    if (r->attachment->named) continue;
    if (r->attachment->end_distance == 0 && ends_.end_lives(*r)) continue;  // a commit marked it
    if (r->name.kind == ObjectKind::snapshot) {
      find_end(*r);
      continue;
    }
    const uint32_t distance = distance_of(node);
    r->attachment->end_distance = distance == kNoEnd ? 1 : std::max(1u, distance);
    index_.tiers().reorder(*r);
  }
  budget_ -= std::min(budget_, attached.size());
}

// A snapshot serves the end of its own node, or of one right below it.
void EndsSearch::find_end(Record& snapshot) {
  const RealmState& realm = *snapshot.realm;
  uint32_t nearest = kNoEnd;
  const Record* end = nullptr;
  auto look = [&](NodeId node) {
    const uint32_t distance = distance_of(node);
    nearest = std::min(nearest, distance);
    if (distance == 0 && serves_end(snapshot, realm.tree.end_token(node))) {
      end = realm.nodes.at(node).main;
    }
  };
  realm.tree.visit_children(snapshot.node, snapshot.attachment->tokens, snapshot.attachment->extras,
                            [&](NodeId child) {
                              look(child);
                              return true;
                            });
  if (snapshot.attachment->tokens.empty()) {
    look(snapshot.node);
    nearest = distance_of(snapshot.node);
  }
  if (end) {
    serve_end(snapshot, *end);
  } else {
    const uint32_t far = nearest == kNoEnd ? 1 : std::max(1u, nearest);
    snapshot.attachment->end_distance = entries_part_at(snapshot) ? 0 : far;
  }
  index_.tiers().reorder(snapshot);
}

// Supplements on the path of an end that it needs.
void EndsSearch::find_served(RealmState& realm, NodeId node) {
  const Record* end = realm.nodes.at(node).main;
  if (!end || !ends_at(realm, node)) return;
  for (NodeId at = node; at != kRootNode; at = realm.tree.parent(at)) {
    for (Record* r : realm.nodes.at(at).attached.supplements()) {
      if (!serves_end(*r, realm.tree.end_token(node))) continue;
      serve_end(*r, *end);
      index_.tiers().reorder(*r);
    }
    budget_ -= std::min<size_t>(budget_, 1);
  }
}

void find_all_ends(ObjectIndex& index, Ends& ends) {
  EndsSearch search(index, ends);
  while (search.step(SIZE_MAX)) {
  }
}

}  // namespace kv
