// The table of settings. Keep what somebody who runs the service would set; everything else is a
// named constant (cache_options.h, server_options.h).
#include "cachesvc/daemon/config_keys.h"

#include <algorithm>

#include "cachesvc/daemon/config_kinds.h"
#include "codec/preset.h"
#include "storage/ssd_tier.h"

namespace kv {
namespace {

using namespace std::chrono_literals;

// The field is named once, for reading and writing.
#define FIELD(path) \
  [](Config & c) -> auto& { return c.path; }

constexpr Milliseconds kNone{0}, kDay{86'400'000};

Key with_flag(const char* flag, Key key) {
  key.flag = flag;
  return key;
}
Key with_default(const char* text, Key key) {
  key.by_default = text;
  return key;
}

Key allow_uids_key() {
  Key key{
      "server.allow_uids",
      "",
      "User ids that may connect beside the service's own and root, each in its namespace uid-N "
      "or in those of [[namespace]]; with any, the socket is 0666 (others are refused by their "
      "id) and its directory, if made here, 0711",
      "A list of at most 1024 user ids",
      "",
      TomlForm::list_of_numbers,
      {},
      {}};
  key.set = [](Config& c, const std::string& v) -> Status {
    KV_ASSIGN_OR_RETURN(c.server.allow_uids, parse_uids(v));
    return {};
  };
  key.get = [](const Config& c) {
    return listed(c.server.allow_uids, [](uint32_t uid) { return std::to_string(uid); });
  };
  return key;
}

Key block_ends_key() {
  Key key = count_key("policy.block_end_interval",
                      "Window rows and states are kept at every so many block ends, so that "
                      "prompts that part there are hits; 0: only where entries end or part; auto: "
                      "rows at as many as take no more bytes than the entry itself",
                      FIELD(cache.block_end_interval), 0, kMaxBlockTokens);
  key.accepts = "auto, or a" + key.accepts.substr(1);
  key.form = TomlForm::text;
  key.set = [number = key.set](Config& c, const std::string& v) -> Status {
    if (v != "auto") return number(c, v);
    c.cache.block_end_interval = kEndsByPrice;
    return {};
  };
  key.get = [number = key.get](const Config& c) {
    return c.cache.block_end_interval == kEndsByPrice ? "auto" : number(c);
  };
  return key;
}

Key resp_listen_key() {
  Key key{"server.resp.listen",
          "--resp",
          "The TCP address of the RESP port, on which programs made for Redis keep values by key; "
          "one that is not the machine's own wants a password, and without one every user of the "
          "machine may connect",
          "An IPv4 address and a port, or nothing: there is none",
          "",
          TomlForm::text,
          {},
          {}};
  key.set = [](Config& c, const std::string& v) -> Status {
    KV_ASSIGN_OR_RETURN(c.server.resp.listen, parse_address(v));
    return {};
  };
  key.get = [](const Config& c) { return format_address(c.server.resp.listen); };
  return key;
}

void add_resp_keys(std::vector<Key>& keys) {
  keys.push_back(resp_listen_key());
  keys.push_back(text_key("server.resp.password_file",
                          "The password of the RESP port, in a private file of 16 to 256 bytes",
                          "A path, or nothing: none is asked for",
                          FIELD(server.resp.password_file)));
  keys.push_back(text_key("server.resp.namespace",
                          "The namespace of all that comes by the RESP port",
                          "A text of 1 to 64 bytes", FIELD(server.resp.ns)));
}

Key http_listen_key() {
  Key key{"server.http.listen",
          "--http",
          "Where health, metrics, the status page and admin verbs are had by HTTP: a Unix socket "
          "that its owner alone may open, or a TCP address of this machine, which wants a token",
          "A path that begins with /, or an address such as 127.0.0.1:9390, or nothing: there is "
          "no HTTP port",
          "",
          TomlForm::text,
          {},
          {}};
  key.set = [](Config& c, const std::string& v) -> Status {
    HttpOptions& http = c.server.http;
    http.listen = v;
    http.socket = v.starts_with('/') ? v : "";
    http.address = {};
    if (v.empty() || !http.socket.empty()) return {};
    auto address = parse_address(v);
    if (!address.ok()) {
      return not_expected(v, "a path that begins with /, or an address such as 127.0.0.1:9390");
    }
    if (!address->is_loopback()) {
      return not_expected(v,
                          "a path, or an address of this machine alone (127.x.x.x): other "
                          "machines get here by a proxy or ssh -L, as nothing is encrypted");
    }
    http.address = *address;
    return {};
  };
  key.get = [](const Config& c) { return c.server.http.listen; };
  return key;
}

void add_http_keys(std::vector<Key>& keys) {
  keys.push_back(http_listen_key());
  keys.push_back(text_key("server.http.token_file",
                          "The token of the HTTP port, in a private file of 16 to 256 bytes: all "
                          "but /healthz and /readyz want it, and a POST is denied where there is "
                          "none",
                          "A path, or nothing: there is none", FIELD(server.http.token_file)));
}

void add_server_keys(std::vector<Key>& keys) {
  keys.push_back(with_default(
      "cachesvc/cachesvc.sock in $XDG_RUNTIME_DIR, without it /tmp/cachesvc-UID/cachesvc.sock, of "
      "root /run/cachesvc/cachesvc.sock",
      with_flag("--socket", text_key("server.socket", "The Unix socket that clients connect to",
                                     "A path of at most 107 bytes", FIELD(server.socket)))));
  keys.push_back(allow_uids_key());
  keys.push_back(count_key("server.max_connections", "Connections at a time; more are refused",
                           FIELD(server.max_connections), 1, 65'536));
  keys.push_back(
      with_flag("--drain-timeout",
                duration_key("server.drain_timeout",
                             "The longest time from SIGTERM to the end, in which what waits for "
                             "the SSD is written and answers are sent",
                             FIELD(server.drain_timeout), kNone, kDay)));
}

void add_ram_keys(std::vector<Key>& keys) {
  keys.push_back(with_flag(
      "--ram", amount_key("tier.ram.budget",
                          "All RAM of the cache; the process holds at most 32 MiB beside it",
                          FIELD(ram_budget),
                          {2 * kMinRamBudgetBytes, false, kMinRamFraction, kMaxRamFraction,
                           "the memory available at start"})));
  keys.push_back(share_key("tier.ram.index",
                           "Share of the RAM budget for names and tokens of all that is stored, on "
                           "the SSD too; when it is full the least recently used leave both tiers",
                           FIELD(cache.index_fraction), 0.001, 0.7));
  keys.push_back(size_key("tier.ram.warm_start",
                          "Bytes of the prompts used last that are brought back to RAM at a start, "
                          "in the background; 0: none",
                          FIELD(cache.warm_start_bytes), 0, 1ull << 50));
}

void add_ssd_keys(std::vector<Key>& keys) {
  keys.push_back(with_default(
      "cachesvc in $XDG_CACHE_HOME, without it in ~/.cache, of root in /var/cache",
      with_flag("--dir",
                text_key("tier.ssd.dir", "The directory of the store", "A path", FIELD(ssd_dir)))));
  keys.push_back(with_flag(
      "--ssd",
      amount_key("tier.ssd.limit", "Allocated bytes of everything in the directory; 0: no SSD tier",
                 FIELD(ssd_limit), {kMinLimitBytes, true, 0, 1, "its file system"})));
  keys.push_back(amount_key("tier.ssd.min_free",
                            "Bytes left free on the file system, whoever else uses it",
                            FIELD(ssd_min_free), {0, true, 0, 1, "the file system"}));
  keys.push_back(text_key("tier.ssd.key_file",
                          "Seals what is written, with a key in a private file of 32 bytes or 64 "
                          "hex digits; ephemeral: with a key in memory, gone with the process",
                          "A path, ephemeral, or nothing: not sealed", FIELD(key_file)));
  keys.push_back(choice_key<SpillWhen>(
      "tier.ssd.spill",
      "When objects are written: as they are committed, or only when RAM is short, which wears the "
      "SSD less, and a crash loses what was not written",
      FIELD(cache.spill_when), {{"commit", SpillWhen::commit}, {"evict", SpillWhen::evict}}));
  keys.push_back(size_key("tier.ssd.write_rate",
                          "Bytes written a second; what was reused is written first; 0: no limit",
                          FIELD(cache.write_bytes_per_second), 0, 1ull << 50));
  keys.push_back(size_key("tier.ssd.write_per_day",
                          "Bytes written in any 24 hours, restarts included; 0: no limit",
                          FIELD(cache.write_bytes_per_day), 0, 1ull << 50));
  keys.push_back(size_key("tier.ssd.scrub_rate",
                          "Bytes a second that are read and verified though nobody asks for them; "
                          "0: none",
                          FIELD(cache.scrub_bytes_per_second), 0, 1ull << 50));
}

void add_remote_keys(std::vector<Key>& keys) {
  Key nodes = text_key(
      "remote.nodes",
      "Nodes of a Redis or Valkey cluster, or one server, that machines share what "
      "they store through; some of them are enough",
      "A list of host:port, separated by commas, or nothing: no shared tier", FIELD(remote.nodes));
  nodes.form = TomlForm::list_of_texts;
  keys.push_back(std::move(nodes));
  keys.push_back(text_key("remote.user", "The user that the nodes know this service by",
                          "A text, or nothing: the default user", FIELD(remote.user)));
  keys.push_back(text_key("remote.password_file",
                          "The password of the nodes, in a private file of 16 to 256 bytes",
                          "A path, or nothing: none", FIELD(remote.password_file)));
  keys.push_back(text_key("remote.ca_file",
                          "The authority that the nodes' certificates are checked against",
                          "A path, or nothing: no TLS", FIELD(remote.ca_file)));
  keys.push_back(text_key("remote.cert_file", "This service's certificate, for nodes that want one",
                          "A path, or nothing: none", FIELD(remote.cert_file)));
  keys.push_back(text_key("remote.cert_key_file", "The key of that certificate",
                          "A path, or nothing: none", FIELD(remote.cert_key_file)));
  keys.push_back(
      text_key("remote.key_file",
               "Seals what is written there, with a key in a private file of 32 bytes or "
               "64 hex digits that all machines share; without one whoever may write "
               "there is trusted with what is served",
               "A path, or nothing: not sealed", FIELD(remote.key_file)));
  keys.push_back(duration_key("remote.expiry", "The time that what is written stays there",
                              FIELD(remote.expiry), Milliseconds(1000), 365 * kDay));
  keys.push_back(size_key("remote.write_rate",
                          "Bytes written there a second, in the background; 0: no limit",
                          FIELD(cache.remote.write_bytes_per_second), 0, 1ull << 50));
  keys.push_back(count_key("remote.min_tokens",
                           "It is asked where it may have so many tokens more than this machine; "
                           "fewer are computed sooner than they are brought",
                           FIELD(cache.remote.min_tokens), 1, 1u << 20));
}

// A preset, or a number of bits for both sides.
Result<Preset> parse_coding(const std::string& v) {
  if (auto bits = parse_count(v, 0, 8); bits.ok()) {
    const auto n = static_cast<uint8_t>(*bits);
    if (n == 0 || n == 2 || n == 3 || n == 4 || n == 8) return Preset{"", n, n};
  }
  return find_preset(v);
}

Key coding_key() {
  Key key{"codec.default",
          "--codec",
          "How keys and values are coded, for models that come without a profile; what is stored "
          "keeps the profile it has",
          "One of " + listed(presets(), [](const Preset& p) { return p.name; }) +
              ", or bits for both sides: 0, 1, 2, 3, 4, 8",
          "",
          TomlForm::text,
          {},
          {}};
  key.set = [](Config& c, const std::string& v) -> Status {
    KV_ASSIGN_OR_RETURN(Preset preset, parse_coding(v));
    c.cache.coding.k_bits = preset.k_bits;
    c.cache.coding.v_bits = preset.v_bits;
    return {};
  };
  key.get = [](const Config& c) {
    return preset_name(c.cache.coding.k_bits, c.cache.coding.v_bits);
  };
  return key;
}

void add_codec_keys(std::vector<Key>& keys) {
  keys.push_back(coding_key());
  Key profiles = text_key("codec.profiles",
                          "Profile files of `cachectl tune`, each for the model that it was made "
                          "for, where the client brings none",
                          "A list of paths, separated by commas", FIELD(profile_files));
  profiles.form = TomlForm::list_of_texts;
  keys.push_back(std::move(profiles));
  keys.push_back(count_key("codec.block_tokens",
                           "Tokens of a block, the unit that is shared, stored and evicted; fewer "
                           "for models whose block is too long for one put",
                           FIELD(cache.coding.block_tokens), 1, kMaxBlockTokens));
  keys.push_back(
      choice_key<DType>("codec.raw_dtype",
                        "Stored form of rows that are not coded, in models without a profile; bf16 "
                        "for models whose values overflow f16",
                        FIELD(cache.coding.raw_dtype),
                        {{"f16", DType::f16}, {"bf16", DType::bf16}, {"f32", DType::f32}}));
}

void add_policy_keys(std::vector<Key>& keys) {
  keys.push_back(count_key("limits.workers", "Threads that code and decode rows",
                           FIELD(cache.workers), 1, 256));
  keys.push_back(count_key("limits.max_models",
                           "Models, of each namespace its own, that are open or have something "
                           "stored",
                           FIELD(cache.max_models), 1, 65'536));
  keys.push_back(choice_key<Nonfinite>(
      "policy.nonfinite",
      "Rows and states with NaN or infinite values: their put fails, or they are stored as given",
      FIELD(cache.nonfinite), {{"refuse", Nonfinite::refuse}, {"raw", Nonfinite::raw}}));
  keys.push_back(with_flag("--block-end-interval", block_ends_key()));
  keys.push_back(with_flag(
      "--log-level", word_key("log.level", "The least of what is logged", FIELD(log.level),
                              {"trace", "debug", "info", "warn", "error", "critical", "off"})));
  keys.push_back(with_flag("--log-format", word_key("log.format",
                                                    "Form of the log on stderr; auto: text on a "
                                                    "terminal, else json",
                                                    FIELD(log.format), {"auto", "text", "json"})));
}

#undef FIELD

std::vector<Key> make_keys() {
  std::vector<Key> keys;
  add_server_keys(keys);
  add_resp_keys(keys);
  add_http_keys(keys);
  add_ram_keys(keys);
  add_ssd_keys(keys);
  add_remote_keys(keys);
  add_codec_keys(keys);
  add_policy_keys(keys);
  const Config defaults;
  for (Key& key : keys) {
    if (key.by_default.empty()) key.by_default = key.get(defaults);
    if (key.by_default.empty()) key.by_default = "nothing";
  }
  return keys;
}

}  // namespace

std::string Key::help() const { return what + ". " + accepts + ". Default: " + by_default + "."; }

const std::vector<Key>& config_keys() {
  static const std::vector<Key> keys = make_keys();
  return keys;
}

const Key* find_key(const std::string& name) {
  const auto& keys = config_keys();
  auto key = std::find_if(keys.begin(), keys.end(), [&](const Key& k) { return k.name == name; });
  return key == keys.end() ? nullptr : &*key;
}

}  // namespace kv
