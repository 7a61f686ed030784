// EntryWords: what a client says of an entry beside its tokens: advice, kept with the entry's last
// object and shown to people. PROTOCOL.md, "Labels and costs". A plain value.
#pragma once

#include <cstdint>
#include <string>

#include "proto/status.h"

namespace kv {

struct EntryWords {
  uint32_t prefill_ms = 0;  ///< what computing its tokens cost; 0: not said
  /// For people: printable UTF-8, at most kMaxLabelBytes; empty: none. Whoever may list the store
  /// reads it, so nothing of a prompt.
  std::string label;
  bool operator==(const EntryWords&) const = default;
  bool empty() const { return prefill_ms == 0 && label.empty(); }
};

/// Returns: invalid_argument (too long, no UTF-8, a control character).
Status check_label(const std::string& label);

}  // namespace kv
