// See batch.h.
#include "engine/batch.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>

#include "engine/prompt.h"

namespace kv {
namespace {

Status too_many(size_t rows) {
  return {StatusCode::resource_exhausted,
          "batch: " + std::to_string(rows) + " rows, at most " + std::to_string(kMaxBatchRows)};
}

}  // namespace

Result<Batch::Row*> Batch::join(std::unique_ptr<Row> row) {
  if (rows_.size() >= kMaxBatchRows) return too_many(rows_.size() + 1);
  rows_.push_back(std::move(row));
  return rows_.back().get();
}

std::unique_ptr<Batch::Row> Batch::leave(Row* row) {
  auto at = std::find_if(rows_.begin(), rows_.end(), [&](const auto& r) { return r.get() == row; });
  KV_CHECK(at != rows_.end());
  std::unique_ptr<Row> left = std::move(*at);
  rows_.erase(at);
  return left;
}

Status Batch::merge(Batch& other) {
  KV_CHECK(&other != this && &other.network_ == &network_);
  const size_t all = rows_.size() + other.rows_.size();
  if (all > kMaxBatchRows) return too_many(all);
  std::move(other.rows_.begin(), other.rows_.end(), std::back_inserter(rows_));
  other.rows_.clear();
  return {};
}

size_t Batch::step(Deadline deadline) {
  std::vector<Row*> taking;
  for (const auto& row : rows_) {
    if (!row->status.ok()) continue;
    row->logits.resize(row->keep_logits ? network_.vocab() : 0);
    taking.push_back(row.get());
  }
  // Rows that began after one open stand together: only they are of one codec.
  std::stable_sort(taking.begin(), taking.end(), [](const Row* a, const Row* b) {
    return std::less<>()(&a->cache.codec(), &b->cache.codec());
  });
  steps_.clear();
  for (Row* row : taking) steps_.push_back({row->token, &row->cache, row->logits, {}});
  for (size_t first = 0, end = 0; first < taking.size(); first = end) {
    const Codec* codec = &taking[first]->cache.codec();
    while (end < taking.size() && &taking[end]->cache.codec() == codec) ++end;
    network_.step_rows(std::span(steps_).subspan(first, end - first));
  }
  size_t good = 0;
  for (size_t i = 0; i < taking.size(); ++i) {
    Status& status = taking[i]->status;
    status = steps_[i].status;
    if (status.ok()) status = settle_block(network_, taking[i]->cache, deadline);
    good += status.ok() ? 1 : 0;
  }
  return good;
}

}  // namespace kv
