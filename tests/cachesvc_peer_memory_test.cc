// Memory of a client's own: puts whose rows the daemon reads there, and clients that mean no good.
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>

#include "cachesvc/daemon/peer_memory.h"
#include "proto/memory_message.h"
#include "proto/socket_connection.h"
#include "tests/support/mapped_testing.h"
#include "tests/support/own_memory_testing.h"
#include "tests/support/proto_testing.h"

namespace kv {
namespace {

constexpr uint64_t kMemoryBytes = 4u << 20;

int memfd(uint64_t bytes) {
  const int fd = ::memfd_create("of a client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  KV_CHECK(fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes)) == 0);
  return fd;
}
void write_at(int fd, uint64_t at, std::string_view bytes) {
  KV_CHECK(::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at)) ==
           static_cast<ssize_t>(bytes.size()));
}

TEST(PeerMemory, PiecesFollowEachOther) {
  const int fd = memfd(8192);
  write_at(fd, 0, "abc..def..ghi");
  write_at(fd, 4096, "XY");
  auto memory = PeerMemory::take(fd);
  ASSERT_TRUE(memory.ok()) << memory.status().to_string();
  EXPECT_EQ((*memory)->bytes(), 8192u);
  std::string out(13, '-');
  auto to = [&](size_t n) { return std::span(reinterpret_cast<uint8_t*>(out.data()), n); };
  ASSERT_TRUE((*memory)->read({{4096, 2, 0, 1}, {0, 3, 5, 3}, {10, 2, 0, 1}}, to(13)).ok());
  EXPECT_EQ(out, "XYabcdefghigh");
  ASSERT_TRUE((*memory)->read({{6000, 2, 0, 1}}, to(2)).ok()) << "a hole";
  EXPECT_EQ(out.substr(0, 2), std::string(2, '\0'));
  const Status beyond = (*memory)->read({{8190, 4, 0, 1}}, to(4));
  EXPECT_EQ(beyond.code(), StatusCode::invalid_argument);
  EXPECT_NE(beyond.message().find("8192 bytes"), std::string::npos) << beyond.message();
}

TEST(PeerMemory, OnlyReadableMemoryIsTaken) {
  const size_t before = open_files();
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  TempDir dir;
  const std::string name = dir.store() + "-file";
  const int file = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const int memory = memfd(4096);
  const std::string path = "/proc/self/fd/" + std::to_string(memory);
  const int written_only = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_TRUE(file >= 0 && written_only >= 0);
  for (int fd : {pipe[0], pipe[1], written_only}) {
    EXPECT_EQ(PeerMemory::take(fd).status().code(), StatusCode::invalid_argument);
  }
  // A file of a tmpfs is memory too.
  if (::fcntl(file, F_GET_SEALS) < 0) {
    EXPECT_EQ(PeerMemory::take(file).status().code(), StatusCode::invalid_argument);
  } else {
    ::close(file);
  }
  ::close(memory);
  EXPECT_EQ(open_files(), before) << "what is refused is closed";
}

class PeerMemoryTest : public MappedTest {
 protected:
  // A connection of its own frames.
  std::shared_ptr<SocketConnection> bare() {
    HelloRequest hello;
    hello.ns = "test";
    hello.features = kFeatureMemory;
    auto c = SocketConnection::open(socket(), hello, std::make_shared<ReplyBodies>(0), soon());
    EXPECT_TRUE(c.ok()) << c.status().to_string();
    return *c;
  }
  static Status offer(SocketConnection& c, uint32_t number, int fd) {
    const uint64_t id = c.next_request();
    OutFrame frame = request_frame(FrameType::memory, id, 0, MemoryOffer{number});
    frame.descriptor = fd;
    return c.call(frame, id, FrameType::memory_ok, soon()).status();
  }
  std::vector<PutRequest> puts_of(Bench& bench, const std::vector<Token>& tokens) {
    auto reserved = bench.reserve(tokens);
    EXPECT_TRUE(reserved.ok()) << reserved.status().to_string();
    std::vector<PutRequest> puts;
    for (const Need& need : reserved->needs) {
      puts.push_back(make_put(bench.model, bench.opened.profile->block_tokens, tokens, need,
                              reserved->reservation));
    }
    return puts;
  }
  // What the daemon has read of files and memory; what came by sockets doesn't count.
  uint64_t bytes_read() const {
    std::ifstream io("/proc/" + std::to_string(daemon_->pid()) + "/io");
    std::string name;
    uint64_t bytes = 0;
    io >> name >> bytes;
    EXPECT_EQ(name, "rchar:");
    return bytes;
  }
  void begin_with_memory() {
    start({});
    memory_ = *OwnMemory::create(kMemoryBytes);
    SocketClientOptions options;
    options.memory = memory_;
    client_ = *SocketClient::connect(socket(), "test", options);
    bench_ = std::make_unique<Bench>(Bench::open(*client_, wide_model()));
  }

  std::shared_ptr<OwnMemory> memory_;
};

TEST_F(PeerMemoryTest, RowsAreReadWhereTheyLieAndBelongToTheClientAfterwards) {
  begin_with_memory();
  const auto tokens = random_tokens(rng_, 100);
  auto puts = puts_of(*bench_, tokens);
  const uint64_t reservation = puts[0].reservation;
  uint64_t at = 0;
  for (PutRequest& put : puts) move_rows(memory_, put, at, 64);
  uint64_t bytes = 0;
  for (const PutRequest& put : puts) bytes += put.object.payload_bytes();
  const uint64_t before = bytes_read();
  for (const Status& put : client_->put_all(puts, soon())) EXPECT_TRUE(put.ok()) << put.to_string();
  EXPECT_GE(bytes_read() - before, bytes) << "they travelled";
  std::memset(memory_->data(), 0xee, memory_->bytes());
  ASSERT_TRUE(client_->commit(reservation, Durability::accepted, soon()).ok());
  const FetchReply reply = fetched(*bench_, tokens);
  ASSERT_EQ(reply.tokens, 100u);
  bench_->expect_serves(plus_one(tokens), reply);
}

// Blocks of rows that are stored as they are: read into the place where they stay.
class KeptAsGiven : public PeerMemoryTest {
 protected:
  static constexpr uint64_t kBlockBytes = 2u << 20;
  void begin() {
    start({"--set", "codec.block_tokens=512"});
    memory_ = *OwnMemory::create(2 * kBlockBytes);
    SocketClientOptions options;
    options.memory = memory_;
    client_ = *SocketClient::connect(socket(), "test", options);
    bench_ = std::make_unique<Bench>(Bench::open(*client_, wide_model()));
    tokens_ = random_tokens(rng_, 512);
    puts_ = puts_of(*bench_, tokens_);
    ASSERT_EQ(puts_.size(), 1u);
    ASSERT_EQ(puts_[0].object.payload_bytes(), kBlockBytes);
  }
  Status put() {
    uint64_t at = 0;
    move_rows(memory_, puts_[0], at);
    return client_->put(puts_[0], soon());
  }
  void expect_served() {
    const uint64_t reservation = puts_[0].reservation;
    ASSERT_TRUE(client_->commit(reservation, Durability::accepted, soon()).ok());
    const FetchReply reply = fetched(*bench_, tokens_);
    ASSERT_EQ(reply.tokens, 512u);
    bench_->expect_serves(plus_one(tokens_), reply);
  }

  std::vector<Token> tokens_;
  std::vector<PutRequest> puts_;
};

TEST_F(KeptAsGiven, TakesNoRoomOnItsWay) {
  begin();
  ASSERT_TRUE(client_->put(puts_[0], soon()).ok());  // the rows travel
  const uint64_t travelled = stat("ram_peak_bytes");
  daemon_->kill();
  begin();
  ASSERT_TRUE(put().ok());
  EXPECT_LE(stat("ram_peak_bytes") + kBlockBytes, travelled);
  EXPECT_GE(stat("ram_stored_bytes"), kBlockBytes);
  std::memset(memory_->data(), 0xee, memory_->bytes());
  expect_served();
}

TEST_F(KeptAsGiven, PlanesInAnyOrderAreRight) {
  begin();
  std::reverse(puts_[0].object.planes.begin(), puts_[0].object.planes.end());
  ASSERT_TRUE(put().ok());
  expect_served();
}

TEST_F(KeptAsGiven, WhatIsNotFiniteIsRefusedAndGone) {
  begin();
  uint64_t at = 0;
  move_rows(memory_, puts_[0], at);
  const uint16_t infinite = 0x7c00;
  std::memcpy(memory_->data() + kBlockBytes / 2, &infinite, sizeof infinite);
  const uint64_t reserved = stat("ram_stored_bytes");
  EXPECT_EQ(client_->put(puts_[0], soon()).code(), StatusCode::invalid_argument);
  wait_for("ram_stored_bytes", reserved);
  std::memcpy(memory_->data() + kBlockBytes / 2, memory_->data(), sizeof infinite);
  EXPECT_TRUE(client_->put(puts_[0], soon()).ok()) << "may be put again";
}

TEST_F(PeerMemoryTest, AClientThatShrinksItsMemoryGetsAnError) {
  start({});
  auto c = bare();
  const int fd = memfd(1 << 20);
  ASSERT_TRUE(offer(*c, 1, fd).ok());
  ASSERT_EQ(::ftruncate(fd, 4096), 0);
  ::close(fd);
  client_ = connect();
  bench_ = std::make_unique<Bench>(Bench::open(*client_, wide_model()));
  auto puts = puts_of(*bench_, random_tokens(rng_, 16));
  const uint64_t bytes = puts[0].object.payload_bytes(), id = c->next_request();
  auto answer = c->call(put_from_frame(id, 1000, {puts[0], 1, {{0, bytes, 0, 1}}}), id,
                        FrameType::put_from_ok, soon());
  EXPECT_EQ(answer.status().code(), StatusCode::invalid_argument) << answer.status().to_string();
  EXPECT_FALSE(c->broken());
}

TEST_F(PeerMemoryTest, OffersAreCheckedAndBounded) {
  start({});
  auto c = bare();
  const int fd = memfd(4096);
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  EXPECT_EQ(offer(*c, 1, -1).code(), StatusCode::invalid_argument) << "no descriptor";
  EXPECT_EQ(offer(*c, 1, pipe[0]).code(), StatusCode::invalid_argument);
  for (uint32_t i = 1; i <= kMaxMemories; ++i) EXPECT_TRUE(offer(*c, i, fd).ok()) << i;
  EXPECT_EQ(offer(*c, 2, fd).code(), StatusCode::invalid_argument) << "there already";
  EXPECT_EQ(offer(*c, 9, fd).code(), StatusCode::resource_exhausted);
  const uint64_t id = c->next_request();
  PutFrom unknown{{1, testing::sample_object(), {}}, 9, {}};
  unknown.runs = {{0, unknown.put.object.payload_bytes(), 0, 1}};
  EXPECT_EQ(
      c->call(put_from_frame(id, 100, unknown), id, FrameType::put_from_ok, soon()).status().code(),
      StatusCode::not_found);
  PutFrom empty{{1, {}, {}}, 1, {}};
  empty.put.object = testing::sample_object();
  empty.put.object.planes.clear();
  empty.put.object.states.clear();
  const uint64_t next = c->next_request();
  EXPECT_EQ(c->call(put_from_frame(next, 100, empty), next, FrameType::put_from_ok, soon())
                .status()
                .code(),
            StatusCode::invalid_argument)
      << "no bytes";
  ASSERT_TRUE(c->send(reply_frame(FrameType::memory_ended, 0, MemoryEnded{2}), soon()).ok());
  EXPECT_TRUE(offer(*c, 9, fd).ok()) << "one has ended";
  for (int each : {fd, pipe[0], pipe[1]}) ::close(each);
}

TEST_F(PeerMemoryTest, DescriptorsThatNobodyTakesEndTheConnection) {
  start({});
  const size_t before = open_files(std::to_string(daemon_->pid()));
  auto c = bare();
  const int fd = memfd(4096);
  Status last;
  size_t sent = 0;
  for (; last.ok() && sent < kMaxWaitingDescriptors + 2; ++sent) {
    const uint64_t id = c->next_request();
    OutFrame stats = request_frame(FrameType::stats, id, 100, Empty{});
    stats.descriptor = fd;
    last = c->call(stats, id, FrameType::stats_ok, soon()).status();
  }
  EXPECT_EQ(last.code(), StatusCode::unavailable) << last.to_string();
  EXPECT_EQ(sent, kMaxWaitingDescriptors + 1);
  ::close(fd);
  const Deadline deadline = soon();
  while (open_files(std::to_string(daemon_->pid())) > before) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "a descriptor stays open";
  }
}

}  // namespace
}  // namespace kv
