// PrefixTree: ordered siblings, so that a level costs one binary search plus its candidates.
//
// Siblings are in the order of their symbols: those that share most with a query are the neighbours
// of its upper bound, on either side.
#include "index/prefix_tree.h"

#include <algorithm>
#include <string>
#include <utility>

#include "proto/limits.h"

namespace kv {
namespace {

Status check_sequence(uint64_t first, uint64_t tokens, std::span<const Extra> extras) {
  if (first + tokens > kMaxTokens) {
    return invalid_argument("tokens: the sequence has " + std::to_string(first + tokens) +
                            ", limit " + std::to_string(kMaxTokens));
  }
  if (extras.size() > kMaxExtras) {
    return invalid_argument("extras: " + std::to_string(extras.size()) + " of them, limit " +
                            std::to_string(kMaxExtras));
  }
  for (size_t i = 0; i < extras.size(); ++i) {
    const Extra& e = extras[i];
    if (e.position < first || e.position >= first + tokens) {
      return invalid_argument("extras[" + std::to_string(i) +
                              "].position: " + std::to_string(e.position) + " is not in [" +
                              std::to_string(first) + ", " + std::to_string(first + tokens) + ")");
    }
    if (i > 0 && e.position < extras[i - 1].position) {
      return invalid_argument("extras[" + std::to_string(i) + "].position: must be ascending");
    }
    if (e.bytes.size() > kMaxExtraBytes) {
      return invalid_argument("extras[" + std::to_string(i) +
                              "].bytes: " + std::to_string(e.bytes.size()) + " bytes, limit " +
                              std::to_string(kMaxExtraBytes));
    }
  }
  return {};
}

}  // namespace

PrefixTree::PrefixTree(uint32_t block_tokens) : block_tokens_(block_tokens) {
  KV_CHECK(block_tokens >= 1 && block_tokens <= kMaxBlockTokens);
  nodes_.emplace_back();
  nodes_[kRootNode].alive = true;
}

Symbols PrefixTree::symbols(NodeId node) const {
  return {first_token(node), {}, extras(node), &nodes_[node].tokens};
}

uint32_t PrefixTree::first_token(NodeId node) const {
  return node == kRootNode ? 0 : (nodes_[node].depth - 1) * block_tokens_;
}

uint32_t PrefixTree::end_token(NodeId node) const {
  return first_token(node) + nodes_[node].tokens.size();
}

bool PrefixTree::is_tail(NodeId node) const {
  return node != kRootNode && nodes_[node].tokens.size() < block_tokens_;
}

NodeId PrefixTree::take_slot() {
  if (free_slots_ != kNoNode) return std::exchange(free_slots_, nodes_[free_slots_].parent);
  if (nodes_.size() >= kMaxTreeNodes) return kNoNode;
  nodes_.emplace_back();
  return static_cast<NodeId>(nodes_.size() - 1);
}

Result<PrefixTree::Inserted> PrefixTree::find_or_insert(NodeId parent,
                                                        std::span<const Token> tokens,
                                                        std::span<const Extra> extras) {
  if (!alive(parent)) return invalid_argument("parent: no such node");
  if (is_tail(parent)) return invalid_argument("parent: a tail has no children");
  if (tokens.empty() || tokens.size() > block_tokens_) {
    return invalid_argument("tokens: " + std::to_string(tokens.size()) + " of them, not 1 to " +
                            std::to_string(block_tokens_));
  }
  const uint32_t first = end_token(parent);
  KV_RETURN_IF_ERROR(check_sequence(first, tokens.size(), extras));
  if (NodeId found = find_child(parent, tokens, extras); found != kNoNode) {
    nodes_[found].hollow = false;
    return Inserted{found, false};
  }
  const NodeId id = take_slot();
  if (id == kNoNode) {
    return Status(StatusCode::resource_exhausted,
                  "prefix tree: limit of " + std::to_string(kMaxTreeNodes) + " nodes");
  }
  Node& node = nodes_[id];
  node.tokens = TokenRun(tokens);
  if (!extras.empty()) {
    node.extras = std::make_unique<const std::vector<Extra>>(extras.begin(), extras.end());
  }
  node.parent = parent;
  node.depth = nodes_[parent].depth + 1;
  node.hollow = false;
  node.alive = true;
  insert_child(parent, id);
  ++live_nodes_;
  payload_bytes_ += node.tokens.memory_bytes();
  for (const Extra& e : extras) payload_bytes_ += sizeof(Extra) + e.bytes.size();
  return Inserted{id, true};
}

Status PrefixTree::check_part(NodeId parent, std::span<const Token> tokens,
                              std::span<const Extra> extras) const {
  if (tokens.size() >= block_tokens_) {
    return invalid_argument("tokens: " + std::to_string(tokens.size()) + " of them, fewer than " +
                            std::to_string(block_tokens_) + " expected");
  }
  return check_sequence(end_token(parent), tokens.size(), extras);
}

void PrefixTree::give_slot(NodeId id) {
  Node& node = nodes_[id];
  node.tokens = {};
  node.extras.reset();
  node.alive = false;
  node.parent = std::exchange(free_slots_, id);
}

void PrefixTree::insert_child(NodeId parent, NodeId id) {
  Node& p = nodes_[parent];
  p.children.insert(id, Order{this});
  if (!is_tail(id)) return;
  if (!p.tail_lengths) p.tail_lengths = std::make_unique<TailLengths>();
  ++(*p.tail_lengths)[nodes_[id].tokens.size()];
}

NodeId PrefixTree::find_child(NodeId parent, std::span<const Token> tokens,
                              std::span<const Extra> extras) const {
  if (!alive(parent)) return kNoNode;
  const auto& children = nodes_[parent].children;
  auto it = children.find(Symbols{end_token(parent), tokens, extras}, Order{this});
  return it == children.end() ? kNoNode : *it;
}

std::vector<NodeId> PrefixTree::find_path(std::span<const Token> tokens,
                                          std::span<const Extra> extras) const {
  std::vector<NodeId> path;
  NodeId node = kRootNode;
  for (size_t first = 0; first < tokens.size(); first += block_tokens_) {
    const auto run = tokens.subspan(first, std::min<size_t>(block_tokens_, tokens.size() - first));
    const auto end = static_cast<uint32_t>(first + run.size());
    node = find_child(node, run, extras_in(extras, static_cast<uint32_t>(first), end));
    if (node == kNoNode) break;
    path.push_back(node);
  }
  return path;
}

void PrefixTree::remove_leaf(NodeId id) {
  Node& node = nodes_[id];
  Node& parent = nodes_[node.parent];
  parent.children.erase(id);
  if (is_tail(id)) {
    auto length = parent.tail_lengths->find(node.tokens.size());
    if (--length->second == 0) parent.tail_lengths->erase(length);
    if (parent.tail_lengths->empty()) parent.tail_lengths.reset();
  }
  payload_bytes_ -= node.tokens.memory_bytes();
  for (const Extra& e : extras(id)) payload_bytes_ -= sizeof(Extra) + e.bytes.size();
  give_slot(id);
  --live_nodes_;
}

size_t PrefixTree::erase(NodeId id) {
  if (!alive(id) || id == kRootNode) return 0;
  if (!nodes_[id].children.empty()) {
    nodes_[id].hollow = true;
    return 0;
  }
  size_t removed = 0;
  do {
    const NodeId up = nodes_[id].parent;
    remove_leaf(id);
    ++removed;
    id = up;
  } while (id != kRootNode && nodes_[id].hollow && nodes_[id].children.empty());
  return removed;
}

void PrefixTree::add_whole_tails(const Node& parent, const Symbols& rest, uint32_t longest,
                                 size_t level_begin, PrefixMatch& out) const {
  if (!parent.tail_lengths) return;
  for (auto it = parent.tail_lengths->rbegin(); it != parent.tail_lengths->rend(); ++it) {
    const uint32_t length = it->first;
    if (length > longest) continue;
    auto tail = parent.children.find(rest.prefix(length), Order{this});
    if (tail == parent.children.end()) continue;
    const SideCandidate candidate{*tail, rest.first + length};
    if (std::find(out.candidates.begin() + static_cast<ptrdiff_t>(level_begin),
                  out.candidates.end(), candidate) == out.candidates.end()) {
      out.candidates.push_back(candidate);
    }
  }
}

// Prefetch of a path without branches, where each comparison would wait for memory: for a node, its
// tokens, and the query's. While a level is compared, the tokens of the level below, the node's and
// the query's, are loaded, and the node below that one.
void PrefixTree::prefetch_below(NodeId parent, const Symbols& rest) const {
  const NodeId compared = nodes_[parent].children.only();
  if (compared == kNoNode) return;
  const NodeId next = nodes_[compared].children.only();
  if (next == kNoNode) return;
  nodes_[next].tokens.prefetch();
  const size_t end = std::min<size_t>(rest.tokens.size(), 2 * block_tokens_);
  if (end > block_tokens_)
    prefetch_bytes(&rest.tokens[block_tokens_], (end - block_tokens_) * sizeof(Token));
  const NodeId third = nodes_[next].children.only();
  if (third != kNoNode) prefetch_bytes(&nodes_[third], sizeof(Node));
}

NodeId PrefixTree::match_level(NodeId parent_id, const Symbols& rest, PrefixMatch& out) const {
  const Node& parent = nodes_[parent_id];
  const auto& children = parent.children;
  if (children.empty() || rest.tokens.empty()) return kNoNode;
  const size_t level_begin = out.candidates.size();
  // A single child needs no search: its comparison below is the only one.
  auto right = children.size() == 1 ? children.end() : children.upper_bound(rest, Order{this});
  auto left = right;
  auto common_left = [&] {
    return left == children.begin() ? 0 : common_symbols(symbols(*std::prev(left)), rest);
  };
  auto common_right = [&] {
    return right == children.end() ? 0 : common_symbols(symbols(*right), rest);
  };
  NodeId matched = kNoNode;
  uint32_t l = common_left(), r = common_right();
  if (l == block_tokens_) {
    matched = *--left;
    out.common = std::max(out.common, rest.first + l);
    l = common_left();
  }
  while ((l > 0 || r > 0) && out.candidates.size() - level_begin < kMaxCandidatesPerLevel) {
    const bool take_left = l >= r;
    out.candidates.push_back({take_left ? *--left : *right++, rest.first + std::max(l, r)});
    out.common = std::max(out.common, out.candidates.back().common);
    (take_left ? l : r) = take_left ? common_left() : common_right();
  }
  if (l > 0) add_whole_tails(parent, rest, l, level_begin, out);
  return matched;
}

Result<PrefixMatch> PrefixTree::match(std::span<const Token> tokens,
                                      std::span<const Extra> extras) const {
  KV_RETURN_IF_ERROR(check_sequence(0, tokens.size(), extras));
  PrefixMatch out;
  auto keep_deepest = [&out](size_t limit) {
    if (out.candidates.size() <= limit) return;
    out.candidates.erase(out.candidates.begin(),
                         out.candidates.end() - static_cast<ptrdiff_t>(kMaxCandidates));
  };
  Symbols rest{0, tokens, extras};
  NodeId node = kRootNode;
  while (true) {
    prefetch_below(node, rest);
    node = match_level(node, rest, out);
    keep_deepest(2 * kMaxCandidates);
    if (node == kNoNode) break;
    out.path.push_back(node);
    rest.first += block_tokens_;
    rest.tokens = rest.tokens.subspan(block_tokens_);
    rest.extras = extras_in(rest.extras, rest.first, UINT32_MAX);
  }
  keep_deepest(kMaxCandidates);
  return out;
}

// Adds the nodes below `node`, then itself (the root excepted), until there are `most`.
void PrefixTree::add_below(NodeId node, size_t most, std::vector<NodeId>& out) const {
  struct Level {
    NodeId node;
    Children::Iterator next;
  };
  std::vector<Level> levels{{node, nodes_[node].children.begin()}};
  while (!levels.empty() && out.size() < most) {
    Level& level = levels.back();
    if (level.next != nodes_[level.node].children.end()) {
      const NodeId child = *level.next;
      ++level.next;
      levels.push_back({child, nodes_[child].children.begin()});
      continue;
    }
    if (level.node != kRootNode) out.push_back(level.node);
    levels.pop_back();
  }
}

std::vector<NodeId> PrefixTree::all() const {
  std::vector<NodeId> out;
  add_below(kRootNode, SIZE_MAX, out);
  return out;
}

Result<std::vector<NodeId>> PrefixTree::beginning_with(std::span<const Token> tokens,
                                                       std::span<const Extra> extras,
                                                       size_t most) const {
  KV_RETURN_IF_ERROR(check_sequence(0, tokens.size(), extras));
  const size_t blocks = tokens.size() / block_tokens_;
  const auto whole = static_cast<uint32_t>(blocks * block_tokens_);
  const auto path = find_path(tokens.first(whole), extras_in(extras, 0, whole));
  std::vector<NodeId> out;
  if (path.size() < blocks) return out;
  const NodeId last = path.empty() ? kRootNode : path.back();
  const auto rest = tokens.subspan(whole);
  if (rest.empty()) {
    add_below(last, most, out);
    return out;
  }
  visit_children(last, rest, extras_in(extras, whole, UINT32_MAX), [&](NodeId child) {
    add_below(child, most, out);
    return out.size() < most;
  });
  return out;
}

std::vector<NodeId> PrefixTree::whole_tails(NodeId parent, std::span<const Token> tokens,
                                            std::span<const Extra> extras) const {
  PrefixMatch found;
  const uint32_t first = end_token(parent);
  const Symbols rest{first, tokens, extras};
  add_whole_tails(nodes_[parent], rest, rest.size(), 0, found);
  std::vector<NodeId> out;
  for (const SideCandidate& tail : found.candidates) out.push_back(tail.node);
  return out;
}

std::vector<NodeId> PrefixTree::children(NodeId node) const {
  return {nodes_[node].children.begin(), nodes_[node].children.end()};
}

uint64_t PrefixTree::memory_bytes() const {
  constexpr uint64_t kSetNodeBytes = 48;  // libstdc++: 32-byte header, the id, malloc's own
  return nodes_.size() * sizeof(Node) + payload_bytes_ + live_nodes_ * kSetNodeBytes;
}

}  // namespace kv
