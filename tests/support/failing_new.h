// FailingNew: a global operator new that fails when a test says so. A test binary includes it, in
// one file: it defines the global operators.
//
// The N-th allocation from arm() on fails, alone or with as many after it as are asked for; only in
// threads and scopes that are watched, so that the test's own allocations never do.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace kv {

class FailingNew {
 public:
  /// Fails allocation `nth` (from 1) and the `more` that follow it. `of_sqlite`: of SQLite's
  /// own (storage_failing_sqlite.h), else of operator new.
  static void arm(int64_t nth, int64_t more, bool of_sqlite = false) {
    failures_ = 0;
    last_ = nth + more;
    of_sqlite_ = of_sqlite;
    nth_ = nth;
    count_ = 0;
    armed_ = true;
  }
  static void disarm() { armed_ = false; }
  static bool armed() { return armed_; }
  /// Since arm().
  static int64_t failures() { return failures_; }
  static bool should_fail(bool sqlite = false) {
    if (!armed_ || !watched || sqlite != of_sqlite_) return false;
    int64_t n = ++count_;
    if (n < nth_ || n > last_) return false;
    ++failures_;
    return true;
  }
  /// Of this thread; true in those that a test does not own.
  static inline thread_local bool watched = true;

 private:
  static inline std::atomic<bool> armed_{false}, of_sqlite_{false};
  static inline std::atomic<int64_t> nth_{0}, last_{0}, count_{0}, failures_{0};
};

/// What a test does of its own.
class Unwatched {
 public:
  explicit Unwatched(bool watched = false) : before_(FailingNew::watched) {
    FailingNew::watched = watched;
  }
  ~Unwatched() { FailingNew::watched = before_; }
  Unwatched(const Unwatched&) = delete;  // one scope
  Unwatched& operator=(const Unwatched&) = delete;

 private:
  bool before_;
};

inline void* failing_new(size_t size, size_t align) {
  if (FailingNew::should_fail()) return nullptr;
  size = std::max<size_t>(size, 1);
  if (align <= alignof(std::max_align_t)) return std::malloc(size);
  return std::aligned_alloc(align, (size + align - 1) / align * align);
}
inline void* failing_new_or_throw(size_t size, size_t align) {
  void* p = failing_new(size, align);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace kv

// Not inlined: g++ would see a free() of what operator new returned and warn.
#define KV_REPLACED [[gnu::noinline]]
KV_REPLACED void* operator new(size_t n) { return kv::failing_new_or_throw(n, 0); }
KV_REPLACED void* operator new[](size_t n) { return kv::failing_new_or_throw(n, 0); }
KV_REPLACED void* operator new(size_t n, std::align_val_t a) {
  return kv::failing_new_or_throw(n, static_cast<size_t>(a));
}
KV_REPLACED void* operator new[](size_t n, std::align_val_t a) {
  return kv::failing_new_or_throw(n, static_cast<size_t>(a));
}
KV_REPLACED void* operator new(size_t n, const std::nothrow_t&) noexcept {
  return kv::failing_new(n, 0);
}
KV_REPLACED void* operator new[](size_t n, const std::nothrow_t&) noexcept {
  return kv::failing_new(n, 0);
}
KV_REPLACED void operator delete(void* p) noexcept { std::free(p); }
KV_REPLACED void operator delete[](void* p) noexcept { std::free(p); }
KV_REPLACED void operator delete(void* p, size_t) noexcept { std::free(p); }
KV_REPLACED void operator delete[](void* p, size_t) noexcept { std::free(p); }
KV_REPLACED void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
KV_REPLACED void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
KV_REPLACED void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
KV_REPLACED void operator delete[](void* p, size_t, std::align_val_t) noexcept { std::free(p); }
