// Attached: walks through the order of snapshots.
#include "cachesvc/core/attached.h"

#include <algorithm>
#include <iterator>

namespace kv {
namespace {

// Tokens after the node's end.
Symbols symbols(const Record& snapshot) {
  const Attachment& its = *snapshot.attachment;
  return {its.position - static_cast<uint32_t>(its.tokens.size()), its.tokens, its.extras};
}

}  // namespace

bool Attached::Order::operator()(const Record* a, const Record* b) const {
  return symbols_less(symbols(*a), symbols(*b));
}
bool Attached::Order::operator()(const Record* a, const Symbols& b) const {
  return symbols_less(symbols(*a), b);
}
bool Attached::Order::operator()(const Symbols& a, const Record* b) const {
  return symbols_less(a, symbols(*b));
}

void Attached::add(Record& record) {
  if (record.name.kind == ObjectKind::supplement) return supplements_.push_back(&record);
  if (!snapshots_) snapshots_ = std::make_unique<Snapshots>();
  snapshots_->insert(&record);
}

void Attached::remove(const Record& record) {
  if (record.name.kind == ObjectKind::supplement) {
    const auto found = std::find(supplements_.begin(), supplements_.end(), &record);
    KV_CHECK(found != supplements_.end());
    supplements_.erase(found);
    return;
  }
  const auto [first, last] = snapshots_->equal_range(symbols(record));
  const auto found = std::find(first, last, &record);
  KV_CHECK(found != last);
  snapshots_->erase(found);
  if (snapshots_->empty()) snapshots_.reset();
}

// The last one at or before a prefix of `rest` is either a prefix itself, or parts from it earlier,
// and then no longer prefix is there.
std::vector<Record*> Attached::snapshots_on(const Symbols& rest) const {
  std::vector<Record*> out;
  if (!snapshots_) return out;
  for (uint32_t length = rest.size();;) {
    const auto after = snapshots_->upper_bound(rest.prefix(length));
    if (after == snapshots_->begin()) return out;
    Record* before = *std::prev(after);
    const Symbols its = symbols(*before);
    const uint32_t common = common_symbols(its, rest);
    if (common < its.size()) {
      length = common;
      continue;
    }
    out.push_back(before);
    if (its.size() == 0) return out;
    length = its.size() - 1;
  }
}

uint32_t Attached::longest_common(const Symbols& rest) const {
  if (!snapshots_) return 0;
  const auto after = snapshots_->upper_bound(rest);
  uint32_t most = 0;
  if (after != snapshots_->end()) most = common_symbols(symbols(**after), rest);
  if (after != snapshots_->begin()) {
    most = std::max(most, common_symbols(symbols(**std::prev(after)), rest));
  }
  return most;
}

void Attached::snapshots_beginning_with(const Symbols& rest, size_t most,
                                        std::vector<Record*>& out) const {
  if (!snapshots_) return;
  for (auto it = snapshots_->lower_bound(rest); it != snapshots_->end() && out.size() < most;
       ++it) {
    if (common_symbols(symbols(**it), rest) < rest.size()) return;
    out.push_back(*it);
  }
}

void Attached::list(size_t most, std::vector<Record*>& out) const {
  if (snapshots_) {
    for (auto it = snapshots_->begin(); it != snapshots_->end() && out.size() < most; ++it) {
      out.push_back(*it);
    }
  }
  // Supplements from the back: the cheapest for an erase to remove.
  for (auto it = supplements_.rbegin(); it != supplements_.rend() && out.size() < most; ++it) {
    out.push_back(*it);
  }
}

}  // namespace kv
