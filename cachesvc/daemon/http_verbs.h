// HttpVerbs: admin verbs of the wire as forms that are posted, each in a session of its own with
// the admin right. Loop thread only.
//
//   purge   namespace, confirm (the namespace again)      everything of it
//   erase   namespace, model, tokens                      what begins with them
//   demote  namespace [, model, tokens]                   out of RAM, onto the SSD: all, or a hit
//   clear   namespace, confirm (the namespace again)      off the SSD; what RAM has stays there
//   expire  namespace, model, tokens, seconds [, whole=1] what is to go by itself
#pragma once

#include <functional>
#include <string>

#include "cachesvc/core/cache_core.h"
#include "cachesvc/daemon/http_form.h"
#include "cachesvc/daemon/server_options.h"

namespace kv {

/// A verb as it was read from its form. `run` gets the session, the model's handle (0: no model is
/// named), and answers with JSON.
struct HttpVerb {
  using Reply = std::function<void(Result<std::string>)>;
  std::string ns, model;
  std::function<void(CacheCore&, uint64_t session, uint32_t model, CallTerms, Reply)> run;
};

Result<HttpVerb> read_purge(const HttpForm& form);
Result<HttpVerb> read_erase(const HttpForm& form);
Result<HttpVerb> read_demote(const HttpForm& form);
Result<HttpVerb> read_clear(const HttpForm& form);
Result<HttpVerb> read_expire(const HttpForm& form);

class HttpVerbs {
 public:
  HttpVerbs(CacheCore& core, const ServerOptions& options) : core_(core), options_(options) {}

  /// Returns: what the core's verb returns.
  void run(const HttpVerb& verb, HttpVerb::Reply done);

 private:
  CacheCore& core_;
  const ServerOptions& options_;
};

}  // namespace kv
