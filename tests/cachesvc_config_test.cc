// Configuration: values, the order of sources, and errors that name their place.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cachesvc/daemon/config.h"

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
  for (const char* bad : {"0%", "101%", "%", "-5%", "5%%"})
    EXPECT_FALSE(parse_amount(bad).ok()) << bad;
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
  EXPECT_NE(refused.find("tier.ssd.key_file: key file " + path), std::string::npos) << refused;
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
      {"[tier.ram]\nbudget = 512\n", {":2: tier.ram.budget = \"512\"", "at least 1MiB"}},
      {"[tier.ram]\nbudget = \"0\"\n", {":2: tier.ram.budget", "can't be off"}},
      {"[tier.ssd]\nlimit = \"1MiB\"\n", {":2: tier.ssd.limit", "at least 8MiB"}},
      {"[tier.ram]\nstaging = \"60%\"\nindex = \"50%\"\n",
       {":2: tier.ram.staging", "tier.ram.index", ":3"}},
      {"[tier.ram]\nbudget = \"64MiB\"\n[server]\nmax_put = \"1GiB\"\n",
       {":4: server.max_put = \"1GiB\"", "tier.ram.budget = \"64MiB\"", ":2"}},
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
  auto config = load(write("[tier.ssd]\nlimit = \"0\"\n[codec]\nk_bits = 8\ndefault = \"tq3\"\n"));
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_TRUE(config->cache.ssd_dir.empty());
  EXPECT_EQ(config->cache.coding.k_bits, 8) << "one side wins over the default of its own source";
  EXPECT_EQ(config->cache.coding.v_bits, 3);
  auto flags = load(write("[codec]\nk_bits = 8\n"), {{"codec.default", "raw", "--codec"}});
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
  EXPECT_NE(print_config(*printed).find("codec.default = \"tq84\""), std::string::npos);
  auto sides = load({}, {{"codec.k_bits", "tq3", "--set"}});
  EXPECT_EQ(print_config(*sides).find("codec.default"), std::string::npos) << "no preset is K3 V4";
  auto none = load();
  EXPECT_EQ(std::pair(+none->cache.coding.k_bits, +none->cache.coding.v_bits), bits("auto"));
  auto one_side = load({}, {{"codec.k_bits", "tq84", "--set"}});
  EXPECT_NE(one_side.status().message().find("codec.k_bits = \"tq84\": K and V differ"),
            std::string::npos);
  auto unknown = load({}, {{"codec.default", "tq5", "--codec"}});
  EXPECT_NE(unknown.status().message().find("lossless, tq8, tq84, tq4, tq3, tq2, auto"),
            std::string::npos);
}

TEST_F(ConfigTest, ThePrintedConfigurationIsAConfiguration) {
  auto config = load({}, {{"tier.ram.budget", "37%", "--ram"}, {"codec.k_bits", "8", "--set"}});
  ASSERT_TRUE(config.ok());
  std::string printed = print_config(*config);
  EXPECT_NE(printed.find("# --ram"), std::string::npos);
  auto again = load(write(printed));
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  auto strip = [](std::string text) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      size_t end = text.find('\n', at);
      out += text.substr(at, text.find("  #", at) - at) + "\n";
      at = end + 1;
    }
    return out;
  };
  std::string reprinted = print_config(*again);
  auto compact = [&](const std::string& s) {
    std::string out = strip(s);
    std::erase(out, ' ');
    return out;
  };
  EXPECT_EQ(compact(reprinted), compact(printed));
}

TEST_F(ConfigTest, EveryKeyHasAVariableAndHelp) {
  for (const auto& key : config_keys()) {
    EXPECT_FALSE(key.help.empty()) << key.key;
    EXPECT_EQ(env_name(key.key).rfind("CACHESVC_", 0), 0u);
  }
  EXPECT_EQ(env_name("tier.ssd.min_free"), "CACHESVC_TIER_SSD_MIN_FREE");
}

}  // namespace
}  // namespace kv
