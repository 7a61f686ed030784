// The command line.
#include "cachesvc/daemon/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "cachesvc/daemon/config_keys.h"
#include "cachesvc/daemon/config_mistakes.h"
#include "cachesvc/daemon/config_toml.h"
#include "cachesvc/daemon/exit_code.h"
#include "cachesvc/daemon/log.h"
#include "cachesvc/daemon/service.h"
#include "cachesvc/daemon/version.h"
#include "proto/frame.h"

namespace kv {
namespace {

int fail(const std::string& what, int code) {
  say_last("cachesvc: " + what);
  return code;
}
int fail(const Status& status, int code) {
  for (const std::string& line : lines_of(status)) fail(line, code);
  return code;
}

struct CommandLine {
  ConfigSources sources;
  std::string file, check_file;
  std::map<std::string, std::string> values;  // flags' key -> text
  std::vector<std::string> sets;              // KEY=VALUE
  int ready_fd = -1;
};

void add_options(CLI::App* command, CommandLine& line) {
  command->add_option("--config", line.file,
                      "TOML file (default: $XDG_CONFIG_HOME/cachesvc/"
                      "cachesvc.toml, if it exists)");
  for (const Key& key : config_keys()) {
    if (!key.flag.empty()) {
      command->add_option(key.flag, line.values[key.name], key.help() + " [" + key.name + "]");
    }
  }
  command->add_option("--set", line.sets, "KEY=VALUE for any key of print-config");
}

// Flags as settings; --set wins over a short flag.
Status collect(const CLI::App* command, CommandLine& line) {
  if (command->count("--config") > 0) line.sources.file = line.file;
  for (const Key& key : config_keys()) {
    if (!key.flag.empty() && command->count(key.flag) > 0) {
      line.sources.flags.push_back({key.name, line.values[key.name], key.flag});
    }
  }
  for (const auto& set : line.sets) {
    size_t equals = set.find('=');
    if (equals == set.npos) return invalid_argument("--set " + set + ": expected KEY=VALUE");
    line.sources.flags.push_back({set.substr(0, equals), set.substr(equals + 1), "--set"});
  }
  return {};
}

// Opens descriptors 0 to 2 if they are closed: messages go there, and they must be no file of ours.
void open_standard_descriptors() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDWR);
  ::close(fd);
}

int run(int argc, char** argv, const std::function<void(Config&)>& adjust) {
  open_standard_descriptors();
  CLI::App app{"cachesvc: a cache of prompts' KV for inference servers"};
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("cachesvc ") + kProgramVersion + ", protocol " +
                                        std::to_string(kProtocolVersion) + ", g++ " __VERSION__);
  CommandLine line;
  CLI::App* serving = app.add_subcommand("serve", "run the service in the foreground");
  add_options(serving, line);
  serving->add_option("--ready-fd", line.ready_fd,
                      "write a line to this inherited descriptor once connections are taken");
  CLI::App* check =
      app.add_subcommand("check-config", "read a configuration and say what is wrong");
  check->add_option("FILE", line.check_file, "default: what serve would read");
  CLI::App* print = app.add_subcommand(
      "print-config", "every setting with its help, its value and where it came from, as a file");
  add_options(print, line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? kOk : kUsage;
  }

  if (check->parsed()) {
    if (!line.check_file.empty()) line.sources.file = line.check_file;
  } else if (Status s = collect(serving->parsed() ? serving : print, line); !s.ok()) {
    return fail(s.message(), kUsage);
  }
  auto read = [sources = line.sources, adjust]() -> Result<Config> {
    auto config = load_config(sources);
    if (config.ok() && adjust) adjust(*config);
    return config;
  };
  auto config = serving->parsed() ? read() : load_config(line.sources);
  if (!config.ok()) return fail(config.status(), kConfig);
  if (check->parsed()) {
    std::cout << "ok: " << (config->file.empty() ? "defaults (no file)" : config->file) << "\n";
    return kOk;
  }
  if (print->parsed()) {
    std::cout << print_config(*config);
    return kOk;
  }
  return serve(std::move(*config), line.ready_fd, read);
}

}  // namespace

int run_program(int argc, char** argv, const std::function<void(Config&)>& adjust) {
  try {
    return run(argc, argv, adjust);
  } catch (const std::bad_alloc&) {
    return fail("out of memory", kTemporary);
  }
}

}  // namespace kv
