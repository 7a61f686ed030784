// RequestRecord: what became of one request for stored tokens, and why it was not served whole. It
// holds ids, names, labels and lengths; no token, no text of a prompt. WhyRequest asks a service
// for its recent ones, or what it would do with a sequence now. PROTOCOL.md, "Why". Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/bytes.h"
#include "proto/identity.h"
#include "proto/limits.h"

namespace kv {

enum class RequestKind : uint8_t { fetch = 1, lookup = 2, question = 3 };
const char* to_string(RequestKind kind);

/// What the first token that was not served lacks. Names are stable: words, stats and metrics have
/// them.
enum class Missing : uint8_t {
  nothing = 0,       ///< all was served but the last token, which is always computed
  never_stored = 1,  ///< nobody stored it, as far back as the service remembers (`since_ms`)
  evicted_ram,       ///< it left RAM under pressure before it was on the SSD
  evicted_ssd,       ///< it made room on the SSD
  evicted_index,     ///< the index had its share of RAM
  erased,            ///< a client erased it
  expired,           ///< its time was over
  damaged,           ///< its bytes were not what was stored
  file_gone,         ///< its file was not there any more
  unreadable,        ///< its file can't be read now; tried again soon
  part,              ///< the block is there, rows, a carry or a state that belong to it are not
  other_profile,     ///< it is stored under another profile of the same model
  other_model,       ///< the same tokens are stored under another fingerprint
  no_room,           ///< RAM had no room for more
  pending,           ///< it is being read: ask again
  asked_less,        ///< the request itself wanted no more
  not_there,         ///< of a directory alone: never stored there, or gone
};
inline constexpr size_t kMissings = 17;
const char* to_string(Missing missing);

struct RequestRecord {
  uint64_t number = 0;  ///< counts from 1 since the start; 0: an answer to a question
  uint64_t at_ms = 0;   ///< when it was answered, in ms since 1970
  RequestKind kind = RequestKind::fetch;
  std::string ns, model;
  Id fingerprint, profile;
  uint32_t block_tokens = 0;
  uint32_t asked = 0;  ///< tokens of the query
  uint32_t ram_tokens = 0, ssd_tokens = 0,
           remote_tokens = 0;  ///< served, by the tier that had them
  uint32_t common = 0;         ///< longest common prefix with anything stored
  uint32_t end = 0;            ///< the nearest end of an entry up to there; 0: none
  std::string label;           ///< of the entry that ends there
  Missing missing = Missing::nothing;
  uint32_t missing_from = 0;  ///< the first token that was not served
  uint64_t since_ms = 0;      ///< since when it is missing, in ms since 1970; 0: not known
  std::string by;             ///< the namespace whose need evicted it; empty: not known
  Id other;                   ///< other_profile, other_model: that one
  uint32_t other_tokens = 0;  ///< how many of the tokens that one has
  std::string reason;         ///< the service's sentence about the length
  uint32_t total_us = 0;      ///< from the call to its answer
  uint32_t wait_us = 0, read_us = 0, make_us = 0;  ///< of it: for RAM; reads; decoding
  uint32_t saved_ms = 0;   ///< prefill that was saved, as far as clients told what theirs cost
  uint32_t missed_ms = 0;  ///< prefill of the rest, by what was last told of this model
  bool operator==(const RequestRecord&) const = default;

  uint32_t served() const { return ram_tokens + ssd_tokens + remote_tokens; }
};

inline constexpr uint32_t kMaxWhyRecords = 512;   ///< of one reply
inline constexpr uint32_t kMaxReasonBytes = 256;  ///< of a record

struct WhyRequest {
  uint64_t number = 0;  ///< this request alone; 0: the newest ones
  uint32_t limit = 32;  ///< at most so many, 1 to kMaxWhyRecords
  bool missed = false;  ///< only those that were not served whole
  std::string ns;       ///< only of this namespace; empty: of all that the client may see
  /// Instead: what each model of the namespace would do with these tokens now.
  std::vector<Token> tokens{};
};
struct WhyReply {
  uint64_t newest = 0;                   ///< number of the newest request; 0: there was none
  uint64_t kept = 0;                     ///< requests that are remembered
  std::vector<RequestRecord> records{};  ///< newest first
};

void encode(const RequestRecord& m, ByteWriter& out);
void decode(ByteReader& in, RequestRecord& m);
void encode(const WhyRequest& m, ByteWriter& out);
void decode(ByteReader& in, WhyRequest& m);
void encode(const WhyReply& m, ByteWriter& out);
void decode(ByteReader& in, WhyReply& m);

/// The record in words, a sentence each: how much was served from where, what is missing and since
/// when, what it cost. `now_ms`: for "since". The same words in cachectl, the log and over HTTP;
/// names and labels are any bytes that a client gave, as it gave them.
std::vector<std::string> words(const RequestRecord& record, uint64_t now_ms);
/// The words of its miss alone, for a table: "evicted from SSD 12 s ago".
std::string miss_words(const RequestRecord& record, uint64_t now_ms);
/// "850 ms", "12 s", "3 min", "5 h", "2 d".
std::string time_words(uint64_t ms);

}  // namespace kv
