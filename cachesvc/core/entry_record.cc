// Words and their charge.
#include "cachesvc/core/entry_record.h"

#include <algorithm>

#include "cachesvc/core/realm_state.h"

namespace kv {
namespace {

uint64_t bytes_of(const EntryWords& words) { return sizeof(EntryWords) + words.label.capacity(); }

}  // namespace

bool say(const Env& env, Record& record, const EntryWords& words) {
  if (record.wishes.words && *record.wishes.words == words) return false;
  auto kept = std::make_unique<const EntryWords>(words);
  auto charge = env.pool->try_charge(ChargeKind::index, bytes_of(*kept));
  if (!charge) return false;
  const uint64_t before = record.wishes.words ? bytes_of(*record.wishes.words) : 0;
  record.wishes.words = std::move(kept);
  if (words.prefill_ms > 0) {
    const auto end = static_cast<float>(record.realm->tree.end_token(record.node));
    const uint32_t first = record.realm->tree.first_token(record.node);
    record.realm->ms_per_token = static_cast<float>(words.prefill_ms) / end;
    const auto bytes = static_cast<float>(std::max<uint64_t>(1, record.payload_bytes));
    record.realm->ms_per_mib =
        record.realm->ms_per_token * (end - static_cast<float>(first)) / bytes * (1 << 20);
  }
  record.index_charge.merge(std::move(*charge));
  (void)record.index_charge.split(before);
  return true;
}

uint64_t saved_ms(const Record& record, uint32_t n) {
  if (!record.wishes.words) return 0;
  const uint32_t end = record.realm->tree.end_token(record.node);
  return uint64_t{record.wishes.words->prefill_ms} * std::min(n, end) / end;
}

}  // namespace kv
