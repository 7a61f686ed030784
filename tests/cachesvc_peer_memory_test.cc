// Memory of a client's own: puts whose rows the daemon reads there, fetches whose rows it writes
// there, and clients that mean no good.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include "cachesvc/daemon/peer_memory.h"
#include "proto/into.h"
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
  const MemoryRows rows(*memory, {{4096, 2, 0, 1}, {0, 3, 5, 3}, {10, 2, 0, 1}});
  ASSERT_TRUE(rows.read(0, to(13)).ok());
  const std::string all = "XYabcdefghigh";
  EXPECT_EQ(out, all);
  for (size_t at = 0; at < all.size(); ++at) {
    for (size_t n = 0; at + n <= all.size(); ++n) {
      ASSERT_TRUE(rows.read(at, to(n)).ok());
      EXPECT_EQ(out.substr(0, n), all.substr(at, n)) << at;
    }
  }
  ASSERT_TRUE((*memory)->read(6000, to(2)).ok()) << "a hole";
  EXPECT_EQ(out.substr(0, 2), std::string(2, '\0'));
  const Status beyond = MemoryRows(*memory, {{8190, 4, 0, 1}}).read(0, to(4));
  EXPECT_EQ(beyond.code(), StatusCode::invalid_argument);
  EXPECT_NE(beyond.message().find("8192 bytes"), std::string::npos) << beyond.message();
}

TEST(PeerMemory, WritesPiecesUntilItIsToStop) {
  const int fd = memfd(8192);
  write_at(fd, 0, std::string(4096, '.'));
  auto memory = PeerMemory::take(fd);
  ASSERT_TRUE(memory.ok());
  const auto bytes = [](std::string_view text) {
    return Bytes(nullptr, reinterpret_cast<const uint8_t*>(text.data()), text.size());
  };
  const std::vector<Bytes> from{bytes("ab"), {}, bytes("cdefg")};
  std::atomic<bool> stop{false};
  ASSERT_TRUE((*memory)->write({{10, 3, 5, 2}, {1, 1, 0, 1}}, from, stop).ok());
  std::string out(20, '-');
  ASSERT_EQ(::pread(fd, out.data(), out.size(), 0), 20);
  EXPECT_EQ(out, ".g........abc..def..");
  ASSERT_TRUE((*memory)->write({{0, 3, 0, 1}, {8190, 9, 0, 1}}, {from.begin(), 1}, stop).ok())
      << "pieces that stay empty need no page";
  stop = true;
  EXPECT_EQ((*memory)->write({{0, 7, 0, 1}}, from, stop).code(), StatusCode::cancelled);
}

// The flag lies in the memory that is written, so the first bytes that arrive set it.
TEST(PeerMemory, AWriteThatHasBegunStopsSoon) {
  constexpr uint64_t kBytes = 8u << 20;
  const int fd = memfd(kBytes);
  auto memory = PeerMemory::take(fd);
  ASSERT_TRUE(memory.ok());
  void* const map = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(map, MAP_FAILED);
  auto* const bytes = static_cast<uint8_t*>(map);
  std::fill_n(bytes, kBytes, uint8_t{0});
  const auto* const stop = new (bytes) std::atomic<bool>(false);
  static_assert(sizeof(*stop) == 1 && std::atomic<bool>::is_always_lock_free);
  const std::vector<uint8_t> ones(kBytes, 1);
  const std::vector<Bytes> from{Bytes(nullptr, ones.data(), ones.size())};
  EXPECT_EQ((*memory)->write({{0, kBytes, 0, 1}}, from, *stop).code(), StatusCode::cancelled);
  EXPECT_EQ(bytes[0], 1) << "it had begun";
  EXPECT_EQ(bytes[kBytes - 1], 0);
  ::munmap(map, kBytes);
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
  template <typename Reply, typename T>
  static Reply called(SocketConnection& c, FrameType type, const T& request) {
    const uint64_t id = c.next_request();
    const auto answered = static_cast<FrameType>(static_cast<int>(type) | 0x8000);
    auto answer = c.call(request_frame(type, id, 1000, request), id, answered, soon());
    EXPECT_TRUE(answer.ok()) << answer.status().to_string();
    auto reply = answer.ok() ? decode_reply<Reply>(answered, answer->body.span())
                             : Result<Reply>(answer.status());
    EXPECT_TRUE(reply.ok()) << reply.status().to_string();
    return reply.ok() ? std::move(*reply) : Reply();
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
  wait_for("ram_stored_bytes", reserved - kBlockBytes);
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
  const ModelSpec model = wide_model();
  const auto tokens = random_tokens(rng_, 17);  // a block and a tail
  const auto opened = called<OpenReply>(*c, FrameType::open,
                                        OpenRequest{model, nullptr, false, PrefillMode::exact});
  const auto reserved = called<ReserveReply>(
      *c, FrameType::reserve, ReserveRequest{opened.model, opened.realm.profile, {tokens, {}}});
  ASSERT_EQ(reserved.needs.size(), 2u);
  for (const Need& need : reserved.needs) {
    const PutRequest put = make_put(model, 16, tokens, need, reserved.reservation);
    const uint64_t bytes = put.object.payload_bytes(), id = c->next_request();
    const auto answer = c->call(put_from_frame(id, 1000, {put, 1, {{2048, bytes, 0, 1}}}), id,
                                FrameType::put_from_ok, soon());
    EXPECT_EQ(answer.status().code(), StatusCode::invalid_argument) << answer.status().to_string();
    EXPECT_NE(answer.status().message().find("4096 bytes"), std::string::npos)
        << answer.status().to_string();
  }
  EXPECT_FALSE(c->broken());
}

// Fetches whose rows are to lie in the client's memory.
class IntoMemory : public PeerMemoryTest {
 protected:
  static constexpr uint32_t kStored = 300;
  void begin() {
    begin_with_memory();
    tokens_ = random_tokens(rng_, kStored);
    ASSERT_TRUE(bench_->store(tokens_).ok());
    whole_ = fetched(*bench_, tokens_);
    ASSERT_EQ(whole_.tokens, kStored);
    bytes_ = payload_bytes_of(whole_.lease.prefix());
    std::memset(memory_->data(), 0xee, memory_->bytes());
  }
  FetchRequest request(Pieces into) const {
    FetchRequest request;
    request.model = bench_->opened.model;
    request.query.tokens = plus_one(tokens_);
    request.into = std::move(into);
    return request;
  }
  std::span<uint8_t> part(uint64_t at, uint64_t bytes) const {
    return {memory_->data() + at, bytes};
  }
  std::vector<uint8_t> expected() const {
    std::vector<uint8_t> all;
    for (const FetchedObject& o : whole_.lease.prefix().objects) {
      for (const Plane& p : o.object->planes) {
        all.insert(all.end(), p.bytes.span().begin(), p.bytes.span().end());
      }
    }
    return all;
  }
  // Bytes that the daemon has written to files and memory.
  uint64_t bytes_written() const {
    std::ifstream io("/proc/" + std::to_string(daemon_->pid()) + "/io");
    std::string name;
    uint64_t bytes = 0;
    while (io >> name >> bytes) {
      if (name == "wchar:") return bytes;
    }
    ADD_FAILURE() << "no wchar";
    return 0;
  }
  // Descriptors of clients' memories that the daemon has; those of its store come and go.
  size_t memories() const {
    const std::filesystem::path all = "/proc/" + std::to_string(daemon_->pid()) + "/fd";
    size_t count = 0;
    for (const auto& each : std::filesystem::directory_iterator(all)) {
      std::error_code gone;
      const auto name = std::filesystem::read_symlink(each, gone).string();
      count += name.find("memfd:cachesvc-client") != name.npos;
    }
    return count;
  }
  // A connection of its own frames, with the model opened: what its fetch into `fd` answers.
  Status fetch_into(int fd, std::vector<MemoryRun> runs) {
    auto c = bare();
    KV_RETURN_IF_ERROR(offer(*c, 1, fd));
    uint64_t id = c->next_request();
    KV_RETURN_IF_ERROR(
        c->call(request_frame(FrameType::open, id, 1000,
                              OpenRequest{bench_->model, nullptr, false, PrefillMode::exact}),
                id, FrameType::open_ok, soon())
            .status());
    FetchRequest asked = request({});
    asked.model = 1;
    id = c->next_request();
    const FetchInto call{1, std::move(runs), {asked, 1 << 30}};
    return c
        ->call(request_frame(FrameType::fetch_into, id, 1000, call), id, FrameType::fetch_header,
               soon())
        .status();
  }

  std::vector<Token> tokens_;
  FetchReply whole_;
  uint64_t bytes_ = 0;
};

TEST_F(IntoMemory, RowsAreWrittenWhereTheyBelong) {
  begin();
  const uint64_t before = bytes_written();
  auto reply = client_->fetch(request({part(8192, bytes_)}), soon());
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  EXPECT_GE(bytes_written() - before, bytes_) << "they travelled";
  bench_->expect_serves(plus_one(tokens_), *reply);
  const uint8_t* first = reply->lease.prefix().objects[0].object->planes[0].bytes.data();
  EXPECT_EQ(first, memory_->data() + 8192);
  EXPECT_EQ(memory_->data()[8191], 0xee);
  EXPECT_EQ(memory_->data()[8192 + bytes_], 0xee);
}

TEST_F(IntoMemory, PiecesAreFilledInTheirOrderAndNoFurther) {
  begin();
  Pieces pieces;  // pages of an engine, the last first
  const uint64_t count = bytes_ / 2000 + 2;
  for (uint64_t i = 0; i < count; ++i) pieces.push_back(part((count - i) * 3000, 2000));
  auto reply = client_->fetch(request(pieces), soon());
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  ASSERT_EQ(reply->tokens, kStored);
  const auto all = expected();
  for (uint64_t i = 0; i < count; ++i) {
    for (uint64_t j = 0; j < 2000; ++j) {
      const uint64_t at = i * 2000 + j;
      ASSERT_EQ(pieces[i][j], at < all.size() ? all[at] : 0xee) << at;
    }
    ASSERT_EQ(pieces[i].data()[2000], 0xee) << "behind a piece";
  }
}

TEST_F(IntoMemory, TooShortOrNotThereIsRefusedAndWritesNothing) {
  begin();
  EXPECT_EQ(client_->fetch(request({part(0, bytes_ - 1)}), soon()).status().code(),
            StatusCode::resource_exhausted);
  EXPECT_EQ(*std::min_element(memory_->data(), memory_->data() + bytes_), 0xee);
  const int fd = memfd(kMemoryBytes);
  const std::vector<uint8_t> touched(bytes_, 0xee);
  write_at(fd, 0, {reinterpret_cast<const char*>(touched.data()), touched.size()});
  EXPECT_TRUE(fetch_into(fd, {{0, bytes_, 0, 1}}).ok());
  struct stat before {
  }, after{};
  ASSERT_EQ(::fstat(fd, &before), 0);
  EXPECT_EQ(fetch_into(fd, {{kMemoryBytes - bytes_, bytes_, 0, 1}}).code(),
            StatusCode::invalid_argument)
      << "pages that the client has not touched";
  EXPECT_EQ(fetch_into(fd, {{bytes_ / 2, bytes_, 0, 1}}).code(), StatusCode::invalid_argument);
  EXPECT_EQ(fetch_into(fd, {{kMemoryBytes - 100, bytes_, 0, 1}}).code(),
            StatusCode::invalid_argument)
      << "beyond its end";
  ASSERT_EQ(::fstat(fd, &after), 0);
  EXPECT_EQ(before.st_blocks, after.st_blocks) << "the service brought pages";
  ASSERT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
  EXPECT_EQ(fetch_into(fd, {{0, bytes_, 0, 1}}).code(), StatusCode::invalid_argument);
  const std::string path = "/proc/self/fd/" + std::to_string(memory_->fd());
  const int read_only = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(fetch_into(read_only, {{0, bytes_, 0, 1}}).code(), StatusCode::invalid_argument);
  EXPECT_EQ(fetched(*bench_, tokens_).tokens, kStored) << "the service goes on";
  ::close(read_only);
  ::close(fd);
}

TEST_F(IntoMemory, AClientThatShrinksItsMemoryGetsAnErrorAndNobodyElseDoes) {
  begin();
  const int fd = memfd(kMemoryBytes);
  const std::vector<uint8_t> touched(bytes_, 1);
  write_at(fd, 0, {reinterpret_cast<const char*>(touched.data()), touched.size()});
  std::atomic<bool> stop{false};
  std::thread shrinks([&] {
    while (!stop) {
      KV_CHECK(::ftruncate(fd, 4096) == 0 && ::ftruncate(fd, kMemoryBytes) == 0);
      write_at(fd, 0, {reinterpret_cast<const char*>(touched.data()), touched.size()});
    }
  });
  for (int i = 0; i < 50; ++i) {
    const Status status = fetch_into(fd, {{0, bytes_, 0, 1}});
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::invalid_argument) << status.to_string();
  }
  stop = true;
  shrinks.join();
  ::close(fd);
  EXPECT_EQ(fetched(*bench_, tokens_).tokens, kStored);
}

TEST_F(IntoMemory, RowsElsewhereAreCopiedThere) {
  begin();
  std::vector<uint8_t> there(bytes_, 0xee);
  auto reply = client_->fetch(request({std::span(there)}), soon());
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  bench_->expect_serves(plus_one(tokens_), *reply);
  EXPECT_EQ(there, expected());
}

// Nothing of a client that goes amid its fetches stays: no lease, no descriptor.
TEST_F(IntoMemory, AClientThatGoesMeanwhileLeavesNothing) {
  begin();
  whole_ = {};
  const size_t before = memories();
  for (int i = 0; i < 20; ++i) {
    auto c = bare();
    ASSERT_TRUE(offer(*c, 1, memory_->fd()).ok());
    uint64_t id = c->next_request();
    ASSERT_TRUE(
        c->call(request_frame(FrameType::open, id, 1000,
                              OpenRequest{bench_->model, nullptr, false, PrefillMode::exact}),
                id, FrameType::open_ok, soon())
            .ok());
    FetchRequest asked = request({});
    asked.model = 1;
    asked.form = FetchForm::f32;
    const FetchInto call{1, {{0, kMemoryBytes, 0, 1}}, {asked, 1 << 30}};
    ASSERT_TRUE(c->send(request_frame(FrameType::fetch_into, ++id, 1000, call), soon()).ok());
  }
  wait_for("ram_reply_bytes", 0);
  const Deadline deadline = soon();
  while (memories() > before) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  EXPECT_TRUE(client_->erase(bench_->opened.model, {}, soon()).ok());
  wait_for("ram_stored_bytes", 0);
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
