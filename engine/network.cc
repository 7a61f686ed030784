// What a network has when its architecture says nothing else.
#include "engine/network.h"

namespace kv {

Result<std::vector<Token>> Network::encode(std::string_view) const {
  return unsupported("the network of model " + spec().name + " has no tokenizer");
}

void Network::step_rows(std::span<StepRow> rows) {
  KV_CHECK(rows.size() <= kMaxBatchRows);
  for (StepRow& row : rows) row.status = step(row.token, *row.cache, row.logits);
}

}  // namespace kv
