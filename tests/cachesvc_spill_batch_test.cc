// SpillBatch: its arrows, and that there are no others.
#include <gtest/gtest.h>

#include "cachesvc/core/spill_batch.h"

namespace kv {
namespace {

using BatchState = SpillBatch::State;

// By the shortest way.
SpillBatch batch_in(BatchState state) {
  SpillBatch batch;
  for (BatchState next : {BatchState::packed, BatchState::records, BatchState::writing}) {
    if (next <= state) batch.move(next);
  }
  return batch;
}

TEST(SpillBatchDeathTest, MovesAlongItsArrowsAlone) {
  using enum SpillBatch::State;
  for (BatchState from : {packing, packed, records, writing}) {
    for (BatchState to : {packing, packed, records, writing}) {
      const bool arrow = (from == packing && to == packed) || (from == packed && to == records) ||
                         (from == records && to == writing) || (from == writing && to == records);
      SpillBatch batch = batch_in(from);
      if (arrow || from == to) {
        batch.move(to);
        EXPECT_EQ(batch.state(), to);
      } else {
        EXPECT_DEATH(batch.move(to), "broken invariant")
            << static_cast<int>(from) << " to " << static_cast<int>(to);
      }
    }
  }
}

}  // namespace
}  // namespace kv
