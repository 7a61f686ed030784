// Jobs that change the SSD: made whole before they are submitted, counted while they run, with the
// files that make room for them. The second half of impl.h, which includes it. Internal to
// cachesvc/core.
#pragma once

#include "cachesvc/core/impl.h"

namespace kv {

struct CacheCore::Impl::SsdTurn {
  explicit SsdTurn(std::weak_ptr<Impl> impl) : core(std::move(impl)) {
    if (auto self = core.lock()) ++self->ssd_jobs_;
  }
  ~SsdTurn() {
    if (auto self = core.lock()) began ? self->ssd_returned() : void(--self->ssd_jobs_);
  }
  SsdTurn(const SsdTurn&) = delete;  // counted once
  SsdTurn& operator=(const SsdTurn&) = delete;
  std::weak_ptr<Impl> core;
  bool began = false;  ///< set by the worker; else it was dropped, which is no word of the device
};

/// Files on their way to SsdTier::erase; owned by a task's job and by what follows on the loop,
/// where it ends: what it has not unlinked by then is left over.
struct CacheCore::Impl::Unlinks {
  explicit Unlinks(std::weak_ptr<Impl> impl) : core(std::move(impl)) {}
  ~Unlinks() {
    if (auto self = core.lock()) self->unlinked(*this);
  }
  Unlinks(const Unlinks&) = delete;  // gives back once
  Unlinks& operator=(const Unlinks&) = delete;
  /// Worker. Tries all parts. Returns: the first error of SsdTier::erase.
  Status run(SsdTier& ssd);

  std::weak_ptr<Impl> core;
  Parts parts;
  Parts gone;           ///< of them, those that are unlinked
  bool behind = false;  ///< others pass: the names are among the core's `unlinking_`
};

template <typename Job, typename Then>
std::shared_ptr<WorkerTask> CacheCore::Impl::ssd_task(Job job, Then then) {
  watch_ssd();
  auto turn = std::make_shared<SsdTurn>(weak_from_this());
  auto run = [turn, job = std::move(job)]() mutable {
    turn->began = true;
    return job();
  };
  return task(std::move(run), [turn = std::move(turn), then = std::move(then)](auto out) mutable {
    turn.reset();
    then(std::move(out));
  });
}

template <typename Job, typename Then>
void CacheCore::Impl::on_ssd_with_room(uint64_t bytes, Job job, Then then) {
  auto gone = std::make_shared<Unlinks>(weak_from_this());
  gone->parts.emplace_back();
  auto made = ssd_task(
      [ssd = ssd_, gone, job = std::move(job)]() mutable {
        (void)gone->run(*ssd);
        return job();
      },
      [gone, then = std::move(then)](auto out) mutable {
        gone.reset();  // what is left goes back first
        then(std::move(out));
      });
  gone->parts.front() = ssd_victims(bytes);
  sort_out_left_files({});
  // One part of what failed before: all of it ahead of the job might be taken for a hang.
  if (!left_files_.empty()) {
    gone->parts.splice(gone->parts.end(), left_files_, left_files_.begin());
  }
  ssd_lane_->submit(std::move(made));
}

}  // namespace kv
