// RespCommands: a connection's commands, one at a time: which there are, who may give them, and
// those that are about the connection itself; RespKeys answers the others. Errors are Redis' own.
// Loop thread only.
#pragma once

#include <string>
#include <vector>

#include "cachesvc/daemon/resp_keys.h"
#include "cachesvc/daemon/server_options.h"

namespace kv {

class RespCommands {
 public:
  RespCommands(RespConnection& host, CacheCore& core, const RespOptions& options, RespHolds& holds,
               RespCounts& counts)
      : host_(host), options_(options), counts_(counts), keys_(host, core, holds, counts) {}
  RespCommands(const RespCommands&) = delete;  // calls point here
  RespCommands& operator=(const RespCommands&) = delete;

  void run(RespRequest request);
  void entered(uint64_t session) { keys_.entered(session); }

 private:
  using Arguments = std::vector<std::string>;
  struct Verb;
  static const Verb* find(const std::string& name);

  void auth(RespRequest& in);
  void client(RespRequest& in);
  void command(RespRequest& in);
  void echo(RespRequest& in);
  void hello(RespRequest& in);
  void ping(RespRequest& in);
  void quit(RespRequest& in);
  void select(RespRequest& in);

  bool log_in(const std::string& user, const std::string& password);
  bool enter();
  void greet();
  void refuse_unknown(const Arguments& arguments);

  RespConnection& host_;
  const RespOptions& options_;
  RespCounts& counts_;
  RespKeys keys_;
};

}  // namespace kv
