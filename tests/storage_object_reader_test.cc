// Reads of objects: whole, verified, and where the caller wants them, whatever their length and
// whether the page cache has them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <memory>

#include "storage/read_buffers.h"
#include "storage/ssd_tier.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

using namespace kv::testing;

// Lengths about those of a direct read's unit and of one request; from the page cache and past it;
// plain and sealed.
TEST(SsdTier, PayloadsComeWholeToWhereTheyAreTold) {
  for (bool sealed : {false, true}) {
    TempDir dir;
    std::mt19937_64 rng(18);
    SsdOptions options = small_options();
    if (sealed) options.key = sample_key(1);
    auto tier = open_tier(dir, options);
    for (uint64_t bytes : {0u, 1u, 4096u, (4u << 20) - 700u, 4u << 20, (9u << 20) + 1u}) {
      SCOPED_TRACE(std::to_string(bytes) + (sealed ? " sealed" : ""));
      Object o = sample_snapshot(rng, sample_block(rng), 3);
      o.states = {{0, 0, random_payload(rng, bytes)}, {1, 0, random_payload(rng, 77)}};
      stamp(o, sample_realm());
      FileImage image = raw_image(o);
      put_all(*tier, {image}, Durability::durable);
      for (bool cold : {true, false}) {
        Fd fd = ::open((dir.store() + "/" + relative_path(o.name)).c_str(), O_RDONLY | O_CLOEXEC);
        ASSERT_EQ(::posix_fadvise(fd, 0, 0, cold ? POSIX_FADV_DONTNEED : POSIX_FADV_WILLNEED), 0);
        ::close(fd);
        std::vector<uint8_t> memory(bytes + 77);
        auto read = tier->read(o.name, [&](const HeaderView& head) -> Result<std::span<uint8_t>> {
          EXPECT_EQ(head.header.name, o.name);
          return std::span(memory);
        });
        ASSERT_TRUE(read.ok()) << read.status().to_string();
        EXPECT_EQ(read->pieces[1].bytes.data(), memory.data() + bytes);
        expect_same(image, *read);
        auto own = tier->read(o.name);
        ASSERT_TRUE(own.ok()) << own.status().to_string();
        expect_same(image, *own);
      }
      auto full = tier->read(o.name, [](const HeaderView&) {
        return Result<std::span<uint8_t>>(Status(StatusCode::busy, "no room"));
      });
      EXPECT_EQ(full.status().code(), StatusCode::busy);
      EXPECT_TRUE(tier->read(o.name).ok()) << "and the file stays";
    }
  }
}

// Direct reads must be aligned: one that is not gets its bytes all the same.
TEST(Files, AStreamAlsoReadsWhatIsNotAligned) {
  TempDir dir;
  std::string path = dir.path() + "/file";
  std::mt19937_64 rng(19);
  Bytes bytes = random_payload(rng, 10'000);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
  Fd written = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::fdatasync(written), 0);
  ASSERT_EQ(::posix_fadvise(written, 0, 0, POSIX_FADV_DONTNEED), 0);
  ::close(written);
  auto fd = posix_files().open_stream(path);
  ASSERT_TRUE(fd.ok()) << fd.status().to_string();
  FdGuard guard(posix_files(), *fd);
  std::vector<uint8_t> read(5'001);
  Status status = read_all(posix_files(), *fd, read, 4'097);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(Bytes::owning(read), bytes.slice(4'097, 5'001));
}

// Every page of it is there before anybody reads through it; of what is not made ready none is.
TEST(ReadBuffers, WhatIsMadeReadyIsThere) {
  auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  auto pages_there = [page](ReadBuffers& buffers) {
    std::vector<std::unique_ptr<ReadBuffers::Use>> held;
    size_t there = 0;
    for (size_t i = 0; i < kMostReadBuffers; ++i) {
      held.push_back(std::make_unique<ReadBuffers::Use>(buffers));
      std::vector<unsigned char> pages(kReadBufferBytes / page);
      EXPECT_EQ(::mincore(held.back()->span().data(), kReadBufferBytes, pages.data()), 0);
      for (unsigned char p : pages) there += p & 1;
    }
    return there;
  };
  ReadBuffers ready, fresh;
  ready.make_ready();
  ready.make_ready();  // all are there
  EXPECT_EQ(pages_there(ready), kMostReadBuffers * kReadBufferBytes / page);
  EXPECT_EQ(pages_there(fresh), 0u);
}

// Of a file of several requests, the memory for its payload told by the caller.
TEST(SsdTier, DamageInAnyRequestIsCorruption) {
  TempDir dir;
  std::mt19937_64 rng(20);
  auto tier = open_tier(dir, small_options());
  Object o = sample_snapshot(rng, sample_block(rng), 3);
  o.states = {{0, 0, random_payload(rng, 9 << 20)}};
  stamp(o, sample_realm());
  std::vector<uint8_t> memory(9 << 20);
  auto read = [&] {
    return tier
        ->read(o.name,
               [&](const HeaderView&) -> Result<std::span<uint8_t>> { return std::span(memory); })
        .status();
  };
  std::string path = dir.store() + "/" + relative_path(o.name);
  for (uint64_t at : {uint64_t{4096}, uint64_t{5} << 20, uint64_t{9} << 20}) {
    put_all(*tier, {raw_image(o)}, Durability::durable);
    ASSERT_TRUE(read().ok());
    Fd fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    uint8_t byte = 0;
    ASSERT_EQ(::pread(fd, &byte, 1, static_cast<off_t>(at)), 1);
    byte ^= 1;
    ASSERT_EQ(::pwrite(fd, &byte, 1, static_cast<off_t>(at)), 1);
    ::close(fd);
    EXPECT_EQ(read().code(), StatusCode::corruption) << at;
    EXPECT_EQ(read().code(), StatusCode::not_found) << at;
  }
}

}  // namespace
}  // namespace kv
