// Forms to calls of the core, and their answers.
#include "cachesvc/daemon/http_verbs.h"

#include <utility>

#include "cachesvc/daemon/config_values.h"
#include "cachesvc/daemon/http_json.h"

namespace kv {
namespace {

constexpr uint64_t kMostSeconds = 366ull * 24 * 3600;

// Checks the names of all fields, and that the namespace is there.
Result<HttpVerb> begun(const HttpForm& form, const std::vector<std::string>& known) {
  if (std::string other = form.unknown(known); !other.empty()) {
    std::string names;
    for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
    return invalid_argument("unknown field \"" + other.substr(0, 64) + "\", expected " + names);
  }
  HttpVerb verb;
  verb.ns = form.get("namespace");
  verb.model = form.get("model");
  if (verb.ns.empty()) return invalid_argument("expected namespace=");
  return verb;
}

Status wants_model(const HttpForm& form) {
  if (!form.get("model").empty()) return {};
  return invalid_argument("expected model=, its name");
}

std::string counted(const char* what, uint64_t number) {
  return JsonText().open('{').field(what, static_cast<double>(number)).close('}').take();
}

std::string with_outcome(Outcome outcome, const char* what, uint64_t number,
                         const std::string& reason) {
  JsonText out;
  out.open('{').field("outcome", to_string(outcome)).field(what, static_cast<double>(number));
  return out.field("reason", reason).close('}').take();
}

// An erase that found nothing is an error: the name may be misspelt.
Done<Result<uint64_t>> erased(HttpVerb::Reply reply, std::string what) {
  return [reply = std::move(reply), what = std::move(what)](Result<uint64_t> objects) {
    if (!objects.ok()) return reply(objects.status());
    if (*objects == 0) return reply(Status(StatusCode::not_found, "nothing is stored " + what));
    reply(counted("erased_objects", *objects));
  };
}

}  // namespace

Result<HttpVerb> read_purge(const HttpForm& form) {
  KV_ASSIGN_OR_RETURN(HttpVerb verb, begun(form, {"namespace", "confirm"}));
  if (form.get("confirm") != verb.ns) {
    return invalid_argument("expected confirm=, the namespace's name again: all of it goes");
  }
  verb.run = [ns = verb.ns](CacheCore& core, uint64_t session, uint32_t, CallTerms terms,
                            HttpVerb::Reply reply) {
    core.erase(session, 0, {}, terms, erased(std::move(reply), "in namespace \"" + ns + "\""));
  };
  return verb;
}

Result<HttpVerb> read_erase(const HttpForm& form) {
  KV_ASSIGN_OR_RETURN(HttpVerb verb, begun(form, {"namespace", "model", "tokens"}));
  KV_RETURN_IF_ERROR(wants_model(form));
  KV_ASSIGN_OR_RETURN(auto tokens, form.tokens("tokens"));
  if (tokens.empty()) return invalid_argument("expected tokens=, with which begins what shall go");
  verb.run = [tokens = std::move(tokens)](CacheCore& core, uint64_t session, uint32_t model,
                                          CallTerms terms, HttpVerb::Reply reply) {
    core.erase(session, model, {tokens, {}}, terms,
               erased(std::move(reply), "that begins with these tokens"));
  };
  return verb;
}

Result<HttpVerb> read_demote(const HttpForm& form) {
  KV_ASSIGN_OR_RETURN(HttpVerb verb, begun(form, {"namespace", "model", "tokens"}));
  KV_ASSIGN_OR_RETURN(auto tokens, form.tokens("tokens"));
  if (verb.model.empty() != tokens.empty()) {
    return invalid_argument("expected both model= and tokens=, or neither: all of the namespace");
  }
  if (verb.model.empty()) {
    verb.run = [](CacheCore& core, uint64_t session, uint32_t, CallTerms terms,
                  HttpVerb::Reply reply) {
      core.demote_all(session, terms, [reply = std::move(reply)](Result<DemoteAllReply> r) {
        if (!r.ok()) return reply(r.status());
        JsonText out;
        out.open('{').field("left_objects", static_cast<double>(r->left));
        out.field("deferred_objects", static_cast<double>(r->deferred));
        reply(out.field("staying_objects", static_cast<double>(r->stay)).close('}').take());
      });
    };
    return verb;
  }
  verb.run = [tokens = std::move(tokens)](CacheCore& core, uint64_t session, uint32_t model,
                                          CallTerms terms, HttpVerb::Reply reply) {
    DemoteRequest request;
    request.model = model;
    request.query.tokens = tokens;
    core.demote(session, std::move(request), terms,
                [reply = std::move(reply)](Result<DemoteReply> r) {
                  if (!r.ok()) return reply(r.status());
                  reply(with_outcome(r->outcome, "tokens", r->tokens, r->reason));
                });
  };
  return verb;
}

Result<HttpVerb> read_clear(const HttpForm& form) {
  KV_ASSIGN_OR_RETURN(HttpVerb verb, begun(form, {"namespace", "confirm"}));
  if (form.get("confirm") != verb.ns) {
    return invalid_argument("expected confirm=, the namespace's name again: its files go");
  }
  verb.run = [](CacheCore& core, uint64_t session, uint32_t, CallTerms terms,
                HttpVerb::Reply reply) {
    core.clear_ssd(session, terms, [reply = std::move(reply)](Result<DemoteAllReply> r) {
      if (!r.ok()) return reply(r.status());
      if (r->left + r->stay == 0) {
        return reply(Status(StatusCode::not_found, "nothing of the namespace is on the SSD"));
      }
      JsonText out;
      out.open('{').field("removed_files", static_cast<double>(r->left));
      reply(out.field("staying_files", static_cast<double>(r->stay)).close('}').take());
    });
  };
  return verb;
}

Result<HttpVerb> read_expire(const HttpForm& form) {
  KV_ASSIGN_OR_RETURN(HttpVerb verb,
                      begun(form, {"namespace", "model", "tokens", "seconds", "whole"}));
  KV_RETURN_IF_ERROR(wants_model(form));
  ExpireRequest request;
  KV_ASSIGN_OR_RETURN(request.query.tokens, form.tokens("tokens"));
  auto seconds = parse_count(form.get("seconds"), 0, kMostSeconds);
  if (!seconds.ok()) return invalid_argument("seconds: " + seconds.status().message());
  request.time = std::chrono::seconds(*seconds);
  auto whole = parse_count(form.has("whole") ? form.get("whole") : "0", 0, 1);
  if (!whole.ok()) return invalid_argument("whole: " + whole.status().message());
  request.whole = *whole == 1;
  verb.run = [request](CacheCore& core, uint64_t session, uint32_t model, CallTerms terms,
                       HttpVerb::Reply reply) {
    ExpireRequest asked = request;
    asked.model = model;
    core.expire(session, std::move(asked), terms,
                [reply = std::move(reply)](Result<ExpireReply> r) {
                  if (!r.ok()) return reply(r.status());
                  reply(with_outcome(r->outcome, "objects", r->objects, r->reason));
                });
  };
  return verb;
}

void HttpVerbs::run(const HttpVerb& verb, HttpVerb::Reply done) {
  auto session = core_.connect(verb.ns, Right::all);
  if (!session.ok()) return done(session.status());
  const auto end = [&core = core_, id = *session, done = std::move(done)](Result<std::string> r) {
    core.disconnect(id);
    done(std::move(r));
  };
  uint32_t handle = 0;
  if (!verb.model.empty()) {
    auto attached = core_.attach(*session, verb.model);
    if (!attached.ok()) return end(attached.status());
    handle = *attached;
  }
  verb.run(core_, *session, handle, deadline_in(options_.request_timeout), end);
}

}  // namespace kv
