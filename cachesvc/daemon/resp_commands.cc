// The commands, one by one. Texts of errors are Redis 7's.
#include "cachesvc/daemon/resp_commands.h"

#include <algorithm>
#include <array>
#include <utility>

#include "cachesvc/daemon/config_values.h"
#include "cachesvc/daemon/gate.h"
#include "cachesvc/daemon/resp_info.h"
#include "cachesvc/daemon/version.h"

namespace kv {
namespace {

constexpr size_t kNoMost = SIZE_MAX;
constexpr const char* kUser = "default";
constexpr size_t kShown = 128;  // bytes of a client's words in an error
constexpr const char* kNoAuth = "NOAUTH Authentication required.";
constexpr const char* kWrongPass = "WRONGPASS invalid username-password pair or user is disabled.";
constexpr const char* kNoPassword =
    "ERR AUTH <password> called without any password configured for the default user. Are you sure "
    "your configuration is correct?";
constexpr const char* kHelloFirst =
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO "
    "<proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP "
    "protocol version at the same time";

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

}  // namespace

struct RespCommands::Verb {
  const char* name;
  size_t least, most;  // arguments, the name included
  void (*run)(RespCommands& own, RespRequest& in);
  bool newcomers = false;  // without a password yet
  bool long_ones = false;  // copes with an argument that was dropped
};

const RespCommands::Verb* RespCommands::find(const std::string& name) {
  using C = RespCommands;
  using In = RespRequest;
  static constexpr std::array<Verb, 14> kVerbs = {{
      {"AUTH", 2, 3, [](C& c, In& in) { c.auth(in); }, true},
      {"CLIENT", 2, kNoMost, [](C& c, In& in) { c.client(in); }},
      {"COMMAND", 1, kNoMost, [](C& c, In& in) { c.command(in); }},
      {"DBSIZE", 1, 1, [](C& c, In& in) { c.keys_.dbsize(in); }},
      {"DEL", 2, kNoMost, [](C& c, In& in) { c.keys_.del(in); }},
      {"ECHO", 2, 2, [](C& c, In& in) { c.echo(in); }},
      {"EXISTS", 2, kNoMost, [](C& c, In& in) { c.keys_.exists(in); }},
      {"GET", 2, 2, [](C& c, In& in) { c.keys_.get(in); }, false, true},
      {"HELLO", 1, kNoMost, [](C& c, In& in) { c.hello(in); }, true},
      {"INFO", 1, kNoMost, [](C& c, In& in) { c.keys_.info(in); }},
      {"PING", 1, 2, [](C& c, In& in) { c.ping(in); }},
      {"QUIT", 1, kNoMost, [](C& c, In& in) { c.quit(in); }, true},
      {"SELECT", 2, 2, [](C& c, In& in) { c.select(in); }},
      {"SET", 3, kNoMost, [](C& c, In& in) { c.keys_.set(in); }, false, true},
  }};
  auto it =
      std::find_if(kVerbs.begin(), kVerbs.end(), [&](const Verb& v) { return name == v.name; });
  return it == kVerbs.end() ? nullptr : it;
}

void RespCommands::run(RespRequest in) {
  ++counts_.commands;
  const Arguments& arguments = in.command.arguments;
  const std::string name = resp_word(in.command.arguments[0]);
  if (name == "POST" || name == "HOST:") return host_.close("a browser's request");
  const Verb* verb = find(name);
  if (verb == nullptr) return refuse_unknown(arguments);
  if (arguments.size() < verb->least || arguments.size() > verb->most) {
    return resp_error(host_, "ERR wrong number of arguments for '" + lower(name) + "' command");
  }
  if (host_.session() == 0 && !verb->newcomers) return resp_error(host_, kNoAuth);
  if (in.command.dropped && !verb->long_ones) {
    return resp_error(host_, "ERR " + in.dropped.message());
  }
  verb->run(*this, in);
}

void RespCommands::refuse_unknown(const Arguments& arguments) {
  std::string text =
      "ERR unknown command '" + arguments[0].substr(0, kShown) + "', with args beginning with: ";
  std::string shown;
  for (size_t i = 1; i < arguments.size() && shown.size() < kShown; ++i) {
    shown += "'" + arguments[i].substr(0, kShown - shown.size()) + "' ";
  }
  resp_error(host_, text + shown);
}

// Connection.

bool RespCommands::log_in(const std::string& user, const std::string& password) {
  if (user == kUser && same_secret(options_.password, password)) return true;
  host_.refused_password();
  return false;
}

void RespCommands::auth(RespRequest& in) {
  const Arguments& words = in.command.arguments;
  const bool named = words.size() == 3;
  if (options_.password.empty() && !named) return resp_error(host_, kNoPassword);
  const std::string& user = named ? words[1] : kUser;
  const bool in_order = options_.password.empty() ? user == kUser : log_in(user, words.back());
  if (!in_order) return resp_error(host_, kWrongPass);
  if (enter()) resp_ok(host_);
}

// False after the core's refusal was told.
bool RespCommands::enter() {
  if (host_.enter().ok()) return true;
  resp_error(host_, kRespFull);
  return false;
}

void RespCommands::hello(RespRequest& in) {
  const Arguments& words = in.command.arguments;
  if (words.size() > 1) {
    auto version = parse_count(words[1], 0, INT32_MAX);
    if (!version.ok()) {
      return resp_error(host_, "ERR Protocol version is not an integer or out of range");
    }
    if (*version != 2) return resp_error(host_, "NOPROTO unsupported protocol version");
  }
  for (size_t i = 2; i < words.size();) {
    const std::string option = resp_word(words[i]);
    if (option == "AUTH" && i + 2 < words.size()) {
      if (!options_.password.empty() && !log_in(words[i + 1], words[i + 2])) {
        return resp_error(host_, kWrongPass);
      }
      if (!enter()) return;
      i += 3;
    } else if (option == "SETNAME" && i + 1 < words.size()) {
      i += 2;
    } else {
      return resp_error(host_,
                        "ERR Syntax error in HELLO option '" + words[i].substr(0, kShown) + "'");
    }
  }
  host_.session() == 0 ? resp_error(host_, kHelloFirst) : greet();
}

void RespCommands::greet() {
  RespWriter out;
  out.array(14);
  for (const char* text : {"server", "redis", "version", kRespVersion, "proto"}) out.bulk(text);
  out.integer(2);
  out.bulk("id");
  out.integer(host_.number());
  for (const char* text : {"mode", "standalone", "role", "master", "modules"}) out.bulk(text);
  out.array(0);
  resp_reply(host_, std::move(out));
}

void RespCommands::client(RespRequest& in) {
  const Arguments& words = in.command.arguments;
  const std::string what = resp_word(words[1]);
  if (what == "ID" && words.size() == 2) return resp_integer(host_, host_.number());
  const bool taken = (what == "SETNAME" && words.size() == 3) ||
                     (what == "SETINFO" && words.size() == 4) ||
                     ((what == "NO-EVICT" || what == "NO-TOUCH") && words.size() == 3);
  if (taken) return resp_ok(host_);
  resp_error(host_,
             "ERR unknown subcommand '" + words[1].substr(0, kShown) + "'. Try CLIENT HELP.");
}

// Clients ask for help on commands, and do without.
void RespCommands::command(RespRequest&) {
  RespWriter out;
  out.array(0);
  resp_reply(host_, std::move(out));
}

void RespCommands::echo(RespRequest& in) {
  RespWriter out;
  out.bulk(in.command.arguments[1]);
  resp_reply(host_, std::move(out));
}

void RespCommands::ping(RespRequest& in) {
  if (in.command.arguments.size() == 2) return echo(in);
  RespWriter out;
  out.simple("PONG");
  resp_reply(host_, std::move(out));
}

void RespCommands::quit(RespRequest&) {
  host_.last_command();
  resp_ok(host_);
}

void RespCommands::select(RespRequest& in) {
  auto number = parse_count(in.command.arguments[1], 0, INT32_MAX);
  if (!number.ok()) return resp_error(host_, "ERR value is not an integer or out of range");
  *number == 0 ? resp_ok(host_) : resp_error(host_, "ERR DB index is out of range");
}

}  // namespace kv
