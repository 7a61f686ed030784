// Bystander: a thread beside what is measured that does next to nothing, up to 2,000 times a
// second: it adds one to a byte of each of 400 pages of its own, which takes 3 us of the
// processor. All pages were touched before and stay mapped, so a step that takes 300 us was held
// up by the machine. On a virtual one, each page that its host has taken away costs tens of us at
// its next touch, code and data of every process alike, and the guest's kernel counts that as the
// process's own time.
//
// Every 200 steps, a tenth of a second, it reads a count of what is measured. A page that is away
// costs its time when it is touched next, which for code that runs seldom is later: so what falls
// into the tenth before a long step, its own and the five after it can be told from what does not.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "cachesvc/loop/handler_begins.h"
#include "proto/status.h"

namespace kv {

class Bystander {
 public:
  static constexpr std::chrono::microseconds kLong{300};  // of the processor
  struct Seen {
    uint64_t steps = 0, long_steps = 0;  // of the bystander; long: over kLong
    uint64_t tenths = 0, held_up = 0;    // of a second; those that a long step is in or near
    uint64_t counted = 0, apart = 0;     // by `count`; those of them in other tenths
  };

  /// `count` is called by the bystander's thread, until `end`.
  explicit Bystander(std::function<uint64_t()> count) : count_(std::move(count)) {
    void* at =
        ::mmap(nullptr, kPages * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    KV_CHECK(at != MAP_FAILED);
    memory_ = static_cast<uint8_t*>(at);
    ::madvise(at, kPages * page_, MADV_NOHUGEPAGE);
    step();
    thread_ = std::thread([this] { run(); });
  }
  ~Bystander() {
    end();
    ::munmap(memory_, kPages * page_);
  }
  Bystander(const Bystander&) = delete;  // a thread has its address

  Seen end() {
    end_ = true;
    if (thread_.joinable()) thread_.join();
    return sum();
  }

 private:
  static constexpr size_t kPages = 400, kStepsPerTenth = 200;
  static constexpr size_t kBefore = 1, kAfter = 5;  // tenths that are near one with a long step
  static constexpr useconds_t kPauseUs = 500;
  struct Tenth {
    uint64_t long_steps = 0, counted = 0;
  };

  // Each page has its byte in another cache line than its neighbour: all first lines share few
  // sets.
  void step() {
    for (size_t i = 0; i < kPages; ++i) ++memory_[i * page_ + i % 64 * 64];
  }
  void run() {
    uint64_t before = count_();
    while (!end_) {
      Tenth tenth;
      for (size_t i = 0; i < kStepsPerTenth && !end_; ++i) {
        auto begun = thread_time();
        step();
        if (thread_time() - begun > kLong) ++tenth.long_steps;
        ++steps_;
        ::usleep(kPauseUs);
      }
      uint64_t now = count_();
      tenth.counted = now - before;
      before = now;
      tenths_.push_back(tenth);
    }
  }
  Seen sum() const {
    Seen seen;
    seen.steps = steps_;
    seen.tenths = tenths_.size();
    for (size_t i = 0; i < tenths_.size(); ++i) {
      bool held_up = false;
      for (size_t k = i > kAfter ? i - kAfter : 0; k < tenths_.size() && k <= i + kBefore; ++k) {
        held_up |= tenths_[k].long_steps > 0;
      }
      seen.long_steps += tenths_[i].long_steps;
      seen.counted += tenths_[i].counted;
      seen.held_up += held_up;
      if (!held_up) seen.apart += tenths_[i].counted;
    }
    return seen;
  }

  const std::function<uint64_t()> count_;
  const size_t page_ = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  uint8_t* memory_ = nullptr;
  std::atomic<bool> end_{false};
  uint64_t steps_ = 0;
  std::vector<Tenth> tenths_;
  std::thread thread_;
};

}  // namespace kv
