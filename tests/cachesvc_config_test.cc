// Configuration: values, the order of sources, and errors that name their place.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cachesvc/daemon/config.h"
#include "cachesvc/daemon/config_keys.h"
#include "cachesvc/daemon/config_names.h"
#include "cachesvc/daemon/config_toml.h"

namespace kv {
namespace {

class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() {
    std::string pattern = std::filesystem::temp_directory_path() / "kv-config-XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    env_["XDG_RUNTIME_DIR"] = dir_ + "/run";
    env_["XDG_CACHE_HOME"] = dir_ + "/cache";
    env_["XDG_CONFIG_HOME"] = dir_ + "/config";
  }
  ~ConfigTest() override { std::filesystem::remove_all(dir_); }

  std::string write(const std::string& text) {
    std::string path = dir_ + "/test.toml";
    std::ofstream(path) << text;
    return path;
  }
  std::string write_password() {
    std::string path = dir_ + "/password";
    std::ofstream(path) << "0123456789abcdef\n";
    EXPECT_EQ(::chmod(path.c_str(), 0600), 0);
    return path;
  }
  Result<Config> load(std::optional<std::string> file = {}, std::vector<Setting> flags = {}) {
    ConfigSources sources;
    sources.file = file;
    sources.flags = std::move(flags);
    sources.env_names = [this] {
      std::vector<std::string> names;
      for (const auto& [name, value] : env_) names.push_back(name);
      return names;
    };
    sources.env = [this](const std::string& name) -> std::optional<std::string> {
      auto it = env_.find(name);
      return it == env_.end() ? std::nullopt : std::optional(it->second);
    };
    return load_config(sources);
  }
  // The error's text, "" if there is none.
  std::string error(const std::string& text) {
    auto config = load(write(text));
    return config.ok() ? "" : config.status().message();
  }

  std::string dir_;
  std::map<std::string, std::string> env_;
};

TEST(ConfigValues, Sizes) {
  EXPECT_EQ(*parse_size("0"), 0u);
  EXPECT_EQ(*parse_size("4096"), 4096u);
  EXPECT_EQ(*parse_size("8GiB"), 8ull << 30);
  EXPECT_EQ(*parse_size("8G"), 8ull << 30);
  EXPECT_EQ(*parse_size("512MB"), 512'000'000u);
  EXPECT_EQ(*parse_size("1.5 KiB"), 1536u);
  for (const char* bad :
       {"", "x", "-1", "8GB8", "1.0001KiB", "99999999TiB", "nan", "8 gib", "1e3"}) {
    EXPECT_FALSE(parse_size(bad).ok()) << bad;
  }
  EXPECT_DOUBLE_EQ(parse_amount("20%")->fraction, 0.2);
  EXPECT_EQ(parse_amount("1MiB")->bytes, 1u << 20);
  auto limited = parse_amount("12.5%, at most 4GiB");
  ASSERT_TRUE(limited.ok()) << limited.status().to_string();
  EXPECT_DOUBLE_EQ(limited->fraction, 0.125);
  EXPECT_EQ(limited->most_bytes, 4ull << 30);
  for (const char* bad : {"0%", "101%", "%", "-5%", "5%%", "5%, at most", "5%, at most 0",
                          "5%, at most 5%", "1GiB, at most 2GiB"}) {
    EXPECT_FALSE(parse_amount(bad).ok()) << bad;
  }
}

TEST(ConfigValues, DurationsCountsAndLists) {
  using namespace std::chrono_literals;
  EXPECT_EQ(*parse_duration("20s"), 20s);
  EXPECT_EQ(*parse_duration("250ms"), 250ms);
  EXPECT_EQ(*parse_duration("1.5m"), 90s);
  EXPECT_EQ(*parse_duration("1h"), 1h);
  EXPECT_EQ(*parse_duration("0"), 0ms);
  for (const char* bad : {"20", "s", "-1s", "20 seconds", "9999999h"}) {
    EXPECT_FALSE(parse_duration(bad).ok()) << bad;
  }
  EXPECT_EQ(*parse_count("7", 1, 9), 7u);
  for (const char* bad : {"0", "10", "7x", "", "-7", "99999999999999999999"}) {
    EXPECT_FALSE(parse_count(bad, 1, 9).ok()) << bad;
  }
  EXPECT_EQ(*parse_uids("1000, 1001"), (std::vector<uint32_t>{1000, 1001}));
  EXPECT_FALSE(parse_uids("root").ok());
  EXPECT_EQ(nearest("tier.ram.buget", {"tier.ram.budget", "log.level"}), "tier.ram.budget");
  EXPECT_EQ(nearest("zzzzzz", {"tier.ram.budget", "log.level"}), "");
}

TEST(ConfigValues, PrintedValuesReadBack) {
  for (uint64_t bytes : {0ull, 1ull, 1536ull, 1ull << 30, 1'000'000'000ull}) {
    EXPECT_EQ(*parse_size(format_size(bytes)), bytes);
  }
  for (int ms : {0, 1, 1000, 90'000, 3'600'000}) {
    EXPECT_EQ(parse_duration(format_duration(Milliseconds(ms)))->count(), ms);
  }
  EXPECT_DOUBLE_EQ(parse_amount(format_amount({0, 0.125}))->fraction, 0.125);
  EXPECT_EQ(format_amount(*parse_amount("20%, at most 1.5GiB")), "20%, at most 1536MiB");
}

TEST_F(ConfigTest, NothingGivenServes) {
  auto config = load();
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->server.socket, dir_ + "/run/cachesvc/cachesvc.sock");
  EXPECT_EQ(config->cache.ssd_dir, dir_ + "/cache/cachesvc");
  EXPECT_TRUE(config->file.empty());
}

TEST_F(ConfigTest, FlagsWinOverEnvironmentOverFileOverDefaults) {
  auto file =
      write("[tier.ram]\nbudget = \"1GiB\"\n[limits]\nworkers = 3\n[log]\nlevel = \"warn\"\n");
  EXPECT_EQ(load(file)->cache.ram_budget_bytes, 1ull << 30);
  EXPECT_EQ(load(file)->cache.workers, 3u);
  env_["CACHESVC_TIER_RAM_BUDGET"] = "2GiB";
  EXPECT_EQ(load(file)->cache.ram_budget_bytes, 2ull << 30);
  auto config = load(file, {{"tier.ram.budget", "3GiB", "--ram"}});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->cache.ram_budget_bytes, 3ull << 30);
  EXPECT_EQ(config->source.at("tier.ram.budget"), "--ram");
  EXPECT_EQ(config->source.at("limits.workers"), file + ":4");
  EXPECT_EQ(config->source.at("log.level"), file + ":6");
  EXPECT_EQ(config->source.at("server.socket"), "default");
  EXPECT_EQ(load(file)->source.at("tier.ram.budget"), "CACHESVC_TIER_RAM_BUDGET");
}

TEST_F(ConfigTest, AKeyFileIsReadOrRefusedAtTheStart) {
  std::string path = dir_ + "/key", file = write("[tier.ssd]\nkey_file = \"" + path + "\"\n");
  EXPECT_EQ(load()->cache.ssd_key, nullptr);
  std::ofstream(path) << std::string(32, 'k');
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  auto config = load(file);
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  ASSERT_NE(config->cache.ssd_key, nullptr);
  EXPECT_FALSE(config->cache.ssd_key->ephemeral());
  std::filesystem::permissions(path, std::filesystem::perms::others_read,
                               std::filesystem::perm_options::add);
  std::string refused = load(file).status().message();
  EXPECT_EQ(refused.rfind(file + ":2: tier.ssd.key_file: key file " + path, 0), 0u) << refused;
  EXPECT_TRUE(load(write("[tier.ssd]\nkey_file = \"ephemeral\"\n"))->cache.ssd_key->ephemeral());
}

TEST_F(ConfigTest, TheDefaultFileIsReadIfItIsThere) {
  std::filesystem::create_directories(dir_ + "/config/cachesvc");
  std::ofstream(dir_ + "/config/cachesvc/cachesvc.toml") << "[limits]\nworkers = 5\n";
  EXPECT_EQ(load()->cache.workers, 5u);
}

TEST_F(ConfigTest, ErrorsNameTheirLine) {
  std::string file = dir_ + "/test.toml";
  EXPECT_EQ(error("\n[tier.ram]\nbuget = \"1GiB\"\n"),
            file + ":3: unknown key \"tier.ram.buget\", did you mean \"tier.ram.budget\"?");
  EXPECT_NE(error("[nonsense]\nx = 1\n").find(file + ":2: unknown key \"nonsense.x\""),
            std::string::npos);
  EXPECT_NE(error("[limits]\n\nworkers = \"many\"\n").find(file + ":3: limits.workers = \"many\""),
            std::string::npos);
  EXPECT_NE(error("[limits]\nworkers = 0\n").find(file + ":2: "), std::string::npos);
  EXPECT_NE(error("[limits]\nworkers = 2.5\n").find(file + ":2: limits.workers"),
            std::string::npos);
  EXPECT_NE(error("[server\n").find(file + ":1"), std::string::npos);
  EXPECT_NE(error("[server]\nallow_uids = [\"root\"]\n").find(":2"), std::string::npos);
  EXPECT_FALSE(load(dir_ + "/absent.toml").ok());
}

TEST_F(ConfigTest, AllMistakesAreToldAtOnce) {
  env_["CACHESVC_LOG_LEVEL"] = "loud";
  env_["CACHESVC_NOTHING"] = "1";
  auto config = load(
      write("[tier.ram]\nbuget = \"1GiB\"\nwarm_start = 0.5\n[limits]\nworkers = 0\n"
            "max_models = 0\n[[namespace]]\nname = \"\"\nusers = 5\n[[namespace]]\nname = \"a\"\n"
            "[[namespace]]\nname = \"a\"\n"),
      {{"tier.ssd.limit", "lots", "--ssd"}});
  ASSERT_FALSE(config.ok());
  const std::string& said = config.status().message();
  for (const char* line :
       {"test.toml:2: unknown key", "test.toml:3: tier.ram.warm_start",
        "test.toml:5: limits.workers", "test.toml:6: limits.max_models",
        "test.toml:8: namespace.name", "test.toml:9: namespace.users",
        "test.toml:12: namespace.name", "CACHESVC_LOG_LEVEL: ", "CACHESVC_NOTHING: ", "--ssd: "}) {
    EXPECT_NE(said.find(line), std::string::npos) << line << " is not in\n" << said;
  }
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 9) << said;
}

TEST_F(ConfigTest, ContradictionsAreToldAtOnceToo) {
  auto config =
      load(write("[server]\nsocket = \"\"\n[tier.ssd]\nlimit = \"0\"\n"
                 "write_rate = \"1MiB\"\nwrite_per_day = \"1GiB\"\n"));
  ASSERT_FALSE(config.ok());
  const std::string& said = config.status().message();
  for (const char* line :
       {":2: server.socket", ":5: tier.ssd.write_rate", ":6: tier.ssd.write_per"}) {
    EXPECT_NE(said.find(line), std::string::npos) << line << " is not in\n" << said;
  }
}

TEST_F(ConfigTest, AGuestTakesAnEighthAndFourGibibytesAtMost) {
  auto config = load();
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  CacheOptions& cache = config->cache;
  EXPECT_DOUBLE_EQ(cache.ram_fraction, 0.125);
  EXPECT_EQ(cache.ram_most_bytes, 4ull << 30);
  cache.ram_most_bytes = 16 << 20;
  EXPECT_EQ(*ram_budget(cache), 16u << 20);
  auto own = load({}, {{"tier.ram.budget", "50%", "--ram"}});
  EXPECT_EQ(own->cache.ram_most_bytes, 0u) << "whoever says a share has no other limit";
}

TEST_F(ConfigTest, ErrorsNameVariableAndFlag) {
  auto flag = load({}, {{"tier.ssd.limit", "lots", "--ssd"}});
  EXPECT_NE(flag.status().message().find("--ssd: tier.ssd.limit = \"lots\""), std::string::npos);
  auto unknown = load({}, {{"codec.defualt", "tq4", "--set"}});
  EXPECT_NE(unknown.status().message().find("codec.default"), std::string::npos);
  env_["CACHESVC_LOG_LEVEL"] = "loud";
  EXPECT_NE(load().status().message().find("CACHESVC_LOG_LEVEL: log.level"), std::string::npos);
}

TEST_F(ConfigTest, AMistypedVariableIsAnErrorWithTheNearestName) {
  env_["CACHESVC_TIER_RAM_BUGDET"] = "1GiB";
  auto config = load();
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().message(),
            "CACHESVC_TIER_RAM_BUGDET: the environment has no such setting, did you mean "
            "CACHESVC_TIER_RAM_BUDGET?");
  env_.clear();
  env_["KV_CACHESVC"] = "others' names";
  EXPECT_TRUE(load().ok());
}

TEST_F(ConfigTest, SettingsThatContradictEachOtherAreErrorsWithTheirPlaces) {
  struct Case {
    std::string text;
    std::vector<std::string> words;
  };
  const Case cases[] = {
      {"[server]\nsocket = \"\"\n", {":2: server.socket", "expected a path"}},
      {"[tier.ssd]\ndir = \"\"\n", {":2: tier.ssd.dir", "expected a path"}},
      {"[tier.ssd]\nlimit = \"0.0000001%\"\n", {":2: tier.ssd.limit", "at least 8MiB"}},
      {"[tier.ram]\nbudget = \"64MiB\"\nwarm_start = \"1GiB\"\n",
       {":3: tier.ram.warm_start", "tier.ram.budget"}},
      {"[tier.ssd]\nlimit = \"0\"\nwrite_rate = \"1MiB\"\n",
       {":3: tier.ssd.write_rate", "no SSD tier", "tier.ssd.limit", ":2"}}};
  for (const Case& c : cases) {
    auto config = load(write(c.text));
    ASSERT_FALSE(config.ok()) << c.text;
    EXPECT_EQ(config.status().code(), StatusCode::invalid_argument);
    for (const std::string& word : c.words) {
      EXPECT_NE(config.status().message().find(word), std::string::npos)
          << config.status().message() << " lacks " << word;
    }
  }
}

TEST_F(ConfigTest, TiersAndCodec) {
  auto config = load(write("[tier.ssd]\nlimit = \"0\"\n[codec]\ndefault = \"tq3\"\n"));
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_TRUE(config->cache.ssd_dir.empty());
  EXPECT_EQ(config->cache.coding.k_bits, 3);
  EXPECT_EQ(config->cache.coding.v_bits, 3);
  auto flags = load(write("[codec]\ndefault = 8\n"), {{"codec.default", "raw", "--codec"}});
  EXPECT_EQ(flags->cache.coding.k_bits, 0);
  auto share = load({}, {{"tier.ssd.limit", "50%", "--ssd"}, {"tier.ram.budget", "10%", "--ram"}});
  ASSERT_TRUE(share.ok()) << share.status().to_string();
  EXPECT_GT(share->cache.ssd_limit_bytes, 0u);
  EXPECT_DOUBLE_EQ(share->cache.ram_fraction, 0.1);
  EXPECT_FALSE(load({}, {{"tier.ram.budget", "0", "--ram"}}).ok());
  EXPECT_FALSE(load({}, {{"codec.default", "tq5", "--codec"}}).ok());
}

TEST_F(ConfigTest, PresetsAreCodings) {
  auto bits = [&](const std::string& preset) {
    auto config = load({}, {{"codec.default", preset, "--codec"}});
    EXPECT_TRUE(config.ok()) << config.status().to_string();
    return std::pair<int, int>(config->cache.coding.k_bits, config->cache.coding.v_bits);
  };
  EXPECT_EQ(bits("lossless"), std::pair(0, 0));
  EXPECT_EQ(bits("tq8"), std::pair(8, 8));
  EXPECT_EQ(bits("tq84"), std::pair(8, 4));
  EXPECT_EQ(bits("auto"), std::pair(8, 4));
  EXPECT_EQ(bits("3"), std::pair(3, 3));
  EXPECT_EQ(bits("int8"), std::pair(8, 8)) << "an older name";
  auto printed = load({}, {{"codec.default", "tq84", "--codec"}});
  EXPECT_NE(print_config(*printed).find("\ndefault = \"tq84\""), std::string::npos);
  auto none = load();
  EXPECT_EQ(std::pair(+none->cache.coding.k_bits, +none->cache.coding.v_bits), bits("auto"));
  auto unknown = load({}, {{"codec.default", "tq5", "--codec"}});
  EXPECT_NE(unknown.status().message().find("lossless, tq8, tq84, tq4, tq3, tq2, auto"),
            std::string::npos);
}

// A value beyond its bounds is told by file, line and the setting's own name, never later by the
// name of something inside.
TEST_F(ConfigTest, ValuesBeyondTheirBoundsAreErrorsWithTheBounds) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"tier.ram.budget = 512", {"\"512\"", "at least 2MiB", "95% of the memory available"}},
      {"tier.ram.budget = \"0\"", {"\"0\"", "at least 2MiB"}},
      {"tier.ram.budget = \"96%\"", {"\"96%\"", "up to 95%"}},
      {"tier.ram.index = \"80%\"", {"a share from 0.1% to 70%"}},
      {"tier.ram.index = \"1MiB\"", {"a share from 0.1% to 70%"}},
      {"tier.ssd.limit = \"1MiB\"", {"0, or a size of at least 8MiB"}},
      {"server.drain_timeout = \"25h\"", {"a duration from 0 to 24h"}},
      {"server.max_connections = 0", {"from 1 to 65536"}},
      {"limits.max_models = 65537", {"from 1 to 65536"}},
      {"log.level = \"loud\"", {"one of trace, debug, info, warn, error, critical, off"}},
      {"codec.raw_dtype = \"f8\"", {"one of f16, bf16, f32"}},
      {"server.resp.listen = \"localhost:6390\"", {"an IPv4 address and a port"}},
      {"server.resp.listen = \"127.0.0.1\"", {"an IPv4 address and a port"}},
      {"server.resp.listen = \"127.0.0.1:65536\"", {"an IPv4 address and a port"}},
      {"server.resp.listen = \"127.0.0.1:0\"", {"an IPv4 address and a port"}},
  };
  for (const auto& [line, words] : cases) {
    const std::string said = error(std::string("\n") + line + "\n");
    const std::string name = std::string(line).substr(0, std::string(line).find(' '));
    EXPECT_EQ(said.rfind(dir_ + "/test.toml:2: " + name + " = ", 0), 0u) << line << ": " << said;
    for (const std::string& word : words) EXPECT_NE(said.find(word), said.npos) << said;
  }
}

TEST_F(ConfigTest, ASharedTierThatCannotBeHonouredIsAnErrorThatNamesTheSetting) {
  const std::string nodes = "[remote]\nnodes = [\"a:1\", \"[::1]:6379\"]\n";
  EXPECT_EQ(error(nodes), "");
  auto says = [&](const std::string& body, const std::string& part) {
    const std::string said = error(body);
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  says("[remote]\nnodes = [\"a:1\", \"b\"]\n",
       "remote.nodes = \"a:1,b\": \"b\": expected host:port");
  says(nodes + "[tier.ssd]\nlimit = \"0\"\n", "remote.nodes = \"a:1,[::1]:6379\": there is no SSD");
  says(nodes + "user = \"u\"\n", "set remote.password_file too");
  says(nodes + "cert_file = \"c\"\nca_file = \"a\"\n", "set remote.cert_key_file too");
  says(nodes + "cert_file = \"c\"\ncert_key_file = \"k\"\n", "there is no TLS");
  says(nodes + "key_file = \"ephemeral\"\n", "remote.key_file: an ephemeral key is nobody else's");
  says(nodes + "password_file = \"/nowhere/at/all\"\n", "remote.password_file: password file");
  says("[remote]\nca_file = \"a\"\n", "remote.ca_file = \"a\": there is no shared tier");
}

TEST_F(ConfigTest, ARespPortForOtherMachinesWantsAPassword) {
  const std::string password = write_password();
  const std::string file = "password_file = \"" + password + "\"\n";
  EXPECT_EQ(error("[server.resp]\nlisten = \"127.0.0.1:6390\"\n"), "");
  EXPECT_EQ(error("[server.resp]\nlisten = \"0.0.0.0:6390\"\n" + file), "");
  EXPECT_NE(error("[server.resp]\nlisten = \"0.0.0.0:6390\"\n").find("server.resp.password_file"),
            std::string::npos);
  // What has no effect is an error too.
  EXPECT_NE(error("[server.resp]\n" + file).find("there is no RESP port"), std::string::npos);
  EXPECT_NE(error("[server.resp]\nnamespace = \"x\"\n").find("there is no RESP port"),
            std::string::npos);
  EXPECT_NE(error("[server.resp]\nlisten = \"127.0.0.1:6390\"\nnamespace = \"\"\n")
                .find("expected a text of 1 to 64 bytes"),
            std::string::npos);
  ASSERT_EQ(::chmod(password.c_str(), 0644), 0);
  EXPECT_NE(error("[server.resp]\nlisten = \"127.0.0.1:6390\"\n" + file).find("password file"),
            std::string::npos);
  auto config = load(write("[server.resp]\nlisten = \"127.1.2.3:65535\"\n"));
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(format_address(config->server.resp.listen), "127.1.2.3:65535");
}

TEST_F(ConfigTest, ASettingThatWentIsAnErrorThatSaysWhatToWrite) {
  EXPECT_EQ(error("[tier.ram]\nstaging = \"30%\"\n"),
            dir_ +
                "/test.toml:2: \"tier.ram.staging\" is no setting any more: leave it out: a "
                "quarter of tier.ram.budget");
  EXPECT_NE(error("[codec]\nk_bits = 8\n").find("write codec.default"), std::string::npos);
  auto flag = load({}, {{"limits.room_wait", "2s", "--set"}});
  EXPECT_NE(flag.status().message().find("--set: \"limits.room_wait\" is no setting any more"),
            std::string::npos);
  env_["CACHESVC_SERVER_MAX_PUT"] = "1GiB";
  EXPECT_NE(load().status().message().find("CACHESVC_SERVER_MAX_PUT: \"server.max_put\" is no"),
            std::string::npos);
  env_.erase("CACHESVC_SERVER_MAX_PUT");
  EXPECT_NE(error("budget = \"1GiB\"\n").find("did you mean \"tier.ram.budget\"?"),
            std::string::npos);
}

// The table `remote` is for those who share a tier between machines; all others see the rest.
TEST_F(ConfigTest, ThereAreAtMost30And10OfTheSharedTierAndEachExplainsItself) {
  const auto shared = std::count_if(config_keys().begin(), config_keys().end(),
                                    [](const Key& key) { return key.name.starts_with("remote."); });
  EXPECT_LE(shared, 10);
  EXPECT_LE(config_keys().size() - static_cast<size_t>(shared), 30u);
  for (const Key& key : config_keys()) {
    EXPECT_FALSE(key.what.empty() || key.accepts.empty() || key.by_default.empty()) << key.name;
    EXPECT_EQ(key.help(), key.what + ". " + key.accepts + ". Default: " + key.by_default + ".");
    EXPECT_EQ(env_name(key.name).rfind("CACHESVC_", 0), 0u);
  }
  EXPECT_EQ(env_name("tier.ssd.min_free"), "CACHESVC_TIER_SSD_MIN_FREE");
  EXPECT_EQ(find_key("server.drain_timeout")->help(),
            "The longest time from SIGTERM to the end, in which what waits for the SSD is written "
            "and answers are sent. A duration from 0 to 24h (ms, s, m, h). Default: 20s.");
}

// All of it changed, so that no value is right by default.
TEST_F(ConfigTest, ThePrintedConfigurationIsAConfiguration) {
  const std::string password = write_password(), seal = dir_ + "/shared.key";
  std::ofstream(seal) << std::string(64, 'a') << "\n";
  ASSERT_EQ(::chmod(seal.c_str(), 0600), 0);
  std::vector<Setting> all{{"server.socket", dir_ + "/a\\b\"c\x01", ""},
                           {"server.allow_uids", "1000, 1001", ""},
                           {"server.max_connections", "7", ""},
                           {"server.drain_timeout", "1500ms", ""},
                           {"server.resp.listen", "10.1.2.3:6390", ""},
                           {"server.resp.password_file", password, ""},
                           {"server.resp.namespace", "values", ""},
                           {"server.http.listen", "127.0.0.1:9410", ""},
                           {"server.http.token_file", password, ""},
                           {"tier.ram.budget", "37%", ""},
                           {"tier.ram.index", "12.5%", ""},
                           {"tier.ram.warm_start", "1GiB", ""},
                           {"tier.ssd.dir", dir_ + "/d", ""},
                           {"tier.ssd.limit", "9MiB", ""},
                           {"tier.ssd.min_free", "1%", ""},
                           {"tier.ssd.key_file", "ephemeral", ""},
                           {"tier.ssd.spill", "evict", ""},
                           {"tier.ssd.write_rate", "1MiB", ""},
                           {"tier.ssd.write_per_day", "1GB", ""},
                           {"tier.ssd.scrub_rate", "0", ""},
                           {"remote.nodes", "10.0.0.1:6379,node-2:6380", ""},
                           {"remote.user", "cachesvc", ""},
                           {"remote.password_file", password, ""},
                           {"remote.ca_file", "/etc/ca.pem", ""},
                           {"remote.cert_file", "/etc/own.pem", ""},
                           {"remote.cert_key_file", "/etc/own.key", ""},
                           {"remote.key_file", seal, ""},
                           {"remote.expiry", "36h", ""},
                           {"remote.write_rate", "8MiB", ""},
                           {"remote.min_tokens", "1024", ""},
                           {"codec.default", "tq3", ""},
                           {"codec.block_tokens", "16", ""},
                           {"codec.raw_dtype", "bf16", ""},
                           {"limits.workers", "3", ""},
                           {"limits.max_models", "9", ""},
                           {"policy.nonfinite", "raw", ""},
                           {"policy.block_end_interval", "4", ""},
                           {"log.level", "debug", ""},
                           {"log.format", "json", ""}};
  EXPECT_EQ(all.size() + 1, config_keys().size()) << "but codec.profiles, which wants files";
  for (Setting& s : all) s.where = "--set";
  const Setting no_ssd{"tier.ssd.limit", "0", "--ssd"};
  for (const auto& flags : {all, std::vector<Setting>{no_ssd}, std::vector<Setting>{}}) {
    auto config = load({}, flags);
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    const std::string printed = print_config(*config);
    auto again = load(write(printed));
    ASSERT_TRUE(again.ok()) << again.status().to_string() << "\n" << printed;
    for (const Key& key : config_keys()) {
      EXPECT_EQ(key.get(*again), key.get(*config)) << key.name;
      EXPECT_EQ(again->source.at(key.name).rfind(dir_ + "/test.toml:", 0), 0u) << key.name;
    }
    for (const Setting& s : flags) EXPECT_EQ(config->source.at(s.key), s.where);
  }
}

TEST_F(ConfigTest, NamespacesHaveUsersAndTokens) {
  const std::string token = dir_ + "/token";
  std::ofstream(token) << "sixteen bytes it is\n";
  std::filesystem::permissions(token, std::filesystem::perms(0600));
  auto config =
      load(write("[server]\nallow_uids = [1000]\n[[namespace]]\nname = \"a \\\"b\"\n"
                 "users = [7, 8]\ntoken_file = \"" +
                 token +
                 "\"\nram = \"2MiB\"\nssd = \"9MiB\"\nconnections = 3\nreservations = 4\n"
                 "models = 5\nrequests = 6\nin_flight = \"7MiB\"\n[[namespace]]\nname = \"c\"\n"));
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  auto again = load(write(print_config(*config)));
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  for (const auto& rules : {config->server.namespaces, again->server.namespaces}) {
    ASSERT_EQ(rules.size(), 2u);
    EXPECT_EQ(rules[0].name, "a \"b");
    EXPECT_EQ(rules[0].users, (std::vector<uint32_t>{7, 8}));
    EXPECT_EQ(rules[0].token, "sixteen bytes it is");
    EXPECT_EQ(rules[0].quota, (NamespaceQuota{2 << 20, 9 << 20, 3, 4, 5, 6, 7 << 20}));
    EXPECT_EQ(rules[1].name, "c");
    EXPECT_EQ(rules[1].quota, NamespaceQuota{});
    EXPECT_EQ(rules[1].token, "");
  }
}

TEST_F(ConfigTest, ANamespaceThatCannotBeHonouredIsAnErrorWithItsPlace) {
  const std::string head = "[[namespace]]\n", name = "name = \"a\"\n";
  const std::string token = dir_ + "/token", file = dir_ + "/test.toml";
  auto says = [&](const std::string& body, const std::string& part) {
    const std::string said = error(head + body);
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  says("", file + ":1: namespace.name");
  says("name = \"\"\n", ":2: namespace.name: expected a text of 1 to 64 bytes");
  says(name + "user = [1]\n", ":3: namespace.user: unknown key, did you mean \"users\"?");
  says(name + "users = [\"root\"]\n", ":3: namespace.users: expected a list of user ids");
  says(name + "users = [-1]\n", ":3: namespace.users");
  says(name + head + name, ":3: namespace.name: a second table of \"a\"");
  says(name + "token_file = \"/none\"\n", ":3: namespace.token_file: token file /none");
  const std::string with_token = name + "users = [1]\ntoken_file = \"" + token + "\"\n";
  std::ofstream(token) << "short\n";
  says(with_token, "others may read or write it");
  std::filesystem::permissions(token, std::filesystem::perms(0600));
  says(with_token, "expected 16 to 256 bytes and a newline");
  std::ofstream(token) << std::string(256, 'x') << "\n";
  EXPECT_EQ(error(head + with_token), "");
  says(name + "token_file = \"" + token + "\"\n", "nobody who needs the token may connect");
  says(name + "ram = \"lots\"\n", ":3: namespace.ram: expected a size such as");
  says(name + "ram = \"1KiB\"\n", "of at least 1MiB");
  says(name + "requests = 0\n", ":3: namespace.requests: expected a whole number from 1");
  says("name = \"*\"\nram = \"1GiB\"\n", "the table \"*\" has no quota");
  EXPECT_NE(error("namespace = \"a\"\n").find("unknown key"), std::string::npos);
}

TEST_F(ConfigTest, ListsAreTomlListsOrTextsWithCommas) {
  auto uids = [&](const char* value) {
    return load(write(std::string("[server]\nallow_uids = ") + value + "\n"))->server.allow_uids;
  };
  const std::vector<uint32_t> both{1000, 1001};
  EXPECT_EQ(uids("[1000, 1001]"), both);
  EXPECT_EQ(uids("\"1000,1001\""), both);
  EXPECT_NE(error("[codec]\nprofiles = [\"/none\", \"/no\"]\n").find(":2: codec.profiles: "),
            std::string::npos);
  EXPECT_NE(error("[codec]\nprofiles = [1.5]\n").find(":2: codec.profiles"), std::string::npos);
}

}  // namespace
}  // namespace kv
