// What clients have opened and reserved: sessions and reservations. Plain state of the core; loop
// thread only.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <set>

#include "cachesvc/core/model_state.h"
#include "cachesvc/core/needs.h"
#include "cachesvc/core/object_index.h"
#include "cachesvc/core/pins.h"

namespace kv {

using Clock = std::chrono::steady_clock;

struct SessionState {
  std::string ns;
  std::vector<std::shared_ptr<ModelState>> models;  ///< handle - 1
  std::vector<Id> profiles;                         ///< handle - 1: those of the last open
  std::set<uint64_t> reservations;
};

struct Reservation {
  uint64_t id = 0;
  uint64_t session = 0;
  std::shared_ptr<ModelState> model;
  std::shared_ptr<RealmState> realm;
  Query query;
  std::vector<Id> blocks;         ///< ids of the complete blocks
  Id tail;                        ///< zero if the length is a multiple of block_tokens
  EndRules ends;                  ///< which block ends beside its own are welcome
  std::set<ObjectName> existed;   ///< there at reserve or at a put, so pinned
  std::vector<Need> required;     ///< what the client was asked for and can't leave out
  std::vector<ObjectName> given;  ///< by the client, with rows that were there already
  std::map<ObjectName, RamObject> finished;
  std::map<ObjectName, Charge> index_charges;
  std::set<ObjectName> foreign;   ///< put, but another commit's bytes were there first
  std::set<ObjectName> encoding;  ///< puts under way
  std::vector<std::function<void()>> when_idle;
  Charge stored, index;  ///< what its missing objects will need
  Charge query_charge;   ///< for `query` and `blocks`
  Pins pins;
  Clock::time_point expires, last;  ///< when it ends, and at the latest
  std::unique_ptr<boost::asio::steady_timer> timer;
};

}  // namespace kv
