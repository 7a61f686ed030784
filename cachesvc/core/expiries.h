// Expiries: the times at which objects are removed, the next one first; wall-clock times, since
// they outlive the process. A start gives them back from the SSD's catalog. An object that goes
// takes its time with it. A time takes kBytes of the index's account, less than its object takes
// there: so the bound of objects is theirs too. Loop thread only.
#pragma once

#include <boost/intrusive/set.hpp>
#include <chrono>

#include "cachesvc/core/env.h"
#include "cachesvc/core/record.h"

namespace kv {

class Expiries {
 public:
  /// Bytes of one, charged to the index's share of RAM.
  static constexpr uint64_t kBytes = sizeof(Expiry) + 16;

  Expiries() = default;
  Expiries(const Expiries&) = delete;  // records link here
  Expiries& operator=(const Expiries&) = delete;

  /// `charge`: pays for a time that is new; none: nobody does.
  void set(Record& record, uint64_t at, Charge charge);
  /// True if it had a time.
  bool lift(Record& record);
  /// The object whose time comes next; null: none has one.
  Record* next();
  bool empty() const { return order_.empty(); }
  /// Ends the process if an expiry is not its record's.
  void check_invariants() const;

 private:
  struct Sooner {
    bool operator()(const Expiry& a, const Expiry& b) const { return a.at < b.at; }
  };
  boost::intrusive::multiset<Expiry, boost::intrusive::compare<Sooner>,
                             boost::intrusive::constant_time_size<false>>
      order_;
};

/// Whole seconds since 1970, UTC, by the core's wall clock.
uint64_t wall_seconds(const Env& env);

}  // namespace kv
