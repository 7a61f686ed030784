// Steps of the orderly end.
#include "cachesvc/core/drain.h"

#include <algorithm>

namespace kv {

void Drain::begin(Deadline deadline, std::function<void(Status)> done) {
  auto call = calls_.begin<Status>(0, deadline, std::move(done));
  env_.drain();
  if (call->finished()) return;
  waiting_.push_back({Step::erases, std::move(call)});
  go_on();
}

// Batches go on by themselves; objects that neither budget nor device lets through are left.
bool Drain::spills_over() const {
  if (spiller_.busy()) return false;
  if (pace_.held()) return spiller_.held_up();
  return records_.lists().count(Disk::queued) == 0 || lane_.hangs();
}

void Drain::go_on() {
  for (Waiting& waiting : waiting_) {
    if (waiting.step != Step::erases || !erases_over()) continue;
    waiting.step = Step::spilling;
    ask_for_all();
  }
  if (waiting_.empty() || !spills_over()) return;
  std::vector<CallPtr> over;
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    if (waiting.step != Step::spilling) return false;
    over.push_back(waiting.call);
    return true;
  });
  for (const CallPtr& call : over) {
    if (call->finished()) continue;
    lane_ ? last_job(call) : call->finish(Status());
  }
}

// Asks for all objects that wait for eviction, are leased, failed, or found the queue full at their
// commit.
void Drain::ask_for_all() {
  if (!lane_) return;
  model_records_.write_missing();
  spiller_.ask_for_all();
  recency_.tell_last();
}

void Drain::last_job(const CallPtr& call) {
  pace_.charge();
  Status unwritten;
  const uint64_t bytes = records_.lists().queue_bytes();
  if (bytes > 0 && pace_.limited()) {
    unwritten = {StatusCode::resource_exhausted,
                 "the write budget leaves " + std::to_string(bytes) + " bytes unwritten"};
  }
  lane_.run_last(
      [ssd = lane_.ssd()]() -> Status {
        KV_RETURN_IF_ERROR(ssd->sync());
        return ssd->checkpoint();
      },
      [call, unwritten](Status status) { call->finish(status.ok() ? unwritten : status); });
}

}  // namespace kv
