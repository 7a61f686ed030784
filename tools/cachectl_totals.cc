// Sums over a directory's files.
#include "tools/cachectl_totals.h"

namespace kv::cachectl {

FileUsers users_of(const std::vector<Entry>& entries) {
  FileUsers users;
  for (const Entry& e : entries) {
    for (const InspectedFile* f : e.files) ++users[f];
  }
  return users;
}

uint64_t shared_bytes(const Entry& entry, const FileUsers& users) {
  uint64_t bytes = 0;
  for (const InspectedFile* f : entry.files) {
    auto found = users.find(f);
    if (found != users.end() && found->second > 1) bytes += f->allocated_bytes;
  }
  return bytes;
}

StoreTotals totals_of(const Inspection& all, const FileUsers& users) {
  StoreTotals out;
  for (const InspectedFile& f : all.files) {
    auto found = users.find(&f);
    const uint64_t n = found == users.end() ? 0 : found->second;
    (n == 0 ? out.others : n == 1 ? out.unique : out.shared) += f.allocated_bytes;
    if (n > 1) out.saved += (n - 1) * f.allocated_bytes;
  }
  for (const auto* stray : {&all.temporary, &all.quarantined}) {
    for (const StrayFile& f : *stray) out.others += f.allocated_bytes;
  }
  out.rest = all.totals.directory_bytes - out.unique - out.shared - out.others;
  return out;
}

}  // namespace kv::cachectl
