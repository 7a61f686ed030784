// Rows and states that an entry copies from others, before its commit.
#include "cachesvc/core/row_copies.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace kv {
namespace {

constexpr size_t kCopiesPerPut = 16;  // per put: their runs fit into one plane's

// Rows of [first, end) that one of the ends demands.
std::vector<RowRange> demanded_of(const PartSpec& spec, const std::vector<EndPosition>& ends,
                                  RowRange range) {
  std::vector<RowRange> out;
  for (const EndPosition& at : ends) {
    for (const RowRange& rows : demanded_rows(spec, at.n)) {
      RowRange both{std::max(rows.first, range.first), std::min(rows.end, range.end)};
      if (!both.empty()) out.push_back(both);
    }
  }
  return out;
}

Holding held_rows(uint16_t group, RowRange range) {
  Holding h;
  h.group = group;
  h.first = range.first;
  h.end = range.end;
  h.common = UINT32_MAX;
  return h;
}

// Rows and states of others that an entry could copy.
struct Sources {
  struct Rows {
    ObjectName name;
    uint16_t group = 0;
    RowRange rows;
    bool superseded = false;  ///< rows of a tail that this entry supersedes
    bool resident = false;    ///< in RAM: no read can fail
  };
  std::vector<Rows> rows;         ///< superseded tails' first
  std::vector<RamObject> points;  ///< carries and block-end states of superseded tails, in RAM
};

// `own` gets the rows that the entry's own objects hold.
Sources sources_of(ObjectIndex& index, const Reservation& r, std::vector<Holding>& own) {
  Sources sources;
  for (const auto& [name, finished] : r.objects.finished) {
    if (name.kind == ObjectKind::supplement && name.first_row < name.end_row) {
      own.push_back(held_rows(name.group, {name.first_row, name.end_row}));
    }
  }
  for (const Reservation::Source& s : r.objects.sources) {
    const Record* record = index.find_usable(s.name);
    if (!record) continue;
    const bool resident = static_cast<bool>(record->ram);
    if (s.kind != HoldingKind::rows) {
      if (s.superseded && resident) sources.points.push_back(record->ram);
    } else if (s.name.id == r.id_of(s.rows.first / r.realm->block_tokens())) {
      own.push_back(held_rows(s.group, s.rows));
    } else if (!s.rows.empty()) {
      sources.rows.push_back({s.name, s.group, s.rows, s.superseded, resident});
    }
  }
  std::stable_sort(sources.rows.begin(), sources.rows.end(),
                   [](const auto& a, const auto& b) { return a.superseded > b.superseded; });
  return sources;
}

// Rows to copy, each once. Adjacent rows of one block and group make one put: tails that grow by
// one token each would otherwise leave one supplement per token. Rows that must be read first get
// their own put, so that a failed read costs no other rows.
std::vector<PutRequest> row_puts(const Reservation& r, const Sources& sources,
                                 std::vector<Holding>& own) {
  const RealmState& realm = *r.realm;
  auto ends = end_positions(realm.block_tokens(), r.tokens(), r.ends);
  std::vector<Sources::Rows> taken;
  for (const Sources::Rows& source : sources.rows) {
    auto wanted = source.superseded
                      ? std::vector<RowRange>{source.rows}
                      : demanded_of(realm.groups[source.group].spec, ends, source.rows);
    for (const RowRange& range : wanted) {
      for (const RowRange& gap : missing_rows(range, source.group, own)) {
        taken.push_back(source);
        taken.back().rows = gap;
        own.push_back(held_rows(source.group, gap));
      }
    }
  }
  std::sort(taken.begin(), taken.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.group, a.rows.first) < std::tuple(b.group, b.rows.first);
  });
  std::vector<PutRequest> puts;
  bool grows = false;  // the last put takes more copies
  for (const Sources::Rows& t : taken) {
    uint32_t first_token = t.rows.first / realm.block_tokens() * realm.block_tokens();
    PutRequest* last = puts.empty() ? nullptr : &puts.back();
    bool follows = grows && t.resident && last->object.name.group == t.group &&
                   last->object.first_token == first_token &&
                   last->object.name.end_row == t.rows.first && last->copies.size() < kCopiesPerPut;
    if (!follows) {
      last = &puts.emplace_back();
      last->object.name = {ObjectKind::supplement, {}, t.group, t.rows.first, t.rows.end};
      last->object.first_token = first_token;
    }
    last->object.name.end_row = t.rows.end;
    last->copies.push_back({t.name, t.rows.first, t.rows.end});
    grows = t.resident;
  }
  return puts;
}

// Carries and states of superseded tails, copied to blocks only: a tail that copied those of all
// tails before it would cost more with every token.
std::vector<CopyPut> point_puts(ObjectIndex& index, const Reservation& r, const Sources& sources) {
  std::vector<CopyPut> puts;
  std::set<ObjectName> taken;
  for (const RamObject& source : sources.points) {
    uint32_t block = (source->name.end_row - 1) / r.realm->block_tokens();
    if (block >= r.blocks.size()) continue;
    ObjectName name = source->name;
    name.id = r.blocks[block];
    bool there = index.find(name) || r.objects.finished.count(name);
    if (there || !taken.insert(name).second) continue;
    PutRequest& put = puts.emplace_back(CopyPut{{}, source}).put;
    put.object.name = name;
    put.object.first_token = block * r.realm->block_tokens();
    put.object.states = source->states;
  }
  return puts;
}

}  // namespace

std::vector<CopyPut> row_copies(ObjectIndex& index, const Reservation& r) {
  if (!r.realm->has_supplements()) return {};
  std::vector<Holding> own;
  Sources sources = sources_of(index, r, own);
  auto rows = row_puts(r, sources, own);
  auto out = point_puts(index, r, sources);
  for (PutRequest& put : rows) out.push_back({std::move(put), {}});
  return out;
}

}  // namespace kv
