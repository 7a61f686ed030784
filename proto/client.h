// Client: the interface by which an engine stores and fetches prompt caches, and its values.
//
// Implemented by the socket client (proto/socket_client.h) and by the tiered cache in process
// (cachesvc/tiered_cache.h); callers cannot tell which. All calls block, are thread-safe, and end
// by their deadline, or `cancelled` by their stop. A failed call is a miss for the caller: nothing
// it stored before is harmed.
//
// One store:   reserve -> put each object it names as missing -> commit
// One fetch:   fetch -> use the lease's planes -> destroy the lease
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "proto/entry_words.h"
#include "proto/identity.h"
#include "proto/model.h"
#include "proto/plane.h"
#include "proto/profile.h"
#include "proto/request_record.h"
#include "proto/selection.h"
#include "proto/status.h"

namespace kv {

using Deadline = std::chrono::steady_clock::time_point;
inline Deadline deadline_in(std::chrono::milliseconds ms) {
  return std::chrono::steady_clock::now() + ms;
}
/// End of a call: its deadline, or before that a stop. Any thread may ask for the stop; a call that
/// still waits is then `cancelled`, one that has its answer gives it.
struct Until {
  Until(Deadline d, std::stop_token s = {})
      : deadline(d), stop(std::move(s)) {}  // NOLINT: implicit
  Deadline deadline;
  std::stop_token stop;
};

/// Effect of a codec setting on one part: requested against active, and why they differ.
struct CodingReport {
  uint16_t layer = 0;
  uint16_t part = 0;
  PartKind kind = PartKind::full;
  uint8_t requested_k_bits = 0, requested_v_bits = 0;
  uint8_t active_k_bits = 0, active_v_bits = 0;
  std::string reason;  ///< why active isn't what was requested; in stats also how rows fit it
};

struct OpenRequest {
  ModelSpec model;
  /// The profile to put in force if the model is new in this namespace; without one, the plain one.
  /// That of a fleet with a shared tier comes before either.
  std::shared_ptr<const Profile> profile;
  bool replace = false;  ///< put `profile`, or if that is null the fleet's, in force whatever is
  PrefillMode prefill = PrefillMode::exact;  ///< refused if the profile in force has another
};
struct OpenReply {
  uint32_t model = 0;  ///< handle for later calls of this client
  Realm realm;
  std::shared_ptr<const Profile> profile;  ///< the one in force
  std::vector<CodingReport> parts;
};

/// A token sequence as a question or as a key. `extras` positions are absolute.
struct Query {
  std::vector<Token> tokens;
  std::vector<Extra> extras;
};

/// lookup, erase_entry
struct QueryRequest {
  uint32_t model = 0;
  Query query;
  Id profile{};  ///< must be in force, else profile_changed; zero: the last open's
};

struct PrefetchRequest {
  uint32_t model = 0;
  Query query;        ///< empty where `hold` is given
  Id profile{};       ///< see QueryRequest
  bool wait = false;  ///< answer when what it begins to promote has come, or can't
  uint64_t hold = 0;  ///< a hold's number: its query and its length
};

/// mixed: of more than one; remote: the tier that machines share.
enum class Tier : uint8_t { none = 0, ram = 1, ssd = 2, mixed = 3, remote = 4 };
inline constexpr size_t kTiers = 5;
const char* to_string(Tier tier);
/// Form of the last rows of a hit: a tail as given, or coded blocks only.
enum class HitForm : uint8_t { none = 0, exact_tail = 1, coded = 2 };
const char* to_string(HitForm form);

struct LookupReply {
  uint32_t tokens = 0;  ///< n: the largest restorable length <= min(common prefix, query - 1)
  uint32_t common = 0;  ///< longest common prefix with anything stored
  Tier tier = Tier::none;
  HitForm form = HitForm::none;
  std::string reason;  ///< reason of n < common, but for the query - 1 rule
};

/// A lookup whose find stays for a while: neither tier evicts it.
struct HoldRequest {
  uint32_t model = 0;
  Query query;
  Id profile{};                       ///< see QueryRequest
  std::chrono::milliseconds time{0};  ///< at least 1; the service clips it
};
struct HoldReply {
  uint64_t number = 0;  ///< names it in later calls; 0: nothing was found
  std::chrono::milliseconds time{0};
  LookupReply found;  ///< `tokens` of it are held; `reason` says too why fewer are than were found
};

/// The end of a wish. Of several that fit the first one of these, but for `accepted`.
enum class Outcome : uint8_t {
  accepted = 1,  ///< done
  clipped = 2,   ///< done in part, now or later; the reason says which
  deferred = 3,  ///< done as soon as it can be, nothing left out
  rejected = 4,  ///< not done; the reason says why
  missing = 5,   ///< nothing is stored that it is about
};
const char* to_string(Outcome outcome);

struct DemoteRequest {
  uint32_t model = 0;
  Query query;        ///< empty where `hold` is given
  Id profile{};       ///< see QueryRequest
  uint64_t hold = 0;  ///< a hold's number: its query and its length
};
struct DemoteReply {
  Outcome outcome = Outcome::missing;
  uint32_t tokens = 0;  ///< that a fetch of the query would have served
  std::string reason;
};

/// A lookup whose find goes after everything else of its share of the cache, as long as it lasts.
struct RetainRequest {
  uint32_t model = 0;
  Query query;
  Id profile{};                       ///< see QueryRequest
  std::chrono::milliseconds time{0};  ///< at least 1; the service clips it
};
struct RetainReply {
  Outcome outcome = Outcome::missing;
  uint64_t number = 0;  ///< names it in renew and release, as a hold's does; 0: nothing is retained
  std::chrono::milliseconds time{0};
  uint32_t tokens = 0;  ///< that are retained
  std::string reason;
};

/// Stored objects that are to go by themselves, whatever room there is.
struct ExpireRequest {
  uint32_t model = 0;
  Query query;
  Id profile{};        ///< see QueryRequest
  bool whole = false;  ///< all that begins with the query, as erase; else one entry, as erase_entry
  std::chrono::seconds time{0};  ///< from now; 0: they have no such time any more
};
struct ExpireReply {
  Outcome outcome = Outcome::missing;
  uint64_t objects = 0;  ///< that have the time now
  std::string reason;
};

/// An object that a store lacks. block_index counts from 0; the tail has the highest.
struct Need {
  ObjectKind kind = ObjectKind::block;
  uint32_t block_index = 0;
  uint16_t group = 0;                   ///< supplement: part group
  uint32_t first_row = 0, end_row = 0;  ///< row range (absolute)
  bool required = true;                 ///< needed for coverage; else welcome
};
struct ReserveRequest {
  uint32_t model = 0;
  Id profile;   ///< must be the one in force, else profile_changed
  Query query;  ///< the whole sequence to be stored; its length is N
  /// Ends in it that are to stay restorable, as of the system prompt and of each turn: numbers of
  /// tokens, 1 to N, ascending, at most kMaxNamedEnds.
  std::vector<uint32_t> ends{};
  EntryWords words{};  ///< kept with the entry in place of earlier ones; empty: those stay
};
struct ReserveReply {
  uint64_t reservation = 0;
  std::vector<Need> needs;
};

/// Rows of a plane that need not travel: copied by the service from a stored object's codes.
struct CopyRows {
  ObjectName source;
  uint32_t first_row = 0, end_row = 0;
};
/// Puts one object of a reservation. Planes are all exact (a complete block's are then coded by the
/// service) or already coded under the profile. With `copies`, planes begin where the last one
/// ends.
struct PutRequest {
  uint64_t reservation = 0;
  Object object;  ///< name.id may be zero: the service stamps it
  std::vector<CopyRows> copies;
};

enum class Durability : uint8_t { none = 0, accepted = 1, spilled = 2, durable = 3 };
const char* to_string(Durability level);
/// An end that the reserve named, after the commit.
struct NamedEnd {
  uint32_t tokens = 0;
  bool restorable = false;
  std::string reason;  ///< why not
  bool operator==(const NamedEnd&) const = default;
};
struct CommitReply {
  Durability level = Durability::none;  ///< the lowest over the whole path
  std::vector<ObjectName> foreign;      ///< another commit's bytes are stored under these names
  std::vector<ObjectName> lost;         ///< gone since reserve: these and all after aren't stored
  std::vector<NamedEnd> ends{};         ///< one for each that the reserve named
};

/// Memory of a caller's, one piece after another.
using Pieces = std::vector<std::span<uint8_t>>;

enum class FetchForm : uint8_t { stored = 0, f32 = 1, f16 = 2, bf16 = 3 };
struct FetchRequest {
  uint32_t model = 0;
  Query query;
  FetchForm form = FetchForm::stored;
  bool wait = true;                  ///< false: answer "pending" instead of waiting for a promotion
  uint32_t max_tokens = UINT32_MAX;  ///< serve at most so many
  bool round_to_block = false;       ///< n down to a block end
  Id profile{};           ///< must be in force, else profile_changed; zero: the last open's
  Selection selection{};  ///< the part of the hit that is sent; n is the same whatever it is
  uint64_t hold = 0;      ///< a hold's number: its query, at most its length; `query` is empty then
  /// Local, not sent: the caller selects layers and parts of objects in stored form itself.
  bool whole_objects = false;
  /// Local: the payload is to lie here: of each object in order every plane, then every state,
  /// without gaps. The reply's objects point here (what lies in several pieces has no bytes), and
  /// its lease keeps nothing. Too short: resource_exhausted. What a failed call leaves here may be
  /// anything. Pieces that lie in the client's own memory are written by the service itself.
  Pieces into{};
};

/// An object of a hit and the part of it that the hit may use: rows of positions [0, end_token).
struct FetchedObject {
  ObjectPtr object;
  uint32_t end_token = 0;  ///< clip: rows at positions >= end_token are another sequence's
};

/// A stored prefix as a value: copying shares the planes, trimming changes only lengths.
struct Prefix {
  uint32_t tokens = 0;  ///< n
  std::vector<FetchedObject>
      objects;  ///< blocks in order, the tail, then supplements and snapshots
  /// The first n tokens of this prefix; only for models whose parts are all row-complete
  /// (full, latent). Returns: invalid_argument, unsupported (other part kinds: fetch again).
  Result<Prefix> trimmed(uint32_t n) const;
};

/// Says whether what a lease covers is still what it was.
class LeaseCheck {
 public:
  virtual ~LeaseCheck() = default;
  virtual bool valid() const = 0;
};

/// A client's right to read planes in place; ends when destroyed. Move-only: it releases once.
/// Copies of its objects' pointers keep it; copies of mapped planes keep their memory readable, but
/// not its bytes as they are.
class Lease {
 public:
  Lease() = default;
  /// `check`: in `kept`; null: it is always valid.
  Lease(Prefix prefix, std::shared_ptr<const void> kept, const LeaseCheck* check = nullptr)
      : prefix_(std::move(prefix)), kept_(std::move(kept)), check_(check) {}
  Lease(Lease&&) = default;
  Lease& operator=(Lease&&) = default;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  const Prefix& prefix() const { return prefix_; }
  /// Keeps the planes' memory where it is: for a lease of other views of them.
  const std::shared_ptr<const void>& kept() const { return kept_; }
  /// Asked after the last read: false if the service took the memory back (mapped leases only).
  bool valid() const { return check_ == nullptr || check_->valid(); }

 private:
  Prefix prefix_;
  std::shared_ptr<const void> kept_;
  const LeaseCheck* check_ = nullptr;
};

struct FetchReply {
  uint32_t tokens = 0;  ///< n; 0 is a miss
  uint32_t common = 0;
  bool pending = false;    ///< a promotion is under way; ask again
  Tier tier = Tier::none;  ///< place of the objects when the call came
  HitForm form = HitForm::none;
  std::string reason;
  Lease lease;
};

/// Named counters and gauges; names are stable and listed in PROTOCOL.md.
struct StatsReply {
  std::vector<std::pair<std::string, uint64_t>> values;
  std::vector<std::pair<std::string, std::vector<CodingReport>>> models;  ///< reports by model name
};

class Client {
 public:
  virtual ~Client() = default;

  /// Returns: invalid_argument (geometry, profile), unsupported (by name), busy.
  virtual Result<OpenReply> open(const OpenRequest& request, const Until& until) = 0;
  /// Advice only: fetch decides anew. Returns: invalid_argument (handle), profile_changed.
  virtual Result<LookupReply> lookup(const QueryRequest& request, const Until& until) = 0;
  /// Pins what exists and says what is missing; what named ends need is welcome, not required.
  /// Returns: profile_changed, resource_exhausted (the message names the largest length that would
  /// fit), busy, invalid_argument.
  virtual Result<ReserveReply> reserve(const ReserveRequest& request, const Until& until) = 0;
  /// Returns: invalid_argument (shape, coverage, finiteness), not_found (reservation or copy
  /// source).
  virtual Status put(PutRequest request, const Until& until) = 0;
  /// Makes the entry visible and ends the reservation, whatever it returns. If the level asked for
  /// could not be reached (the device failed, the spill queue is full), the call is ok and the
  /// reply's level says what was. Returns: invalid_argument (coverage), not_found (reservation).
  virtual Result<CommitReply> commit(uint64_t reservation, Durability wait_for,
                                     const Until& until) = 0;
  virtual Status abort(uint64_t reservation, const Until& until) = 0;
  /// Objects as stored mean what their own profile says (Object::profile): that of the request.
  /// Returns: ok with tokens 0 on a miss; invalid_argument; busy; deadline_exceeded; not_found
  /// (hold); profile_changed (open the model again).
  virtual Result<FetchReply> fetch(const FetchRequest& request, const Until& until) = 0;
  /// Starts promoting what a fetch of `query` would use. Returns: what lookup returns; also
  /// not_found (hold).
  virtual Result<LookupReply> prefetch(const PrefetchRequest& request, const Until& until) = 0;
  /// All that a fetch of `query` would use leaves RAM, stays on the SSD: at once, or `deferred`
  /// until it is written there. What is pinned by others than the request's hold stays, and what
  /// other entries in RAM go on from. Returns: what prefetch returns.
  virtual Result<DemoteReply> demote(const DemoteRequest& request, const Until& until) = 0;
  /// Promises what a lookup finds: it is neither evicted nor dropped until the hold is released or
  /// its time is over, whatever becomes of this client. The hold is the namespace's: another client
  /// may fetch by its number. Returns: what lookup returns; also resource_exhausted (holds of the
  /// namespace, bytes that they may pin), busy (no room for the query), unavailable (draining).
  virtual Result<HoldReply> hold(const HoldRequest& request, const Until& until) = 0;
  /// The hold lasts at least so long from now on. Returns: how long it does; not_found.
  virtual Result<std::chrono::milliseconds> renew(uint64_t hold, std::chrono::milliseconds time,
                                                  const Until& until) = 0;
  /// Returns: not_found.
  virtual Status release(uint64_t hold, const Until& until) = 0;
  /// As hold, but nothing is pinned: what was found goes after everything else of the namespace's
  /// share, of what may go at once. Ends by release, its time, or the service's end. Returns: what
  /// lookup returns.
  virtual Result<RetainReply> retain(const RetainRequest& request, const Until& until) = 0;
  /// Gives what erase_entry (`whole`: erase) would remove now a time at which it is removed, kept
  /// over restarts. A later store of an entry that has some of it takes its time away. Returns:
  /// what lookup returns; also busy (no room for the times).
  virtual Result<ExpireReply> expire(const ExpireRequest& request, const Until& until) = 0;
  /// Removes every entry that begins with `query` from all tiers; an empty query: all of the model;
  /// `model` 0 and an empty query: everything in the namespace, models never opened included.
  /// Blocks that end inside `query` stay, since other entries may share them: a shorter query (or
  /// the empty one) removes those too. An object on the SSD that lost a block before it is removed
  /// too unless what is left proves that its entry does not begin with `query`: rather one too many
  /// than tokens that were to be deleted. Damaged files in quarantine are not searched.
  /// Returns the number of objects removed; acked after unlink and directory sync. Also
  /// invalid_argument (extras, length).
  virtual Result<uint64_t> erase(uint32_t model, const Query& query, const Until& until) = 0;
  /// Removes one entry, the one that ends with the query's last token, and of what it is made of
  /// all that no other entry has. Earlier turns that it goes on from belong to it; entries that go
  /// on from it stay whole. Returns: how many objects, 0 if there is no such entry; also
  /// profile_changed; else as erase.
  virtual Result<uint64_t> erase_entry(const QueryRequest& request, const Until& until) = 0;
  virtual Result<StatsReply> stats(const Until& until) = 0;
  /// Recent fetches and lookups of the client's namespace (of one with Right::all: of every one),
  /// newest first; or, with tokens, what each model of the namespace would serve of them now, and
  /// why no more. Returns: invalid_argument (limit); not_found (number).
  virtual Result<WhyReply> why(const WhyRequest& request, const Until& until) = 0;

  // Batches: an answer for each request, in their order, as of calls one by one.
  virtual std::vector<Result<LookupReply>> lookup_all(std::span<const QueryRequest> requests,
                                                      const Until& until);
  virtual std::vector<Result<FetchReply>> fetch_all(std::span<const FetchRequest> requests,
                                                    const Until& until);
  /// Puts all requests, of one reservation.
  virtual std::vector<Status> put_all(std::vector<PutRequest> requests, const Until& until);
};

}  // namespace kv
