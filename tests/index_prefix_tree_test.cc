// PrefixTree against a map of whole sequences, searched by brute force. The alphabet is tiny, so
// common prefixes end anywhere inside blocks; extras make equal tokens differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>
#include <string>

#include "index/prefix_tree.h"
#include "proto/limits.h"

namespace kv {
namespace {

using Rng = std::mt19937_64;
uint32_t below(Rng& rng, uint32_t n) { return static_cast<uint32_t>(rng() % n); }

/// A token with the extras at its position, as one comparable value.
using Symbol = std::pair<Token, std::string>;
using Sequence = std::vector<Symbol>;

struct Split {
  std::vector<Token> tokens;
  std::vector<Extra> extras;
};
Split split(const Sequence& s, size_t first = 0) {
  Split out;
  for (size_t i = first; i < s.size(); ++i) {
    out.tokens.push_back(s[i].first);
    for (char c : s[i].second) {  // one extra per letter: a position may have several
      out.extras.push_back({static_cast<uint32_t>(i), {static_cast<uint8_t>(c)}});
    }
  }
  return out;
}

uint32_t common(const Sequence& a, const Sequence& b) {
  uint32_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

Symbol random_symbol(Rng& rng, uint32_t alphabet) {
  Symbol s{static_cast<Token>(below(rng, alphabet)), ""};
  if (below(rng, 12) == 0) s.second = std::string(1, static_cast<char>('a' + below(rng, 2)));
  if (below(rng, 60) == 0) s.second += "b";
  return s;
}

/// The tree under test beside the oracle: a node is its whole sequence (a tail's length is no
/// multiple of the block).
class TreeAndOracle {
 public:
  TreeAndOracle(uint32_t block, uint64_t seed, uint32_t alphabet)
      : tree(block), rng(seed), block_(block), alphabet_(alphabet) {}

  Sequence random_sequence(uint32_t max_fresh) {
    Sequence s;
    if (!nodes.empty() && below(rng, 8) != 0) {
      s = std::next(nodes.begin(), below(rng, static_cast<uint32_t>(nodes.size())))->first;
      s.resize(below(rng, static_cast<uint32_t>(s.size()) + 1));
    }
    for (uint32_t i = below(rng, max_fresh + 1); i > 0; --i) {
      s.push_back(random_symbol(rng, alphabet_));
    }
    return s;
  }

  void store(const Sequence& s) {
    NodeId parent = kRootNode;
    for (size_t first = 0; first < s.size(); first += block_) {
      const Sequence head(s.begin(),
                          s.begin() + static_cast<ptrdiff_t>(std::min(s.size(), first + block_)));
      const Split own = split(head, first);
      auto got = tree.find_or_insert(parent, own.tokens, own.extras);
      ASSERT_TRUE(got.ok()) << got.status().to_string();
      ASSERT_EQ(got->is_new, !nodes.contains(head));
      if (got->is_new) {
        nodes[head] = got->node;
      }
      ASSERT_EQ(nodes[head], got->node);
      hollow.erase(head);
      parent = got->node;
    }
  }

  bool has_children(const Sequence& s) const {
    if (s.size() % block_ != 0) return false;
    for (const auto& [other, id] : nodes) {
      if (other.size() > s.size() && common(other, s) == s.size()) return true;
    }
    return false;
  }

  void erase_random() {
    if (nodes.empty()) return;
    auto it = std::next(nodes.begin(), below(rng, static_cast<uint32_t>(nodes.size())));
    Sequence s = it->first;
    const NodeId id = it->second;
    size_t removed = 0;
    if (has_children(s)) {
      hollow.insert(s);
    } else {
      while (true) {
        nodes.erase(s);
        hollow.erase(s);
        ++removed;
        s.resize((s.size() - 1) / block_ * block_);
        if (s.empty() || !hollow.contains(s) || has_children(s)) break;
      }
    }
    ASSERT_EQ(tree.erase(id), removed);
    ASSERT_EQ(tree.alive(id), removed == 0);
  }

  void check_nodes() const {
    ASSERT_EQ(tree.size(), nodes.size());
    for (const auto& [s, id] : nodes) {
      ASSERT_TRUE(tree.alive(id));
      ASSERT_EQ(tree.end_token(id), s.size());
      ASSERT_EQ(tree.first_token(id), (s.size() - 1) / block_ * block_);
      ASSERT_EQ(tree.is_tail(id), s.size() % block_ != 0);
      ASSERT_EQ(tree.is_hollow(id), hollow.contains(s));
      const Split own = split(s, tree.first_token(id));
      ASSERT_TRUE(std::ranges::equal(tree.tokens(id).all(), own.tokens));
      ASSERT_TRUE(std::ranges::equal(tree.extras(id), own.extras));
      const Split all = split(s);
      const auto path = tree.find_path(all.tokens, all.extras);
      ASSERT_EQ(path.size(), (s.size() - 1) / block_ + 1);
      ASSERT_EQ(path.back(), id);
      if (path.size() > 1) {
        ASSERT_EQ(tree.parent(id), path[path.size() - 2]);
      }
    }
  }

  /// Compares one match with brute force over all nodes.
  void check_match(const Sequence& query) const {
    const Split q = split(query);
    auto got = tree.match(q.tokens, q.extras);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    uint32_t longest = 0;
    std::vector<NodeId> path;
    std::map<uint32_t, std::vector<SideCandidate>> expected;  // by the level's first token
    for (const auto& [s, id] : nodes) {
      const uint32_t c = common(s, query);
      longest = std::max(longest, c);
      if (c == s.size() && !tree.is_tail(id)) {
        path.push_back(id);  // the map's order: prefixes first
      } else if (c > tree.first_token(id)) {
        expected[tree.first_token(id)].push_back({id, c});
      }
    }
    ASSERT_EQ(got->path, path);
    ASSERT_EQ(got->common, longest);
    std::map<uint32_t, std::vector<SideCandidate>> actual;
    for (const auto& c : got->candidates) actual[tree.first_token(c.node)].push_back(c);
    for (auto& [level, want] : expected) check_level(want, actual[level]);
    size_t total = 0;
    for (auto& [level, list] : actual) total += list.size();
    ASSERT_EQ(total, got->candidates.size());
    ASSERT_EQ(actual.size(), expected.size());
    check_children(query, path);
  }

  /// The children of the query's last whole block, if that is there, that begin with its rest.
  void check_children(const Sequence& query, const std::vector<NodeId>& path) const {
    const size_t whole = query.size() / block_ * block_;
    if (path.size() != whole / block_) return;
    std::set<NodeId> want, have;
    for (const auto& [s, id] : nodes) {
      const bool child = tree.first_token(id) == whole;
      if (child && common(s, query) == query.size()) want.insert(id);
    }
    const Split rest = split(query, whole);
    auto visit = [&](NodeId child) { return have.insert(child).second; };
    tree.visit_children(path.empty() ? kRootNode : path.back(), rest.tokens, rest.extras, visit);
    ASSERT_EQ(have, want);
  }

  void check_level(std::vector<SideCandidate> want, std::vector<SideCandidate> have) const {
    for (const auto& c : have) {
      ASSERT_NE(std::find(want.begin(), want.end(), c), want.end());
      ASSERT_EQ(std::count(have.begin(), have.end(), c), 1);
    }
    auto better = [](const auto& a, const auto& b) { return a.common > b.common; };
    const size_t kept = std::min(want.size(), kMaxCandidatesPerLevel);
    ASSERT_GE(have.size(), kept);
    ASSERT_TRUE(std::is_sorted(have.begin(), have.begin() + static_cast<ptrdiff_t>(kept), better));
    std::stable_sort(want.begin(), want.end(), better);
    for (size_t i = 0; i < kept; ++i) ASSERT_EQ(have[i].common, want[i].common);
    for (const auto& c : want) {  // tails matched wholly are never crowded out
      if (!tree.is_tail(c.node) || tree.end_token(c.node) != c.common) continue;
      ASSERT_NE(std::find(have.begin(), have.end(), c), have.end());
    }
    if (want.size() <= kMaxCandidatesPerLevel) {
      ASSERT_EQ(have.size(), want.size());
    }
  }

  void check_beginning_with(const Sequence& query) {
    const Split q = split(query);
    auto got = tree.beginning_with(q.tokens, q.extras, SIZE_MAX);
    ASSERT_TRUE(got.ok());
    const size_t most = below(rng, 6);
    auto first = tree.beginning_with(q.tokens, q.extras, most);
    ASSERT_EQ(first->size(), std::min(most, got->size()));
    ASSERT_TRUE(std::equal(first->begin(), first->end(), got->begin()));
    std::set<NodeId> want;
    for (const auto& [s, id] : nodes) {
      if (common(s, query) == query.size()) want.insert(id);
    }
    ASSERT_EQ(std::set<NodeId>(got->begin(), got->end()), want);
    ASSERT_EQ(got->size(), want.size());
    std::set<NodeId> seen;
    for (NodeId id : *got) {
      ASSERT_FALSE(seen.contains(tree.parent(id))) << "a parent came before its child";
      seen.insert(id);
    }
  }

  PrefixTree tree;
  Rng rng;
  std::map<Sequence, NodeId> nodes;
  std::set<Sequence> hollow;

 private:
  uint32_t block_, alphabet_;
};

TEST(PrefixTree, EqualsBruteForce) {
  size_t matches = 0;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng pick(seed);
    TreeAndOracle t(1 + below(pick, 8), seed, 1 + below(pick, 3));
    for (int step = 0; step < 120; ++step) {
      ASSERT_NO_FATAL_FAILURE(t.store(t.random_sequence(20)));
      for (uint32_t i = below(t.rng, 4); i > 0; --i) ASSERT_NO_FATAL_FAILURE(t.erase_random());
      for (int i = 0; i < 4; ++i, ++matches) {
        ASSERT_NO_FATAL_FAILURE(t.check_match(t.random_sequence(6)));
      }
      ASSERT_NO_FATAL_FAILURE(t.check_beginning_with(t.random_sequence(2)));
      if (step % 20 == 0) {
        ASSERT_NO_FATAL_FAILURE(t.check_nodes());
      }
    }
    ASSERT_NO_FATAL_FAILURE(t.check_nodes());
    while (!t.nodes.empty()) ASSERT_NO_FATAL_FAILURE(t.erase_random());
    ASSERT_EQ(t.tree.size(), 0u);
  }
  std::cout << "seeds 1-24, matches compared: " << matches << "\n";
}

TEST(PrefixTree, CrowdedLevelKeepsTheBestAndAllWholeTails) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    TreeAndOracle t(32, seed, 2);
    const Sequence line(31, Symbol{1, ""});
    for (uint32_t n = 1; n <= 31; n += 3) t.store(Sequence(line.begin(), line.begin() + n));
    for (int i = 0; i < 600; ++i) {  // siblings that leave the line at any place
      Sequence s(line.begin(), line.begin() + below(t.rng, 31));
      s.push_back({static_cast<Token>(below(t.rng, 2) * 2), ""});
      while (s.size() < 32 && below(t.rng, 3) != 0) s.push_back(random_symbol(t.rng, 3));
      t.store(s);
    }
    for (uint32_t n = 0; n <= 31; ++n) {
      ASSERT_NO_FATAL_FAILURE(t.check_match(Sequence(line.begin(), line.begin() + n)));
    }
    for (int i = 0; i < 50; ++i) ASSERT_NO_FATAL_FAILURE(t.check_match(t.random_sequence(9)));
  }
}

TEST(PrefixTree, OneTokenPrefixIsFound) {
  PrefixTree tree(4);
  const std::vector<Token> stored{7};
  const NodeId tail = tree.find_or_insert(kRootNode, stored, {})->node;
  const std::vector<Token> query{7, 8, 9};
  auto got = tree.match(query, {});
  EXPECT_EQ(got->common, 1u);
  EXPECT_TRUE(got->path.empty());
  EXPECT_EQ(got->candidates, (std::vector<SideCandidate>{{tail, 1}}));
}

TEST(PrefixTree, EqualTokensWithOtherExtrasShareOnlyWhatComesBefore) {
  PrefixTree tree(4);
  const std::vector<Token> tokens{1, 2, 3, 4};
  const std::vector<Extra> cat{{2, {'c'}}}, dog{{2, {'d'}}}, none;
  const NodeId a = tree.find_or_insert(kRootNode, tokens, cat)->node;
  EXPECT_EQ(tree.match(tokens, dog)->common, 2u);
  EXPECT_EQ(tree.match(tokens, none)->common, 2u);
  EXPECT_EQ(tree.match(tokens, cat)->path, std::vector<NodeId>{a});
  EXPECT_NE(tree.find_or_insert(kRootNode, tokens, dog)->node, a);
}

TEST(PrefixTree, HollowNodeLetsTheWalkGoOn) {
  PrefixTree tree(2);
  const std::vector<Token> first{1, 2}, second{3, 4}, all{1, 2, 3, 4};
  const NodeId a = tree.find_or_insert(kRootNode, first, {})->node;
  const NodeId b = tree.find_or_insert(a, second, {})->node;
  EXPECT_EQ(tree.erase(a), 0u);
  EXPECT_TRUE(tree.is_hollow(a));
  EXPECT_EQ(tree.match(all, {})->path, (std::vector<NodeId>{a, b}));
  EXPECT_EQ(tree.erase(b), 2u);
  EXPECT_EQ(tree.size(), 0u);
}

TEST(PrefixTree, BadInputIsRefusedByName) {
  PrefixTree tree(4);
  const std::vector<Token> five(5, 1), two(2, 1), none;
  auto message = [](const auto& result) { return result.status().message(); };
  EXPECT_THAT(message(tree.find_or_insert(kRootNode, five, {})), testing::HasSubstr("tokens"));
  EXPECT_THAT(message(tree.find_or_insert(kRootNode, none, {})), testing::HasSubstr("tokens"));
  EXPECT_THAT(message(tree.find_or_insert(99, two, {})), testing::HasSubstr("parent"));
  const NodeId tail = tree.find_or_insert(kRootNode, two, {})->node;
  EXPECT_THAT(message(tree.find_or_insert(tail, two, {})), testing::HasSubstr("tail"));
  const std::vector<Extra> outside{{2, {}}}, falling{{1, {}}, {0, {}}};
  EXPECT_THAT(message(tree.match(two, outside)), testing::HasSubstr("extras[0].position"));
  EXPECT_THAT(message(tree.match(two, falling)), testing::HasSubstr("ascending"));
  const std::vector<Extra> big{{0, std::vector<uint8_t>(kMaxExtraBytes + 1)}};
  EXPECT_THAT(message(tree.match(two, big)), testing::HasSubstr("extras[0].bytes"));
  EXPECT_EQ(tree.size(), 1u);
}

}  // namespace
}  // namespace kv
