// Batch: up to 16 sequences that a network decodes together, one token each per step.
//
// Rows join and leave between steps, and whole batches merge; each row's tokens and logits are
// those of its own run, bit for bit (network.h, step_rows), with coded prefill too: a block that a
// step completed is settled before the next one (prompt.h). A batch owns its rows; a Row's address
// stays the same from join to leave, through merges. One thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "engine/network.h"

namespace kv {

class Batch {
 public:
  /// One sequence. The owner of the batch may change `token` and `keep_logits` between steps.
  struct Row {
    Row(KvCache from, Token first) : cache(std::move(from)), token(first) {}

    KvCache cache;              ///< with any number of tokens, also none
    Token token;                ///< what the next step computes
    bool keep_logits = true;    ///< of the next step
    std::vector<float> logits;  ///< (vocab) of the last step, if kept
    Status status;              ///< of the last step; a row that failed takes no part in later ones
  };

  /// The network outlives the batch.
  explicit Batch(Network& network) : network_(network) {}

  /// Returns: resource_exhausted (kMaxBatchRows rows are there).
  Result<Row*> join(std::unique_ptr<Row> row);
  /// The row, which is one of this batch.
  std::unique_ptr<Row> leave(Row* row);
  /// Takes all rows of `other`, which may be empty and is afterwards; of the same network.
  /// Returns: resource_exhausted, nothing changed.
  Status merge(Batch& other);

  /// In order of joining.
  const std::vector<std::unique_ptr<Row>>& rows() const { return rows_; }

  /// Computes every row's token. Returns how many rows took part without failing. `deadline`: of
  /// settling blocks; a row that it ends has deadline_exceeded as its status.
  size_t step(Deadline deadline = Deadline::max());

 private:
  Network& network_;
  std::vector<std::unique_ptr<Row>> rows_;
  std::vector<StepRow> steps_;
};

}  // namespace kv
