// ObjectNote: advice on a stored object that its file does not have. The catalog keeps it, and it
// is lost with that. A plain value.
#pragma once

#include <cstdint>

#include "proto/entry_words.h"

namespace kv {

struct ObjectNote {
  bool named_end = false;  ///< it serves an end that a client named
  EntryWords words{};      ///< of the entry that ends with it
  uint64_t expires = 0;    ///< it is removed then: whole seconds since 1970, UTC; 0: never
  bool operator==(const ObjectNote&) const = default;
  bool empty() const { return *this == ObjectNote(); }
};

}  // namespace kv
