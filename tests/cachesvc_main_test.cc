// What the program says and returns when it cannot start as it was told.
#include "tests/support/cachesvc_server.h"

namespace kv {
namespace {

// Connections could use up all descriptors, and the SSD's files would no longer open.
TEST_F(ServerTest, DescriptorsForTheSsdAreLeftOrTheStartRefused) {
  std::string said;
  std::vector<std::string> serve{"serve", "--dir",    dir_.store(), "--ssd",
                                 "64MiB", "--socket", socket()};
  EXPECT_EQ(run(serve, &said, "ulimit -n 200; exec "), 78) << said;
  EXPECT_NE(said.find("server.max_connections 128: with 1280 files for the SSD, segments and "
                      "clients' memories, 1408 must "
                      "be open"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("the system allows 200"), std::string::npos) << said;
  // The soft limit is raised: the start ends later, for want of its ready descriptor's reader.
  serve.insert(serve.end(), {"--ready-fd", "0"});
  EXPECT_EQ(run(serve, &said, "ulimit -Sn 200; exec </dev/null "), 1) << said;
  EXPECT_EQ(said.find("must be open"), std::string::npos) << said;
}

TEST_F(ServerTest, ASocketDirectoryThatOthersCannotEnterIsTold) {
  fs::path closed = dir_.store() + "-closed";
  fs::create_directory(closed);
  fs::permissions(closed, fs::perms::owner_all);
  std::string said;
  EXPECT_EQ(run({"serve", "--ssd", "0", "--socket", closed / "s.sock", "--set",
                 "server.allow_uids=4321", "--ready-fd", "0"},
                &said, "exec </dev/null "),
            1)
      << said;
  EXPECT_NE(said.find("server.allow_uids: " + closed.string() + " is closed to other users"),
            std::string::npos)
      << said;
}

TEST_F(ServerTest, CommandLineExitCodes) {
  std::string said;
  EXPECT_EQ(run({"--version"}), 0);
  EXPECT_EQ(run({}), 2);
  EXPECT_EQ(run({"serve", "--nonsense"}), 2);
  EXPECT_EQ(run({"serve", "--ram", "lots"}, &said), 78);
  EXPECT_NE(said.find("--ram"), std::string::npos);
  EXPECT_EQ(run({"serve", "--ssd", "0", "--ready-fd", "77"}, &said), 2) << said;
  std::string file = dir_.store() + ".toml";
  std::ofstream(file) << "[server]\nsockett = \"x\"\n";
  EXPECT_EQ(run({"check-config", file}, &said), 78);
  EXPECT_NE(said.find(file + ":2: unknown key"), std::string::npos) << said;
  std::ofstream(file) << "[limits]\nworkers = 3\n";
  EXPECT_EQ(run({"check-config", file}), 0);
  EXPECT_EQ(run({"print-config", "--config", file}, &said), 0);
  EXPECT_NE(said.find("# " + file + ":2"), std::string::npos) << said;
}

}  // namespace
}  // namespace kv
