// HttpRoutes: what each path of the HTTP port answers, and to whom.
//
//   GET   /healthz /readyz                    everybody
//         /metrics /status /status.json       whoever brings the token; without one, everybody
//         /requests
//   POST  /purge /erase /demote /clear /expire whoever brings the token
//
// A request is looked at in this order: its host (421), its path (404), its method (405), its
// origin (403), its token (401; a POST without a configured one: 403). Loop thread only.
#pragma once

#include <functional>
#include <memory>

#include "cachesvc/core/cache_core.h"
#include "cachesvc/daemon/http_parser.h"
#include "cachesvc/daemon/http_reply.h"
#include "cachesvc/daemon/http_verbs.h"

namespace kv {

class HttpRoutes {
 public:
  using Answer = std::function<void(HttpReply)>;

  HttpRoutes(CacheCore& core, const ServerOptions& options)
      : core_(core), options_(options), verbs_(core, options) {}
  HttpRoutes(const HttpRoutes&) = delete;  // calls point here
  HttpRoutes& operator=(const HttpRoutes&) = delete;

  /// `answer` exactly once, perhaps later. `refused_token` is told of a wrong one.
  void run(const HttpRequest& request, Answer answer, const std::function<void()>& wrong_token);

 private:
  struct Route {
    const char* path;
    bool post, open;  ///< open: without the token
    void (HttpRoutes::*run)(const HttpRequest& request, Answer answer);
  };
  static const std::vector<Route>& routes();
  static const Route* find(std::string_view path);
  HttpReply refusal(const HttpRequest& request, const Route* route, bool& wrong_token) const;
  void health(const HttpRequest& request, Answer answer);
  void ready(const HttpRequest& request, Answer answer);
  void metrics(const HttpRequest& request, Answer answer);
  void page(const HttpRequest& request, Answer answer);
  void json(const HttpRequest& request, Answer answer);
  void requests(const HttpRequest& request, Answer answer);
  template <Result<HttpVerb> (*read)(const HttpForm&)>
  void verb(const HttpRequest& request, Answer answer);

  CacheCore& core_;
  const ServerOptions& options_;
  HttpVerbs verbs_;
};

}  // namespace kv
