// RealmState: one prefix tree, the objects on its nodes, and how to read them. ObjectIndex alone
// changes tree and nodes; a shared pointer keeps the realm in memory. Loop thread only.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "cachesvc/core/attached.h"
#include "cachesvc/core/fit_watch.h"
#include "cachesvc/core/part_groups.h"
#include "codec/codec.h"
#include "index/sharded_map.h"
#include "proto/identity.h"

namespace kv {

/// One (namespace, model, profile): a tree and how to read its objects.
struct RealmState {
  RealmState(Realm r, ShareId its_share, uint32_t number, std::shared_ptr<const ModelSpec> m,
             std::shared_ptr<const Profile> p)
      : realm(std::move(r)),
        share(its_share),
        index(number),
        model(std::move(m)),
        profile(std::move(p)),
        groups(model),
        tree(profile->block_tokens),
        nodes(1) {}
  struct Node {
    Id id;
    Record* main = nullptr;
    Attached attached;
    /// Adds the node's records, what hangs on it first, until there are `most` in `out`.
    void list(size_t most, std::vector<Record*>& out) const {
      attached.list(most, out);
      if (main && out.size() < most) out.push_back(main);
    }
  };
  Realm realm;
  ShareId share;  ///< its namespace's
  uint32_t index;
  std::shared_ptr<const ModelSpec> model;
  std::shared_ptr<const Profile> profile;
  std::shared_ptr<const Codec> codec;  ///< null until the model is opened
  PartGroups groups;
  FitWatch fit;  ///< of what was stored since the start
  PrefixTree tree;
  std::deque<Node> nodes;  ///< by NodeId; a node that the tree doesn't have is empty
  ShardedMap<Id, NodeId, IdHash> node_of;
  bool in_force = true;
  float ms_per_token = 0;    ///< prefill, by what a client last told of an entry; 0: nothing
  float ms_per_mib = 0;      ///< the same of a MiB that is stored
  bool others_lost = false;  ///< objects of this model are stored whose profile is lost
  bool empty() const { return tree.size() == 0 && nodes[kRootNode].attached.empty(); }
  bool has_supplements() const;  ///< some part's rows, carries or states come apart from blocks
  bool has_snapshots() const;    ///< some part's states are there at checkpoints
  uint32_t block_tokens() const { return profile->block_tokens; }
};

/// The node above a block or tail, or on which a supplement or snapshot hangs. Not for orphans.
NodeId parent_node(const Record& record);

/// The urgency with which a record goes before others of its tier: one that is not in force, a tail
/// that is superseded and what hangs on it, then what is far from an entry's end.
DropUrgency drop_urgency(const Record& record);

}  // namespace kv
