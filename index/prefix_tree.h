// PrefixTree: finds stored blocks and tails that share a prefix with a query, for one realm
// (namespace, model, profile). It holds tokens and structure only; a node's data and its tier are
// the caller's.
//
// Invariants: a block has exactly block_tokens tokens, a tail fewer and no children; siblings are
// ordered by (token, extras) symbol by symbol, so the siblings nearest to a query are those that
// share most with it. One thread at a time (the service's loop thread); nothing here blocks.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "index/child_set.h"
#include "index/symbols.h"
#include "index/token_run.h"
#include "proto/plane.h"
#include "proto/status.h"

namespace kv {

/// A node's handle: valid from insertion until the node is removed, then used again for another
/// one.
using NodeId = uint32_t;
inline constexpr NodeId kRootNode = 0;
inline constexpr NodeId kNoNode = UINT32_MAX;

/// Nodes of one tree, the root included.
inline constexpr uint32_t kMaxTreeNodes = 1u << 26;
/// Side candidates per level: the best by common prefix. Tails that the query matches wholly come
/// in addition (at most block_tokens - 1 of them).
inline constexpr size_t kMaxCandidatesPerLevel = 64;
/// Side candidates of a whole match; beyond it the levels nearest to the root lose theirs first.
inline constexpr size_t kMaxCandidates = 1u << 16;

/// A node beside the matched path that shares at least one token with the query below its parent.
struct SideCandidate {
  NodeId node = kNoNode;
  /// The node's whole sequence (from the root) equals the query's in tokens [0, common), and not in
  /// token `common` (or one of the two ends there).
  uint32_t common = 0;
  bool operator==(const SideCandidate&) const = default;
};

struct PrefixMatch {
  std::vector<NodeId> path;               ///< blocks that the query matches wholly, root first
  std::vector<SideCandidate> candidates;  ///< level by level; within one, the best first
  uint32_t common = 0;                    ///< longest common prefix with any node, in tokens
};

class PrefixTree {
 public:
  /// `block_tokens` in [1, kMaxBlockTokens].
  explicit PrefixTree(uint32_t block_tokens);
  PrefixTree(const PrefixTree&) = delete;  // siblings' order refers to this object
  PrefixTree& operator=(const PrefixTree&) = delete;

  struct Inserted {
    NodeId node = kNoNode;
    bool is_new = false;
  };
  /// The child of `parent` with exactly these tokens and extras, made if there is none: a block if
  /// it has block_tokens tokens, else a tail. A hollow node found here is hollow no longer.
  /// `extras` positions are absolute, ascending, within the child's tokens.
  /// Returns: invalid_argument (parent, number of tokens, extras), resource_exhausted (nodes).
  Result<Inserted> find_or_insert(NodeId parent, std::span<const Token> tokens,
                                  std::span<const Extra> extras);
  /// Checks that tokens and extras could follow the node, as find_or_insert asks: fewer tokens than
  /// a block, extras ascending within them. `parent` is alive. Returns: invalid_argument.
  Status check_part(NodeId parent, std::span<const Token> tokens,
                    std::span<const Extra> extras) const;
  /// kNoNode if there is no such child.
  NodeId find_child(NodeId parent, std::span<const Token> tokens,
                    std::span<const Extra> extras) const;
  /// The nodes (blocks, then perhaps one tail) that together spell `tokens` from the root, as far
  /// as they exist: all of them if the sum of their tokens is tokens.size().
  std::vector<NodeId> find_path(std::span<const Token> tokens, std::span<const Extra> extras) const;

  /// A node without children is removed, and with it every hollow ancestor that has no child left.
  /// A node with children becomes hollow: it stays as a step of the walk. Root and dead handles:
  /// no-op.
  /// Returns: the number of nodes removed.
  size_t erase(NodeId node);

  /// `tokens` is the whole query; `extras` positions are absolute and ascending.
  /// Returns: invalid_argument (extras, kMaxTokens).
  Result<PrefixMatch> match(std::span<const Token> tokens, std::span<const Extra> extras) const;

  /// All nodes but the root, children before parents.
  std::vector<NodeId> all() const;
  /// The first `most` nodes whose whole sequence begins with `tokens`, children before parents; for
  /// an empty query those of all nodes but the root. Same input rules as match(). The cost grows
  /// with the query, the depth and `most`.
  Result<std::vector<NodeId>> beginning_with(std::span<const Token> tokens,
                                             std::span<const Extra> extras, size_t most) const;
  /// The tails below `parent` that the query, which goes on with these tokens, matches wholly;
  /// longest first. `parent` is alive.
  std::vector<NodeId> whole_tails(NodeId parent, std::span<const Token> tokens,
                                  std::span<const Extra> extras) const;

  bool alive(NodeId node) const { return node < nodes_.size() && nodes_[node].alive; }
  // Precondition of the following: `node` is alive.
  NodeId parent(NodeId node) const { return nodes_[node].parent; }
  /// Children in the siblings' order. The root's are those of the first level.
  std::vector<NodeId> children(NodeId node) const;
  size_t child_count(NodeId node) const { return nodes_[node].children.size(); }
  bool has_tails(NodeId node) const {
    return nodes_[node].tail_lengths != nullptr;
  }  ///< true if the node has tails as children
  /// Calls visit(child) for `node`'s children whose own tokens and extras begin with these, in the
  /// siblings' order, until it returns false. `extras` positions are absolute. O(log n) and the
  /// visits.
  template <typename Visit>
  void visit_children(NodeId node, std::span<const Token> tokens, std::span<const Extra> extras,
                      Visit&& visit) const {
    const Symbols prefix{end_token(node), tokens, extras};
    const Children& all = nodes_[node].children;
    for (auto it = all.lower_bound(prefix, Order{this}); it != all.end(); ++it) {
      if (common_symbols(symbols(*it), prefix) < tokens.size() || !visit(*it)) return;
    }
  }
  bool is_tail(NodeId node) const;
  /// True if `node`'s own tokens and extras begin with those of its sibling `other`.
  bool begins_with(NodeId node, NodeId other) const {
    return common_symbols(symbols(node), symbols(other)) == nodes_[other].tokens.size();
  }
  bool is_hollow(NodeId node) const { return nodes_[node].hollow; }
  uint32_t first_token(NodeId node) const;
  uint32_t end_token(NodeId node) const;
  /// Valid while the node lives.
  const TokenRun& tokens(NodeId node) const { return nodes_[node].tokens; }
  std::span<const Extra> extras(NodeId node) const {
    const auto& own = nodes_[node].extras;
    return own ? std::span<const Extra>(*own) : std::span<const Extra>();
  }
  Symbols symbols(NodeId node) const;

  uint32_t block_tokens() const { return block_tokens_; }
  /// Number of nodes, without the root.
  size_t size() const { return live_nodes_; }
  /// Memory held, for the RAM ledger: an estimate within a few per cent of the allocations.
  uint64_t memory_bytes() const;

 private:
  struct Order {
    using is_transparent = void;
    const PrefixTree* tree;
    bool operator()(NodeId a, NodeId b) const {
      return symbols_less(tree->symbols(a), tree->symbols(b));
    }
    bool operator()(NodeId a, const Symbols& b) const { return symbols_less(tree->symbols(a), b); }
    bool operator()(const Symbols& a, NodeId b) const { return symbols_less(a, tree->symbols(b)); }
  };
  using Children = ChildSet<Order>;
  using TailLengths = std::map<uint32_t, uint32_t>;  ///< tokens of a child tail -> number of such
  struct Node {
    TokenRun tokens;
    std::unique_ptr<const std::vector<Extra>> extras;  ///< null: none
    Children children;
    std::unique_ptr<TailLengths> tail_lengths;  ///< null: none
    NodeId parent = kNoNode;                    ///< a dead node's: the next free slot
    uint32_t depth = 0;                         ///< 1 for a child of the root, 0 for the root
    bool hollow = false;
    bool alive = false;
  };

  NodeId take_slot();
  void give_slot(NodeId node);
  void insert_child(NodeId parent, NodeId node);
  void remove_leaf(NodeId node);
  void prefetch_below(NodeId parent, const Symbols& rest) const;
  NodeId match_level(NodeId parent, const Symbols& rest, PrefixMatch& out) const;
  void add_below(NodeId node, size_t most, std::vector<NodeId>& out) const;
  void add_whole_tails(const Node& parent, const Symbols& rest, uint32_t longest,
                       size_t level_begin, PrefixMatch& out) const;

  uint32_t block_tokens_;
  std::deque<Node> nodes_;       // [kRootNode] is the root
  NodeId free_slots_ = kNoNode;  // the first of them
  size_t live_nodes_ = 0;
  uint64_t payload_bytes_ = 0;  // tokens, packed, and extras of live nodes
};

}  // namespace kv
