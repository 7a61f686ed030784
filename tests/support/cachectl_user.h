// A user without settings, the real cachectl and a daemon at its default place: for tests of
// cachectl on both a directory and a daemon.
#pragma once

#include "tests/support/cachectl_store.h"
#include "tests/support/daemon_process.h"

namespace kv::testing {

/// What `serve` makes its defaults of is this test's own.
class CachectlPlace : public Cachectl {
 protected:
  void SetUp() override {
    for (const char* name : {"XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HOME"}) {
      const char* value = std::getenv(name);
      before_.emplace_back(name, value == nullptr ? "" : value);
      const std::string own = home_.path() + "/" + name;
      fs::create_directory(own);
      fs::permissions(own, fs::perms::owner_all);
      ::setenv(name, own.c_str(), 1);
    }
    Cachectl::SetUp();
  }
  void TearDown() override {
    for (const auto& [name, value] : before_) {
      value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
    }
  }
  std::string socket() const { return home_.path() + "/XDG_RUNTIME_DIR/cachesvc/cachesvc.sock"; }
  std::string directory() const { return home_.path() + "/XDG_CACHE_HOME/cachesvc"; }
  static std::unique_ptr<DaemonProcess> serve(std::vector<std::string> more = {},
                                              const std::string& ssd = "64MiB") {
    std::vector<std::string> arguments{"--ram", "64MiB", "--ssd", ssd};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return DaemonProcess::start(arguments);
  }

  TempDir home_;
  std::vector<std::pair<std::string, std::string>> before_;
};

}  // namespace kv::testing
