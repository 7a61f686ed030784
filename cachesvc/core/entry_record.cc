// Words and their charge.
#include "cachesvc/core/entry_record.h"

#include "cachesvc/core/realm_state.h"

namespace kv {

bool say(const Env& env, Record& record, const EntryWords& words) {
  if (record.words && *record.words == words) return false;
  auto charge =
      env.pool->try_charge(ChargeKind::index, sizeof(EntryWords) + words.label.capacity());
  if (!charge) return false;
  const uint64_t before =
      record.words ? sizeof(EntryWords) + record.words->label.capacity() : uint64_t{0};
  record.words = std::make_unique<const EntryWords>(words);
  record.index_charge.merge(std::move(*charge));
  (void)record.index_charge.split(before);
  return true;
}

uint64_t saved_ms(const Record& record, uint32_t n) {
  if (!record.words) return 0;
  const uint32_t end = record.realm->tree.end_token(record.node);
  return uint64_t{record.words->prefill_ms} * std::min(n, end) / end;
}

}  // namespace kv
