// LostNames: names of files that go while the files of a store are read after the start, so that
// the reconciler does not take one that it read of before for a file that is there.
//
// SsdLane owns it; whoever lets a file go notes its name. Loop thread only.
#pragma once

#include <set>

#include "proto/plane.h"

namespace kv {

class LostNames {
 public:
  /// Begins with none, or ends.
  void remember(bool on) {
    remembers_ = on;
    names_.clear();
  }
  void note(const ObjectName& name) {
    if (remembers_) names_.insert(name);
  }
  bool contains(const ObjectName& name) const { return names_.contains(name); }

 private:
  bool remembers_ = false;
  std::set<ObjectName> names_;
};

}  // namespace kv
