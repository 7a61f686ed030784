// Paths, and who may ask for them.
#include "cachesvc/daemon/http_routes.h"

#include <algorithm>
#include <utility>

#include "cachesvc/daemon/gate.h"
#include "cachesvc/daemon/http_checks.h"
#include "cachesvc/daemon/http_json.h"
#include "cachesvc/daemon/http_metrics.h"
#include "cachesvc/daemon/http_page.h"
#include "cachesvc/daemon/http_requests.h"
#include "cachesvc/daemon/http_status.h"
#include "proto/unix_ms.h"

namespace kv {
namespace {

constexpr const char* kFormType = "application/x-www-form-urlencoded";

bool wants_html(const HttpRequest& request) {
  return request.accept.find("text/html") != request.accept.npos;
}

bool is_form(const HttpRequest& request) {
  const std::string& type = request.content_type;
  return type.substr(0, std::min(type.find(';'), type.size())) == kFormType;
}

HttpReply as_page(unsigned code, std::string page, const std::string& nonce) {
  HttpReply reply{code, std::move(page), kHtml};
  reply.headers = {{"Content-Security-Policy", content_policy(nonce)},
                   {"Referrer-Policy", "same-origin"}};
  return reply;
}

}  // namespace

const std::vector<HttpRoutes::Route>& HttpRoutes::routes() {
  static const std::vector<Route> all{{"/healthz", false, true, &HttpRoutes::health},
                                      {"/readyz", false, true, &HttpRoutes::ready},
                                      {"/metrics", false, false, &HttpRoutes::metrics},
                                      {"/status", false, false, &HttpRoutes::page},
                                      {"/status.json", false, false, &HttpRoutes::json},
                                      {"/requests", false, false, &HttpRoutes::requests},
                                      {"/purge", true, false, &HttpRoutes::verb<read_purge>},
                                      {"/erase", true, false, &HttpRoutes::verb<read_erase>},
                                      {"/demote", true, false, &HttpRoutes::verb<read_demote>},
                                      {"/clear", true, false, &HttpRoutes::verb<read_clear>},
                                      {"/expire", true, false, &HttpRoutes::verb<read_expire>}};
  return all;
}

const HttpRoutes::Route* HttpRoutes::find(std::string_view path) {
  for (const Route& route : routes()) {
    if (path == route.path) return &route;
  }
  return nullptr;
}

// The first reason not to answer; code 200: there is none.
HttpReply HttpRoutes::refusal(const HttpRequest& request, const Route* route,
                              bool& wrong_token) const {
  if (request.several_hosts || !is_own_host(request.host)) {
    return http_text(421, "expected one Host header that names this machine: localhost, 127.x.x.x");
  }
  if (route == nullptr) {
    std::string paths;
    for (const Route& each : routes()) paths += std::string(" ") + each.path;
    return http_text(404, "no such path, there are" + paths);
  }
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (route->post ? request.method != "POST" : !reads) {
    HttpReply reply = http_text(405, std::string("expected ") + (route->post ? "POST" : "GET"));
    reply.headers = {{"Allow", route->post ? "POST" : "GET, HEAD"}};
    return reply;
  }
  if (!is_own_origin(request.origin, request.host)) {
    return http_text(403, "a page of another origin may not ask");
  }
  if (route->open) return {};
  const std::string& expected = options_.http.token;
  if (route->post && expected.empty()) {
    return http_text(403, "nobody may change anything: server.http.token_file is not set");
  }
  const std::string given = token_of(request.authorization);
  if (expected.empty() || same_secret(expected, given)) return {};
  wrong_token = !given.empty();
  HttpReply reply = http_text(401, "expected the token of server.http.token_file");
  reply.headers = {{"WWW-Authenticate", "Basic realm=\"cachesvc: the password is the token\""}};
  return reply;
}

void HttpRoutes::run(const HttpRequest& request, Answer answer,
                     const std::function<void()>& wrong_token) {
  const Route* route = find(split_target(request.target).first);
  bool wrong = false;
  HttpReply refused = refusal(request, route, wrong);
  if (wrong) wrong_token();
  if (refused.code != 200) return answer(std::move(refused));
  (this->*route->run)(request, std::move(answer));
}

void HttpRoutes::health(const HttpRequest&, Answer answer) { answer(http_text(200, "ok")); }

void HttpRoutes::ready(const HttpRequest&, Answer answer) {
  const std::string why = core_.not_ready();
  answer(why.empty() ? http_text(200, "ready") : http_text(503, why));
}

void HttpRoutes::metrics(const HttpRequest&, Answer answer) {
  core_.metrics([answer = std::move(answer)](const Metrics& metrics) {
    answer({200, prometheus_text(metrics), kPrometheusText});
  });
}

void HttpRoutes::json(const HttpRequest&, Answer answer) {
  core_.metrics([answer = std::move(answer)](const Metrics& metrics) {
    answer({200, status_json(metrics), kJson});
  });
}

void HttpRoutes::requests(const HttpRequest& request, Answer answer) {
  auto form = HttpForm::read(split_target(request.target).second);
  auto asked = form.ok() ? read_requests(*form) : Result<WhyRequest>(form.status());
  if (!asked.ok()) return answer(http_error(asked.status()));
  auto session = core_.connect("requests", Right::all);
  if (!session.ok()) return answer(http_error(session.status()));
  core_.why(*session, std::move(*asked), deadline_in(options_.request_timeout),
            [&core = core_, id = *session, answer = std::move(answer)](Result<WhyReply> reply) {
              core.disconnect(id);
              if (!reply.ok()) return answer(http_error(reply.status()));
              answer({200, requests_json(*reply, unix_ms()), kJson});
            });
}

void HttpRoutes::page(const HttpRequest& request, Answer answer) {
  auto form = HttpForm::read(split_target(request.target).second);
  if (!form.ok()) return answer(http_error(form.status()));
  const bool may_clear = !options_.http.token.empty();
  core_.metrics(
      [answer = std::move(answer), model = form->get("model"), may_clear](const Metrics& metrics) {
        const std::string nonce = page_nonce();
        answer(as_page(200, status_page(metrics, {model, may_clear, nonce}), nonce));
      });
}

template <Result<HttpVerb> (*read)(const HttpForm&)>
void HttpRoutes::verb(const HttpRequest& request, Answer answer) {
  if (!is_form(request)) {
    return answer(http_text(415, std::string("expected Content-Type: ") + kFormType));
  }
  auto form = HttpForm::read(request.body);
  auto read_verb = form.ok() ? read(*form) : Result<HttpVerb>(form.status());
  const bool html = wants_html(request);
  const auto done = [answer = std::move(answer), html](Result<std::string> result) {
    HttpReply reply =
        result.ok() ? HttpReply{200, *result + "\n", kJson} : http_error(result.status());
    if (html) reply = as_page(reply.code, result_page(reply.body), "");
    answer(std::move(reply));
  };
  if (!read_verb.ok()) return done(read_verb.status());
  verbs_.run(*read_verb, done);
}

}  // namespace kv
