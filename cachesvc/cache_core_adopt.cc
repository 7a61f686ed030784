// adopt: an entry holds the window and chunk rows that it needs by itself. Rows that lie in other
// entries' supplements are copied into supplements of its own blocks and tail, before the commit:
// from the tails that it supersedes all of them (they are the first to go), from others those that
// its ends need. Codes are copied as they are; a tail's exact rows are coded if a block adopts
// them.
#include <algorithm>

#include "cachesvc/cache_core_impl.h"
#include "cachesvc/cache_core_needs.h"

namespace kv {
namespace {

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

}  // namespace

struct CacheCore::Impl::RowSource {
  ObjectName name;
  uint16_t group = 0;
  RowRange rows;
  bool superseded = false;  ///< a tail's that this entry supersedes
};

uint32_t CacheCore::Impl::block_end_interval(const RealmState& realm) const {
  bool coded = realm.profile->prefill == PrefillMode::coded;
  return coded && options_.block_end_interval == 0 ? 1 : options_.block_end_interval;
}

// Supplements of other entries that hold rows of this one, tails that it supersedes first; `own`
// gets what its own objects hold.
std::vector<CacheCore::Impl::RowSource> CacheCore::Impl::row_sources(Reservation& r,
                                                                     std::vector<Holding>& own) {
  std::vector<RowSource> sources;
  for (const auto& [name, object] : r.finished) {
    if (name.kind == ObjectKind::supplement && name.first_row < name.end_row) {
      own.push_back(held_rows(name.group, {name.first_row, name.end_row}));
    }
  }
  Hit hit;
  ObjectIndex::PlanOptions options{{}, Clock::now()};
  auto holdings = index_.holdings(*r.realm, r.query, options, hit);
  if (!holdings.ok()) return sources;
  for (const Holding& h : *holdings) {
    const Record& record = *reinterpret_cast<Record*>(h.object);
    if (record.name.kind != ObjectKind::supplement || h.kind != HoldingKind::rows) continue;
    uint32_t index = h.first / r.realm->block_tokens(), end = std::min(h.end, h.common);
    const Id& id = index < r.blocks.size() ? r.blocks[index] : r.tail;
    if (record.name.id == id) {
      own.push_back(held_rows(h.group, {h.first, h.end}));
    } else if (h.first < end) {
      bool superseded = r.realm->tree.is_tail(record.node) && h.common == h.end_token &&
                        h.end_token < r.query.tokens.size();
      sources.push_back({record.name, h.group, {h.first, end}, superseded});
    }
  }
  std::stable_sort(sources.begin(), sources.end(), [](const RowSource& a, const RowSource& b) {
    return a.superseded > b.superseded;
  });
  return sources;
}

void CacheCore::Impl::adopt_rows(Reservation& r, Deadline deadline) {
  RealmState& realm = *r.realm;
  if (!realm.has_supplements()) return;
  std::vector<Holding> own;
  auto sources = row_sources(r, own);
  auto ends = end_positions(realm.block_tokens(), static_cast<uint32_t>(r.query.tokens.size()),
                            block_end_interval(realm));
  uint64_t session = r.session, id = r.id;
  for (const RowSource& source : sources) {
    auto wanted = source.superseded
                      ? std::vector<RowRange>{source.rows}
                      : demanded_of(realm.groups[source.group].spec, ends, source.rows);
    for (const RowRange& range : wanted) {
      for (const RowRange& gap : missing_rows(range, source.group, own)) {
        PutRequest put;
        put.object.name = {ObjectKind::supplement, {}, source.group, gap.first, gap.end};
        put.object.first_token = gap.first / realm.block_tokens() * realm.block_tokens();
        put.copies = {{source.name, gap.first, gap.end}};
        Reservation* still = find_reservation(session, id);
        if (!still || !identify(*still, put.object).ok()) return;
        own.push_back(held_rows(source.group, gap));
        ++count_.adopted_supplements;
        // What can't be adopted now stays where it is: the commit checks what is there.
        start_put(*still, std::move(put), nullptr, deadline,
                  begin<Status>(session, deadline, [](Status) {}));
      }
    }
  }
}

}  // namespace kv
