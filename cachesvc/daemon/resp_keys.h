// RespKeys: commands on values, answered as Redis does but where a program that was made for it
// needs otherwise: a SET that stores nothing is answered `+OK` like one that stores, as a cache may
// drop a value at any time. OPERATING.md, "The RESP port". Loop thread only.
#pragma once

#include <functional>
#include <memory>

#include "cachesvc/daemon/resp_info.h"
#include "cachesvc/daemon/resp_receiver.h"
#include "cachesvc/daemon/resp_values.h"

namespace kv {

class RespKeys {
 public:
  RespKeys(RespConnection& host, CacheCore& core, RespHolds& holds, RespCounts& counts)
      : host_(host), core_(core), counts_(counts), values_(host, core, holds) {}
  RespKeys(const RespKeys&) = delete;  // calls point here
  RespKeys& operator=(const RespKeys&) = delete;

  void entered(uint64_t session) { values_.enter(session); }

  // Each answers once, in its own time. The request has as many arguments as the command needs.
  void dbsize(RespRequest& in);
  void del(RespRequest& in);
  void exists(RespRequest& in);
  void get(RespRequest& in);
  void info(RespRequest& in);
  void set(RespRequest& in);

 private:
  struct Many;
  bool is_done(const Many& many);
  void go_on(const std::shared_ptr<Many>& many, void (RespKeys::*step)(std::shared_ptr<Many>));
  void count_found(std::shared_ptr<Many> many);
  void remove(std::shared_ptr<Many> many);
  void set_ended(RespValues::End end);
  void with_stats(std::function<void(const StatsReply&)> then);

  RespConnection& host_;
  CacheCore& core_;
  RespCounts& counts_;
  RespValues values_;
};

}  // namespace kv
