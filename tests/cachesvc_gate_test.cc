// Who may connect, and who may name which namespace: the rules by themselves, and a daemon's peers.
#include "cachesvc/daemon/gate.h"
#include "tests/support/cachesvc_server.h"

namespace kv {
namespace {

constexpr uint32_t kOwn = 900, kAdmin = 901, kUser = 1000, kSibling = 1001, kStranger = 1002;
const std::string kToken = "sixteen bytes, or more", kAdminToken = "and another of them";

Gate gate() {
  ServerOptions options;
  options.allow_uids = {kSibling};
  options.namespaces = {{"chat", {kUser}, "", "", {}},
                        {"batch", {}, "file", kToken, {}},
                        {"shut", {}, "", "", {}},
                        {"*", {kAdmin}, "file", kAdminToken, {}}};
  return Gate(options, kOwn);
}

bool denied(const Status& status) { return status.code() == StatusCode::denied; }

TEST(Gate, WhoIsOnNoListMayNotConnect) {
  for (uint32_t user : {0u, kOwn, kAdmin, kUser, kSibling}) {
    EXPECT_TRUE(gate().may_connect(user).ok()) << user;
  }
  EXPECT_TRUE(denied(gate().may_connect(kStranger)));
  EXPECT_FALSE(Gate(ServerOptions{}, kOwn).opens_to_others());
  EXPECT_TRUE(gate().opens_to_others());
}

TEST(Gate, AdminsEnterAnyNamespace) {
  for (uint32_t user : {0u, kOwn, kAdmin}) {
    for (const char* ns : {"chat", "batch", "shut", "uid-1001", "another"}) {
      auto right = gate().enter(user, ns, "");
      ASSERT_TRUE(right.ok()) << user << ns;
      EXPECT_EQ(*right, Right::all);
    }
  }
  EXPECT_EQ(*gate().enter(kSibling, "chat", kAdminToken), Right::all);
}

TEST(Gate, OthersEnterWhatIsTheirs) {
  EXPECT_EQ(*gate().enter(kUser, "chat", ""), Right::own);
  EXPECT_EQ(*gate().enter(kSibling, "batch", kToken), Right::own);
  EXPECT_EQ(*gate().enter(kSibling, "uid-1001", ""), Right::own);
  const Gate g = gate();
  EXPECT_TRUE(denied(g.enter(kSibling, "chat", "").status()));
  EXPECT_TRUE(denied(g.enter(kSibling, "chat", kToken).status())) << "another namespace's token";
  EXPECT_TRUE(denied(g.enter(kSibling, "uid-1000", "").status()));
  EXPECT_TRUE(denied(g.enter(kSibling, "shut", "").status())) << "no token is no empty token";
  EXPECT_TRUE(denied(g.enter(kSibling, "another", "").status()));
}

TEST(Gate, ATokenIsRightWhole) {
  const Gate g = gate();
  std::string wrong = kToken;
  for (size_t i = 0; i < kToken.size(); ++i) {
    wrong[i] = static_cast<char>(wrong[i] ^ 1);
    EXPECT_TRUE(denied(g.enter(kSibling, "batch", wrong).status())) << i;
    wrong[i] = kToken[i];
  }
  EXPECT_TRUE(denied(g.enter(kSibling, "batch", kToken + '\0').status()));
  EXPECT_TRUE(denied(g.enter(kSibling, "batch", kToken.substr(1)).status()));
  EXPECT_TRUE(denied(g.enter(kSibling, "batch", "").status()));
}

TEST(Gate, AnAnswerDoesNotTellWhetherANamespaceIsThere) {
  std::string there = gate().enter(kSibling, "chat", "").status().message();
  std::string absent = gate().enter(kSibling, "tahc", "").status().message();
  absent.replace(absent.find("tahc"), 4, "chat");
  EXPECT_EQ(there, absent);
  EXPECT_EQ(gate().enter(kSibling, "batch", kToken + "x").status().message().find(kToken),
            std::string::npos);
}

// 'c': connected, 'r': refused by the daemon, 'p': the file system lets nobody near.
char connect_as(uid_t uid, const std::string& path, const std::string& ns = "raw",
                const std::string& token = "") {
  pid_t child = ::fork();
  if (child == 0) {
    if (::setresuid(uid, uid, uid) != 0) ::_exit('?');
    RawPeer peer(path);
    if (!peer.connected()) ::_exit(errno == EACCES ? 'p' : '?');
    peer.hello(ns, token);
    ::_exit(::testing::Test::HasFailure() ? 'r' : 'c');
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return static_cast<char>(WEXITSTATUS(status));
}

// Only root can be several users.
TEST_F(ServerTest, OtherUsersNeedToBeOnTheList) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  fs::path top = fs::path(dir_.store()).parent_path();
  fs::permissions(top, fs::perms(0711));  // the daemon opens its own directory, not this one
  constexpr uid_t kListed = 4321, kOther = 4322;
  start();
  EXPECT_EQ(connect_as(kListed, socket()), 'p');
  EXPECT_EQ(connect_as(0, socket()), 'c');
  EXPECT_EQ(daemon_->stop(), 0);
  fs::remove_all(fs::path(socket()).parent_path());
  start({"--set", "server.allow_uids=4321"});
  EXPECT_EQ(connect_as(kListed, socket(), "uid-4321"), 'c');
  EXPECT_EQ(connect_as(kListed, socket(), "raw"), 'r') << "another's namespace";
  EXPECT_EQ(connect_as(kOther, socket(), "uid-4322"), 'r');
  struct stat st;
  ASSERT_EQ(::stat(dir_.store().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0700u) << "what is stored stays closed";
  ASSERT_EQ(::stat((socket() + ".lock").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat(fs::path(socket()).parent_path().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0711u);
}

// Only root can be several users.
TEST_F(ServerTest, ATokenOpensANamespaceToWhoeverMayConnect) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  fs::permissions(fs::path(dir_.store()).parent_path(), fs::perms(0711));
  const std::string config = dir_.store() + ".toml", secret = dir_.store() + ".token";
  std::ofstream(secret) << kToken << "\n";
  fs::permissions(secret, fs::perms(0600));
  std::ofstream(config) << "[server]\nallow_uids = [1001]\n"
                        << "[[namespace]]\nname = \"batch\"\nusers = [1000]\n"
                        << "token_file = \"" << secret << "\"\n";
  LogFile log(dir_.store() + ".log");
  log.hears([&] { start({"--config", config, "--log-format", "json"}); });
  EXPECT_EQ(connect_as(kUser, socket(), "batch"), 'c');
  EXPECT_EQ(connect_as(kSibling, socket(), "batch", kToken), 'c');
  EXPECT_EQ(stat("denied"), 0u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(connect_as(kSibling, socket(), "batch", kToken + "x"), 'r');
  }
  EXPECT_EQ(connect_as(kStranger, socket(), "batch", kToken), 'r') << "it may not even connect";
  EXPECT_EQ(stat("denied"), 4u);
  EXPECT_EQ(daemon_->stop(), 0);
  EXPECT_EQ(log.text().find(kToken), std::string::npos);
}

// The connections of its own that a user gets, of as many as it asks for; all are open at a time.
int connections_as(uid_t uid, const std::string& path, int asks) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresuid(uid, uid, uid) != 0) ::_exit(100);
    std::vector<std::unique_ptr<RawPeer>> peers;
    int got = 0;
    for (int i = 0; i < asks; ++i) {
      peers.push_back(std::make_unique<RawPeer>(path));
      peers.back()->say_hello("uid-" + std::to_string(uid));
      auto answer = peers.back()->receive();
      got += answer && answer->header.type == FrameType::hello_ok ? 1 : 0;
    }
    ::_exit(got);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

TEST_F(ServerTest, AGuestHasHalfOfTheConnectionsAtMost) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  fs::permissions(fs::path(dir_.store()).parent_path(), fs::perms(0711));
  start({"--set", "server.allow_uids=4321", "--set", "server.max_connections=8"});
  EXPECT_EQ(connections_as(4321, socket(), 8), 4);
}

TEST_F(ServerTest, AConnectionOverItsNamespacesQuotaIsRefusedByName) {
  const std::string config = dir_.store() + ".toml";
  std::ofstream(config) << "[[namespace]]\nname = \"batch\"\nconnections = 1\n";
  start({"--config", config});
  RawPeer first(socket()), second(socket()), third(socket());
  first.hello("batch");
  second.say_hello("batch");
  EXPECT_EQ(second.receive_error(), StatusCode::resource_exhausted);
  third.hello("another");
  EXPECT_EQ(stat("over_quota"), 1u);
}

}  // namespace
}  // namespace kv
