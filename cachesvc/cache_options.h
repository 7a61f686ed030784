// CacheOptions: every limit of the cache by name. Plain values; checked once, when a cache is
// created.
//
// A default with a constant of its own is no setting of the daemon (daemon/config_keys.cc): it
// keeps to the constant; an embedder and a test may choose otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "cachesvc/cache_event.h"
#include "cachesvc/namespace_options.h"
#include "codec/plan.h"
#include "proto/status.h"
#include "storage/ssd_tier.h"

namespace kv {

using Milliseconds = std::chrono::milliseconds;

/// Time at which new objects enter the write queue of the SSD tier.
enum class SpillWhen : uint8_t {
  commit,  ///< as soon as they are committed
  evict,   ///< only when RAM is short: less wear, and a crash loses what was never evicted
};

/// Packing of codes for the SSD. It saves some 5 % of them, and they unpack more slowly than a fast
/// device reads. Rows kept exact, of which it saves 15 to 32 %, are packed in any case.
enum class PackCodes : uint8_t {
  scarce,  ///< once three quarters of the SSD tier are used, or where writes have a budget
  always,
  never,
};

/// Treatment of planes and states that hold NaN or infinite values.
enum class Nonfinite : uint8_t {
  refuse,  ///< the put fails, naming layer and part
  raw,     ///< stored as given, uncoded: the engine gets back what it had
};

inline constexpr uint64_t kMinRamBudgetBytes = 1ull << 20;
inline constexpr double kMinRamFraction = 0.001, kMaxRamFraction = 0.95;
/// A guest's share of the memory available, and its limit: the machine is the engine's.
inline constexpr double kRamFraction = 0.125;
inline constexpr uint64_t kMostRamBytes = 4ull << 30;

inline constexpr double kStagingFraction = 0.25;
inline constexpr Milliseconds kVerifyAfter{60'000};
inline constexpr uint64_t kReadyBytes = 128ull << 20;
inline constexpr uint64_t kQuarantineBytes = 64ull << 20;
inline constexpr uint64_t kAdoptAtStart = 2048;
inline constexpr uint64_t kReconcileRate = 20'000;
inline constexpr uint64_t kSpillQueueBytes = 1ull << 30;
inline constexpr PackCodes kPackCodes = PackCodes::scarce;
inline constexpr uint32_t kSpillBatchFiles = 16;
inline constexpr Milliseconds kDurableGroupDelay{20};
inline constexpr uint32_t kMaxReservations = 256;
inline constexpr uint32_t kMaxWaitingCalls = 4096;
inline constexpr Milliseconds kReservationTimeout{120'000};
inline constexpr Milliseconds kRoomWait{5'000};
inline constexpr Milliseconds kIoTimeout{10'000};
inline constexpr uint32_t kDiskThreads = 4;
inline constexpr Milliseconds kIoBackoff{30'000};
inline constexpr uint32_t kMinPrefixTokens = 1;
inline constexpr uint32_t kEndsByPrice = UINT32_MAX;  ///< of block_end_interval
inline constexpr uint32_t kMaxHolds = 1024;
inline constexpr Milliseconds kMaxHoldTime{600'000};
inline constexpr double kHoldFraction = 0.5;
inline constexpr uint64_t kRemoteWriteRate = 64ull << 20;
inline constexpr uint32_t kRemoteMinTokens = 512;

class SharedTier;
/// Use of a tier that many machines share.
struct RemoteUse {
  std::shared_ptr<SharedTier> tier;                    ///< null: there is none
  uint64_t write_bytes_per_second = kRemoteWriteRate;  ///< what is written to it; 0: no limit
  /// It is asked where it could restore so many tokens more than local tiers do.
  uint32_t min_tokens = kRemoteMinTokens;
  /// Time between looks at the fleet's profiles, which renew their expiry.
  Milliseconds profile_check{600'000};
};

struct CacheOptions {
  // RAM
  uint64_t ram_budget_bytes = 0;               ///< 0: ram_fraction of the memory available at start
  double ram_fraction = kRamFraction;          ///< part of MemAvailable, or of a lower cgroup limit
  uint64_t ram_most_bytes = kMostRamBytes;     ///< limit of that part; 0: none
  double staging_fraction = kStagingFraction;  ///< part of the budget: bytes in transit or encoding
  /// An object in RAM is compared with its checksum beside the first of its uses that comes so long
  /// after the last time (0: before each use, which waits for it), and always before it is written
  /// to the SSD or rows are copied from it. At most a year.
  Milliseconds verify_after = kVerifyAfter;
  /// Fresh memory that waits for the next promotion, which else waits for its first touch: made at
  /// start, if the SSD has anything, and after promotions. In steps of 32 MiB, at most an eighth of
  /// the budget; 0: none.
  uint64_t ready_bytes = kReadyBytes;
  /// Objects lie in segments that clients of their namespace may map: for a service. No fresh
  /// memory waits then.
  bool segments = false;
  uint64_t warm_start_bytes = 0;  ///< the most recently used objects to promote at start; 0: none
  double index_fraction = 0.25;   ///< part of the budget: tokens and names of both tiers

  // SSD
  std::string ssd_dir;  ///< empty: no SSD tier
  uint64_t ssd_limit_bytes = 32ull << 30;
  uint64_t ssd_min_free_bytes = 1ull << 30;
  uint64_t ssd_quarantine_bytes = kQuarantineBytes;  ///< damaged files kept to be looked at
  std::shared_ptr<const SealKey> ssd_key;            ///< seals what is written; null: it is plain
  /// Files that the catalog doesn't know at a start: `adopt_at_start` of them are read before
  /// anything is served, the others in the background, `reconcile_rate` a second (0: as fast as can
  /// be).
  uint64_t adopt_at_start = kAdoptAtStart;
  uint64_t reconcile_rate = kReconcileRate;
  /// Told what a start found, without its objects: on return from create(), and once more when the
  /// background has read the rest. On the loop; may not call the cache.
  std::function<void(const Recovery& found)> on_recovered;
  OnEvent on_event;
  /// Handler of each fetch and lookup as it is answered; may not call the cache. Null: none.
  std::function<void(const RequestRecord&)> on_request;
  /// Rate of reading files from the SSD to verify them, though nobody asks for them; 0: none.
  uint64_t scrub_bytes_per_second = 1u << 20;
  Files* ssd_files = nullptr;  ///< for tests; null: the operating system
  StepObserver ssd_observer;   ///< for tests
  /// The time of day; for tests. Null: the system's.
  std::function<std::chrono::system_clock::time_point()> wall_clock;

  // Spilling
  SpillWhen spill_when = SpillWhen::commit;
  /// Waiting or being written; more waits in RAM, dirty.
  uint64_t spill_queue_bytes = kSpillQueueBytes;
  /// Limits of everything written to the SSD, the catalog too; 0: none. While they hold spills up,
  /// what was reused most is written first, and what leaves RAM before its turn is not written.
  uint64_t write_bytes_per_second = 0;
  uint64_t write_bytes_per_day = 0;  ///< bytes in any 24 hours, restarts included
  PackCodes pack_codes = kPackCodes;
  uint32_t spill_batch_files = kSpillBatchFiles;  ///< written by one job
  /// The longest a durable commit waits for companions.
  Milliseconds durable_group_delay = kDurableGroupDelay;

  RemoteUse remote;

  // Work
  uint32_t workers = 2;
  uint32_t max_sessions = 1024;
  uint32_t max_models = 256;  ///< (namespace, model) pairs that are open or stored of
  uint32_t max_reservations = kMaxReservations;  ///< all sessions together
  uint64_t max_put_bytes = UINT64_MAX;  ///< bytes of one object, as its front end takes it in
  /// Calls that wait for room or for a promotion; more get busy.
  uint32_t max_waiting_calls = kMaxWaitingCalls;
  Milliseconds reservation_timeout = kReservationTimeout;  ///< time without a put, commit or abort
  uint32_t max_holds = kMaxHolds;                          ///< per namespace
  Milliseconds max_hold_time = kMaxHoldTime;               ///< longer ones are clipped
  double hold_fraction = kHoldFraction;  ///< part of a namespace's RAM or SSD for its holds
  /// The longest a call waits for spills and leases to free RAM.
  Milliseconds room_wait = kRoomWait;
  /// A read that takes longer is a miss, and until it returns nothing more is read from the SSD; a
  /// write that does is given up by whoever waits for it. RAM goes on.
  Milliseconds io_timeout = kIoTimeout;
  uint32_t disk_threads = kDiskThreads;  ///< reads and writes of the SSD at a time
  /// Time of misses after a failed read, and without tries after a failed spill.
  Milliseconds io_backoff = kIoBackoff;
  Milliseconds drain_timeout{10'000};  ///< TieredCache's destructor; 0: nothing more is written

  /// Quotas by namespace. Namespaces not listed have the rest together.
  std::map<std::string, NamespaceQuota> quotas;

  // Coding and serving
  CodingSettings coding{8, 4};  ///< (the preset `auto`) for models opened without a profile
  /// Profiles by model fingerprint, instead of the plain one.
  std::map<Id, std::shared_ptr<const Profile>> profiles;
  Nonfinite nonfinite = Nonfinite::refuse;
  uint32_t min_prefix_tokens = kMinPrefixTokens;  ///< shorter hits are misses
  /// Window and chunk rows, pooled carries and checkpoints are welcome at every so many block ends
  /// (0: none) beside an entry's own ends and the place where it leaves another entry, and go first
  /// when bytes are short. kEndsByPrice: rows and carries at as many as take no more bytes than the
  /// entry itself (proto/end_price.h). With coded prefill, which resumes at block ends only, either
  /// means 1.
  uint32_t block_end_interval = kEndsByPrice;
};

/// Returns: invalid_argument naming the option and its limits.
Status validate(const CacheOptions& options);

/// Shares of namespaces that can't all be held: more than `ram_bytes` of RAM together, or than the
/// SSD's limit. Returns: invalid_argument.
Status check_shares(const CacheOptions& options, uint64_t ram_bytes);

/// The RAM budget in bytes that `options` mean on this machine now: absolute, or the fraction of
/// the smaller of MemAvailable (/proc/meminfo) and what the cgroup v2 limit leaves. Returns:
/// io_error.
Result<uint64_t> ram_budget(const CacheOptions& options);

}  // namespace kv
