// cachectl why, status and doctor: live on a daemon that serves a real directory, and on the
// directory alone, in the same words.
#include <sys/stat.h>

#include <chrono>
#include <fstream>

#include "proto/socket_client.h"
#include "tests/support/cachectl_store.h"
#include "tests/support/daemon_process.h"
#include "tests/support/fitted_rows.h"

namespace kv {
namespace {

using namespace kv::testing;
using ::testing::AllOf;
using ::testing::Not;

constexpr std::chrono::seconds kSoon{60};

class CachectlWhy : public Cachectl {
 protected:
  /// Those of the path first - second - tail, then `more`.
  std::vector<Token> tokens(const std::vector<Token>& more = {}) {
    std::vector<Token> out;
    for (const Object* o : {&first_, &second_, &tail_}) {
      out.insert(out.end(), o->tokens.begin(), o->tokens.end());
    }
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  std::string file_of(const std::vector<Token>& tokens) {
    const std::string file = dir_.path() + "/tokens.json";
    spew(file, json(tokens).dump());
    return file;
  }
  static std::string kib(uint64_t bytes) {  // as cachectl prints it
    char text[32];
    std::snprintf(text, sizeof(text), "%.1f KiB", static_cast<double>(bytes) / 1024);
    return text;
  }
  Ran offline(const std::vector<Token>& tokens) {
    return run_changing("why --dir " + store() + " " + file_of(tokens));
  }
};

TEST_F(CachectlWhy, OfADirectoryAlone) {
  EXPECT_THAT(offline(tokens()).out,
              HasSubstr("would be served: 36 of 36 tokens (100 %) from SSD"));
  EXPECT_THAT(offline(tokens({7, 8, 9})).out,
              AllOf(HasSubstr("would be served: 37 of 39 tokens (94 %) from SSD"),
                    HasSubstr("not in this directory: never stored, or gone"),
                    HasSubstr("the first missing token is 37, in block 2 (of 16 tokens)")));
  Ran ran = run_changing("why --json --dir " + store() + " " + file_of({1, 2, 3}));
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.parsed()[0]["missing"], "not_there");
  EXPECT_EQ(ran.parsed()[0]["served"], 0);
  std::fstream(path(second_)).seekp(200).write("damage", 6);
  EXPECT_THAT(offline(tokens()).out,
              AllOf(HasSubstr("would be served: 17 of 36"), HasSubstr("damaged: dropped")));
  fs::remove(path(first_));
  EXPECT_THAT(offline(tokens()).out, HasSubstr("would be served: 0 of 36"));
}

TEST_F(CachectlWhy, OfARunningDaemonInTheSameWords) {
  tier_.reset();  // the daemon takes its lock
  const std::string socket = dir_.path() + "/run/cachesvc.sock";
  auto daemon = DaemonProcess::start({"--dir", store(), "--socket", socket, "--ssd", "64MiB"});
  ASSERT_TRUE(daemon);
  auto client = SocketClient::connect(socket, realm_.ns, {});
  ASSERT_TRUE(client.ok()) << client.status().to_string();
  auto opened = (*client)->open({model_, profile_}, deadline_in(kSoon));
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  for (const auto& asked : {tokens(), tokens({7, 8, 9})}) {
    FetchRequest request;
    request.model = opened->model;
    request.query.tokens = asked;
    ASSERT_TRUE((*client)->fetch(request, deadline_in(kSoon)).ok());
  }
  const std::string at = " --socket " + socket;
  EXPECT_THAT(run_changing("why" + at).out,
              AllOf(HasSubstr("REQUEST"), HasSubstr("never stored in the "),
                    HasSubstr("tenant\\x1b[31m"), Not(HasSubstr(std::to_string(kSecretToken)))));
  EXPECT_THAT(run_changing("why 1" + at).out,
              AllOf(HasSubstr("served: 36 of 36 tokens (100 %) from SSD"), HasSubstr("took ")));
  EXPECT_THAT(run_changing("why " + file_of(tokens({7, 8, 9})) + at).out,
              HasSubstr("would be served: 37 of 39 tokens (94 %) from RAM"));
  EXPECT_EQ(run_changing("why --missed --json" + at).parsed().size(), 1u);
  EXPECT_EQ(run_changing("why 99" + at).code, 4);
  EXPECT_EQ(run_changing("why nofile" + at).code, 2);
  EXPECT_THAT(run_changing("status" + at).out,
              AllOf(HasSubstr("RAM    ["), HasSubstr("SSD    ["), HasSubstr("2 fetches"),
                    HasSubstr("missed 1 never stored"), HasSubstr("models two-layers")));
  EXPECT_EQ(run_changing("status --json" + at).parsed()["stats"]["fetches"], 2);
  EXPECT_THAT(run_changing("doctor" + at).out, HasSubstr("Only 2 requests so far"));
  daemon->kill();
  Ran ran = run_changing("status" + at);
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.err, HasSubstr("no daemon answers at " + socket));
}

// One block's K and V of a layer, rows of a kind.
Object block_of(const RowKind& kind, const ModelSpec& model, const Profile& profile,
                uint32_t block) {
  Object o;
  o.first_token = block * profile.block_tokens;
  for (const SideSpec& side : sides_of(model.layers[0].parts[0])) {
    Plane& p = o.planes.emplace_back();
    p.side = side.side;
    p.heads = side.heads;
    p.dim = side.dim;
    p.first_row = o.first_token;
    p.runs = {{RunForm::exact, profile.block_tokens}};
  }
  kind.fill(o.planes);
  return o;
}

TEST_F(CachectlWhy, TransformsThatDoNotFitLiveAndInTheFiles) {
  constexpr uint32_t kBlocks = 9;
  ModelSpec model = model_;
  model.name = "misfit";
  model.fingerprint.bytes[0] ^= 1;
  model.layers.pop_back();
  CodingSettings settings;
  settings.k_bits = settings.v_bits = 0;
  const Profile profile = fitted_to({1}, *plain_profile(model, settings), model);
  tier_.reset();  // the daemon takes its lock
  const std::string socket = dir_.path() + "/run/cachesvc.sock";
  auto daemon = DaemonProcess::start({"--dir", store(), "--socket", socket, "--ssd", "64MiB"});
  ASSERT_TRUE(daemon);
  auto client = SocketClient::connect(socket, realm_.ns, {});
  ASSERT_TRUE(client.ok()) << client.status().to_string();
  auto opened =
      (*client)->open({model, std::make_shared<const Profile>(profile)}, deadline_in(kSoon));
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  ReserveRequest request{opened->model, opened->realm.profile, {}, {}, {}};
  request.query.tokens.resize(kBlocks * opened->profile->block_tokens, 5);
  auto reserved = (*client)->reserve(request, deadline_in(kSoon));
  ASSERT_TRUE(reserved.ok()) << reserved.status().to_string();
  for (const Need& need : reserved->needs) {
    PutRequest put{reserved->reservation, block_of({2}, model, profile, need.block_index), {}};
    const Status s = (*client)->put(std::move(put), deadline_in(kSoon));
    ASSERT_TRUE(s.ok()) << s.to_string();
  }
  ASSERT_TRUE(
      (*client)->commit(reserved->reservation, Durability::durable, deadline_in(kSoon)).ok());
  const auto says = AllOf(HasSubstr("odel misfit: its rows take 0."), HasSubstr("do not fit them"));
  for (const std::string& at : {" --socket " + socket, " " + store()}) {
    EXPECT_THAT(run_changing("status" + at).out, says);
    EXPECT_THAT(run_changing("doctor" + at).out, says);
    EXPECT_EQ(run_changing("status --json" + at).parsed()["misfits"].size(), 1u);
  }
  EXPECT_THAT(run_changing("counters --socket " + socket).out,
              HasSubstr("active tc: its rows take 0."));
}

TEST_F(CachectlWhy, SaysItsVersionAndRefusesWhatItCannotRead) {
  EXPECT_THAT(run_changing("--version").out, HasSubstr("cachectl "));
  EXPECT_THAT(run_changing("statsu").err, HasSubstr("Did you mean `cachectl stat"));
  EXPECT_THAT(run_changing("unlike").err, Not(HasSubstr("Did you mean")));
  spew(dir_.path() + "/bad.json", "{\"tokens\": [1, \"x\"]}");
  Ran ran = run_changing("why --dir " + store() + " " + dir_.path() + "/bad.json");
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("expected a JSON list of token ids"));
  EXPECT_EQ(run_changing("why --dir " + store()).code, 4);
}

TEST_F(CachectlWhy, TotalsOfLsAreTheDirectorysBytes) {
  auto allocated = [&](const fs::path& of) {
    struct stat s {};
    EXPECT_EQ(::lstat(of.c_str(), &s), 0);
    return static_cast<uint64_t>(s.st_blocks) * 512;
  };
  uint64_t whole = allocated(store());
  for (const auto& item : fs::recursive_directory_iterator(store()))
    whole += allocated(item.path());
  const uint64_t shared = allocated(path(first_));
  const uint64_t own = allocated(path(second_)) + allocated(path(tail_)) + allocated(path(other_));
  const std::string out = run("ls " + store()).out;
  EXPECT_THAT(out, HasSubstr("2 entries: " + kib(own) + " of their own + " + kib(shared) +
                             " shared (saves " + kib(shared) + ")"));
  EXPECT_THAT(out, HasSubstr("= " + kib(whole) + " on disk"));
  json sums = run("status --json " + store()).parsed();
  EXPECT_EQ(sums["unique_bytes"], own);
  EXPECT_EQ(sums["shared_bytes"], shared);
  EXPECT_EQ(sums["directory_bytes"], whole);
  uint64_t all = 0;
  for (const char* part : {"unique_bytes", "shared_bytes", "other_bytes", "rest_bytes"}) {
    all += sums[part].get<uint64_t>();
  }
  EXPECT_EQ(all, whole);
  const auto now = fs::file_time_type::clock::now();
  for (const int hours : {-1, 1}) {
    fs::last_write_time(path(tail_), now + std::chrono::hours(hours));
    const json newest = run("ls --json --sort written " + store()).parsed();
    EXPECT_EQ(newest[hours > 0 ? 0 : 1]["tokens"], 37);
    EXPECT_GT(newest[0]["written_ms"], newest[1]["written_ms"]);
  }
  json newest = run("ls --json --sort written " + store()).parsed();
  EXPECT_EQ(newest[0]["shared_bytes"], shared);
  EXPECT_EQ(run("ls --json --namespace nobody " + store()).parsed().size(), 0u);
  EXPECT_EQ(run("ls --json --model two-layers " + store()).parsed().size(), 2u);
  json sorted = run("ls --json --sort tokens " + store()).parsed();
  EXPECT_EQ(sorted[0]["tokens"], 37);
  EXPECT_EQ(run("ls --sort name " + store()).code, 2);
}

}  // namespace
}  // namespace kv
