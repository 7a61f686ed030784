// The table of names.
#include "cachesvc/daemon/http_names.h"

#include <algorithm>

namespace kv {
namespace {

constexpr StatKind kCounter = StatKind::counter, kGauge = StatKind::gauge;
constexpr double kMs = 1e-3, kUs = 1e-6, kPercent = 1e-2;

constexpr const char* kShort =
    "Requests served in part or not at all, by what followed lacked (cachectl why has the words).";
constexpr StatName kNames[] = {
    // requests
    {"lookups", kCounter, "lookups", 1, "Lookups and prefetches."},
    {"fetches", kCounter, "fetches", 1, "Fetches."},
    {"stores", kCounter, "stores", 1, "Stores that were begun (reservations)."},
    {"commits", kCounter, "commits", 1, "Stores that became visible."},
    {"aborts", kCounter, "aborts", 1, "Stores that their client gave up."},
    {"reservations_expired", kCounter, "reservations_expired", 1,
     "Stores that nobody went on with."},
    {"busy", kCounter, "busy_answers", 1, "Requests refused as something was full for the moment."},
    {"denied", kCounter, "denied", 1, "Users, tokens and passwords refused."},
    {"over_quota", kCounter, "over_quota", 1, "Requests refused as their namespace had its quota."},
    // hits
    {"hit_tokens_ram", kCounter, "hit_tokens_ram", 1, "Prompt tokens served from RAM."},
    {"hit_tokens_ssd", kCounter, "hit_tokens_ssd", 1, "Prompt tokens served from the SSD."},
    {"hit_tokens_remote", kCounter, "hit_tokens_remote", 1,
     "Prompt tokens served from the tier that machines share."},
    {"miss_tokens", kCounter, "miss_tokens", 1, "Prompt tokens asked for and not served."},
    {"fetch_misses", kCounter, "fetch_misses", 1, "Fetches and lookups that found nothing."},
    {"prefill_ms_told", kCounter, "prefill_told_seconds", kMs,
     "Prefill that stores cost, as clients told."},
    {"prefill_ms_saved", kCounter, "prefill_saved_seconds", kMs,
     "Prefill that hits saved, of what clients told."},
    // stores
    {"puts_duplicate", kCounter, "puts_duplicate", 1, "Objects put that were there already."},
    {"copies", kCounter, "copies", 1, "Objects whose rows were copied from stored ones."},
    {"objects_committed", kCounter, "objects_committed", 1, "Objects stored."},
    {"objects_lost", kCounter, "objects_lost", 1, "Objects that were gone by their commit."},
    {"commits_foreign", kCounter, "commits_foreign", 1,
     "Objects that another store brought first."},
    {"ends_kept", kCounter, "named_ends_kept", 1, "Ends named by stores that are restorable."},
    {"ends_missed", kCounter, "named_ends_missed", 1,
     "Ends named by stores that are not restorable."},
    {"encoded_planes", kCounter, "encoded_planes", 1, "Planes coded."},
    {"encode_raw_fallbacks", kCounter, "encode_raw_fallbacks", 1,
     "Planes stored as given though a code was asked for."},
    {"nonfinite_planes", kCounter, "nonfinite_planes", 1, "Planes with NaN or infinite values."},
    {"superseded_tails", kCounter, "superseded_tails", 1,
     "Tails that a longer entry made superfluous."},
    {"copied_supplements", kCounter, "copied_supplements", 1, "Supplements copied at commits."},
    // spilling
    {"spills_queued", kCounter, "spills_queued", 1, "Objects that entered the write queue."},
    {"spills_deferred", kCounter, "spills_deferred", 1,
     "Objects that the write queue had no room for."},
    {"spills_held", kCounter, "spills_held", 1, "Times that the write budget was spent."},
    {"spills_written", kCounter, "spills_written", 1, "Objects written to the SSD."},
    {"spills_failed", kCounter, "spills_failed", 1, "Objects whose write failed."},
    {"spills_dropped", kCounter, "spills_dropped", 1,
     "Objects that nobody could have reached on the SSD."},
    {"spill_raw_bytes", kCounter, "spill_raw_bytes", 1, "Bytes in RAM of what was written."},
    {"spill_packed_bytes", kCounter, "spill_packed_bytes", 1,
     "Bytes in files of what was written."},
    // the shared tier
    {"remote_questions", kCounter, "remote_questions", 1, "Questions to the shared tier."},
    {"remote_found", kCounter, "remote_found_questions", 1,
     "Questions to the shared tier that found more than local tiers had."},
    {"remote_unreached", kCounter, "remote_unanswered_questions", 1,
     "Questions that the shared tier did not answer."},
    {"remote_objects_read", kCounter, "remote_objects_read", 1,
     "Objects brought from the shared tier."},
    {"remote_bytes_read", kCounter, "remote_bytes_read", 1,
     "Bytes of values from the shared tier."},
    {"remote_read_failures", kCounter, "remote_read_failures", 1,
     "Objects found in the shared tier that did not come."},
    {"remote_objects_written", kCounter, "remote_objects_written", 1,
     "Objects stored in the shared tier."},
    {"remote_bytes_written", kCounter, "remote_bytes_written", 1,
     "Bytes of objects stored in the shared tier."},
    {"remote_existed", kCounter, "remote_existed_objects", 1,
     "Objects that the shared tier had when they were to be stored."},
    {"remote_writes_dropped", kCounter, "remote_writes_dropped", 1,
     "Objects not stored in the shared tier as too many waited."},
    {"remote_writes_failed", kCounter, "remote_writes_failed", 1,
     "Objects that could not be stored in the shared tier."},
    {"remote_refused_full", kCounter, "remote_refused_full", 1,
     "Objects that the shared tier had no memory for."},
    {"remote_damaged", kCounter, "remote_damaged_values", 1,
     "Values of the shared tier that did not verify, and were removed."},
    {"remote_foreign", kCounter, "remote_foreign_values", 1,
     "Values of the shared tier of another key or version."},
    {"remote_erased", kCounter, "remote_erased_objects", 1,
     "Objects that erases took from the shared tier."},
    {"remote_erase_unreached", kCounter, "remote_erase_unreached", 1,
     "Objects or nodes of the shared tier that erases could not reach."},
    {"remote_write_queue", kGauge, "remote_write_queue", 1,
     "Objects that wait to be stored in the shared tier."},
    {"remote_nodes", kGauge, "remote_nodes", 1, "Nodes of the shared tier that are known."},
    {"remote_nodes_lost", kGauge, "remote_nodes_lost", 1,
     "Nodes of the shared tier that are not asked now."},
    {"remote_profiles_other", kGauge, "remote_profiles_other", 1,
     "Models of which the shared tier has another profile than is in force here."},
    {"remote_profiles_unheard", kGauge, "remote_profiles_unheard", 1,
     "Models of which the shared tier did not say which profile it has."},
    {"remote_silent", kGauge, "remote_silent", 1,
     "1 while the shared tier is not asked, as it did not answer."},
    // requests that were not served whole
    {"short_never_stored", kCounter, "short_requests", 1, kShort, "never_stored"},
    {"short_evicted_ram", kCounter, "short_requests", 1, kShort, "evicted_ram"},
    {"short_evicted_ssd", kCounter, "short_requests", 1, kShort, "evicted_ssd"},
    {"short_evicted_index", kCounter, "short_requests", 1, kShort, "evicted_index"},
    {"short_erased", kCounter, "short_requests", 1, kShort, "erased"},
    {"short_expired", kCounter, "short_requests", 1, kShort, "expired"},
    {"short_damaged", kCounter, "short_requests", 1, kShort, "damaged"},
    {"short_file_gone", kCounter, "short_requests", 1, kShort, "file_gone"},
    {"short_unreadable", kCounter, "short_requests", 1, kShort, "unreadable"},
    {"short_part", kCounter, "short_requests", 1, kShort, "part"},
    {"short_other_profile", kCounter, "short_requests", 1, kShort, "other_profile"},
    {"short_other_model", kCounter, "short_requests", 1, kShort, "other_model"},
    {"short_no_room", kCounter, "short_requests", 1, kShort, "no_room"},
    {"short_pending", kCounter, "short_requests", 1, kShort, "pending"},
    {"short_asked_less", kCounter, "short_requests", 1, kShort, "asked_less"},
    {"short_not_there", kCounter, "short_requests", 1, kShort, "not_there"},
    // promotion
    {"promotions", kCounter, "promotions", 1, "Objects read from the SSD into RAM."},
    {"promotion_joins", kCounter, "promotion_joins", 1, "Waits for a read that was under way."},
    {"promotion_failures", kCounter, "promotion_failures", 1, "Reads that failed."},
    {"warm_objects", kCounter, "warm_objects", 1, "Objects brought back to RAM at the start."},
    {"ram_moved", kCounter, "ram_moved_objects", 1,
     "Objects moved out of segments that are to go back."},
    // eviction and damage
    {"ram_evicted_clean", kCounter, "ram_evicted_clean_objects", 1,
     "Objects dropped from RAM that the SSD has."},
    {"ram_evicted_dirty", kCounter, "ram_evicted_dirty_objects", 1,
     "Objects dropped from RAM that the SSD had not: lost."},
    {"ssd_evicted", kCounter, "ssd_evicted_objects", 1, "Objects dropped from the SSD for others."},
    {"index_evicted", kCounter, "index_evicted_objects", 1,
     "Objects dropped from both tiers as the index was full."},
    {"demoted_objects", kCounter, "demoted_objects", 1,
     "Objects that clients sent from RAM to the SSD."},
    {"erased_objects", kCounter, "erased_objects", 1, "Objects that clients erased."},
    {"expired_objects", kCounter, "expired_objects", 1, "Objects whose time was over."},
    {"ram_verified", kCounter, "ram_verified_objects", 1,
     "Objects in RAM compared with their checksum."},
    {"ram_damaged", kCounter, "ram_damaged_objects", 1,
     "Objects in RAM that had lost their checksum."},
    {"scrubbed_files", kCounter, "scrubbed_files", 1,
     "Files read and verified though nobody asked."},
    {"scrubbed_bytes", kCounter, "scrubbed_bytes", 1, "Their bytes."},
    {"scrub_passes", kCounter, "scrub_passes", 1, "Passes over the whole SSD tier that ended."},
    {"scrub_damaged", kCounter, "scrub_damaged_files", 1, "Files that the scrubber found damaged."},
    {"quarantined", kCounter, "quarantined_files", 1, "Files put aside as they did not verify."},
    {"read_io_errors", kCounter, "read_errors", 1, "Reads that the device refused."},
    {"io_timeouts", kCounter, "io_timeouts", 1, "Reads that took longer than the limit."},
    // RAM
    {"ram_budget_bytes", kGauge, "ram_budget_bytes", 1, "The RAM budget."},
    {"ram_used_bytes", kGauge, "ram_used_bytes", 1, "RAM charged."},
    {"ram_peak_bytes", kGauge, "ram_peak_bytes", 1,
     "The most RAM that was charged since the start."},
    {"ram_stored_bytes", kGauge, "ram_stored_bytes", 1, "RAM of objects."},
    {"ram_staging_bytes", kGauge, "ram_staging_bytes", 1,
     "RAM of objects that arrive or are coded."},
    {"ram_promotion_bytes", kGauge, "ram_promotion_bytes", 1, "RAM of reads from the SSD."},
    {"ram_spill_bytes", kGauge, "ram_spill_bytes", 1, "RAM of objects that are packed."},
    {"ram_reply_bytes", kGauge, "ram_reply_bytes", 1, "RAM of answers."},
    {"ram_index_bytes", kGauge, "ram_index_bytes", 1, "RAM of names and tokens."},
    {"ram_session_bytes", kGauge, "ram_session_bytes", 1, "RAM of connections and holds."},
    {"ram_model_bytes", kGauge, "ram_model_bytes", 1, "RAM of models, profiles and codecs."},
    {"ram_recycled_bytes", kGauge, "ram_recycled_bytes", 1, "RAM that waits to be used again."},
    {"ram_objects", kGauge, "ram_objects", 1, "Objects in RAM."},
    {"segments", kGauge, "segments", 1, "Segments of RAM."},
    {"segment_announced_bytes", kGauge, "segment_announced_bytes", 1,
     "Bytes of segments that clients may map."},
    {"segment_idle_bytes", kGauge, "segment_idle_bytes", 1, "Of those, bytes beside objects."},
    // SSD
    {"ssd_objects", kGauge, "ssd_objects", 1, "Objects on the SSD."},
    {"ssd_limit_bytes", kGauge, "ssd_limit_bytes", 1, "The most that the SSD tier may take."},
    {"ssd_used_bytes", kGauge, "ssd_used_bytes", 1, "Allocated bytes of its directory."},
    {"ssd_quarantine_bytes", kGauge, "ssd_quarantine_bytes", 1,
     "Of those, bytes put aside as damaged."},
    {"ssd_other_key_files", kGauge, "ssd_other_key_files", 1, "Files that another key sealed."},
    {"ssd_other_key_bytes", kGauge, "ssd_other_key_bytes", 1, "Their bytes."},
    {"ssd_other_key_dropped", kGauge, "ssd_other_key_dropped_files", 1,
     "Files of another key that made room."},
    {"spill_queue_bytes", kGauge, "write_queue_bytes", 1,
     "Bytes that wait to be written to the SSD."},
    {"spill_queue_limit_bytes", kGauge, "write_queue_limit_bytes", 1, "The most that may wait."},
    {"ssd_written_bytes", kCounter, "ssd_written_bytes", 1, "Bytes written to the device."},
    {"ssd_catalog_written_bytes", kCounter, "ssd_catalog_written_bytes", 1,
     "Of those, the catalog's."},
    {"ssd_written_day_bytes", kGauge, "ssd_written_day_bytes", 1,
     "Bytes written in the last 24 hours."},
    {"ssd_write_percent", kGauge, "ssd_write_ratio", kPercent,
     "Bytes written to the device by bytes of objects in RAM."},
    {"ssd_hangs", kGauge, "ssd_hangs", 1,
     "1 while nothing waits for the SSD, as it does not answer."},
    // others
    {"reservations", kGauge, "reservations", 1, "Stores under way."},
    {"sessions", kGauge, "sessions", 1, "Connections of clients."},
    {"models", kGauge, "models", 1, "Models open or with something stored."},
    {"waiting_calls", kGauge, "waiting_calls", 1, "Requests under way."},
    {"pins", kGauge, "pins", 1, "Reasons why some object may not go now."},
    {"holds", kGauge, "holds", 1, "Prompts that clients hold."},
    {"retains", kGauge, "retains", 1, "Prompts that clients retain."},
    {"held_bytes", kGauge, "held_bytes", 1, "Bytes that holds pin."},
    // the loop
    {"loop_longest_us", kGauge, "loop_longest_step_seconds", kUs,
     "The longest step of the last minute or two, for which all clients waited."},
    {"loop_longest_cpu_us", kGauge, "loop_longest_step_cpu_seconds", kUs,
     "The same, of the processor."},
    {"loop_handlers", kCounter, "loop_steps", 1, "Steps of the loop."},
    {"loop_over_1ms", kCounter, "loop_long_steps", 1, "Steps of over a millisecond."},
    {"loop_over_1ms_cpu", kCounter, "loop_long_cpu_steps", 1,
     "Steps of over a millisecond of the processor."},
    // the start
    {"recovered_objects", kGauge, "recovered_objects", 1, "Objects that the start found."},
    {"recovered_skipped", kGauge, "recovered_skipped_objects", 1,
     "Of those, objects that serve nothing."},
    {"recovery_adopted", kGauge, "recovery_adopted_files", 1,
     "Files that the catalog did not know."},
    {"recovery_adopted_bytes", kGauge, "recovery_adopted_bytes", 1, "Their bytes."},
    {"recovery_rows_dropped", kGauge, "recovery_dropped_rows", 1,
     "Rows of the catalog without a file."},
    {"recovery_quarantined", kGauge, "recovery_quarantined_files", 1,
     "Files that the start put aside."},
    {"recovery_unreadable", kGauge, "recovery_unreadable_files", 1,
     "Files that the start could not read."},
    {"recovery_unread", kGauge, "recovery_unread_files", 1, "Files that are still to be read."},
    {"recovery_ms", kGauge, "recovery_seconds", kMs, "The time that the start took."},
    {"recovery_ephemeral_dropped", kGauge, "recovery_ephemeral_dropped_files", 1,
     "Files of an earlier process's key."},
};

// Bytes of the UTF-8 character that `text` begins with; 0: it begins with none.
size_t character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t size = byte(0) < 0x80         ? 1
                      : byte(0) >> 5 == 0x6  ? 2
                      : byte(0) >> 4 == 0xe  ? 3
                      : byte(0) >> 3 == 0x1e ? 4
                                             : 0;
  if (size == 0 || size > text.size()) return 0;
  uint32_t code = size == 1 ? byte(0) : byte(0) & (0xffu >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if (byte(i) >> 6 != 2) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[size] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return 0;
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == '\\' ? 0 : size;
}

}  // namespace

const StatName* find_stat_name(std::string_view stat) {
  auto at = std::find_if(std::begin(kNames), std::end(kNames),
                         [&](const StatName& name) { return stat == name.stat; });
  return at == std::end(kNames) ? nullptr : &*at;
}

std::string metric_name(const StatName& name) {
  return std::string("cachesvc_") + name.metric + (name.kind == StatKind::counter ? "_total" : "");
}

std::string series_name(const StatName& name) {
  const std::string label =
      *name.reason == 0 ? "" : std::string("{reason=\"") + name.reason + "\"}";
  return metric_name(name) + label;
}

std::string shown_name(std::string_view name) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  while (!name.empty()) {
    const size_t size = character(name);
    if (size > 0) {
      out.append(name.substr(0, size));
    } else {
      const auto byte = static_cast<unsigned char>(name[0]);
      out.append("\\x").append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
    }
    name.remove_prefix(std::max<size_t>(size, 1));
  }
  return out;
}

}  // namespace kv
