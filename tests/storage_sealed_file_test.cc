// Sealed files, rows and keys: what is read is what was sealed, by this key, under this
// name, and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/core_names.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <sys/stat.h>

#include <fstream>

#include "storage/file_reader.h"
#include "storage/object_reader.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

using namespace kv::testing;
namespace fs = std::filesystem;

std::vector<uint8_t> slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void spill(const std::string& path, std::span<const uint8_t> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
}

// All of a sealed file, as FORMAT.md has it.
std::vector<uint8_t> seal(const SealKey& key, const std::string& name, const EncodedFile& file,
                          const SealSalt& salt) {
  FileSealer sealer;
  uint64_t payload = file.bytes() - file.head.size();
  EXPECT_TRUE(sealer.start(key, name, payload, file.head, salt).ok());
  std::vector<uint8_t> out(sealer.front().size());
  for (const auto& piece : file.payload) {
    size_t at = out.size();
    out.resize(at + piece.size());
    EXPECT_TRUE(sealer.seal(piece.span(), out.data() + at).ok());
  }
  std::copy(sealer.front().begin(), sealer.front().end(), out.begin());
  EXPECT_EQ(out.size(), sealed_file_bytes(file.head.size(), payload));
  return out;
}

// RFC 5869 as libcrypto's own HKDF computes it.
std::vector<uint8_t> hkdf(std::span<const uint8_t> secret, std::span<const uint8_t> salt,
                          const std::string& info) {
  std::vector<uint8_t> out(32);
  EVP_KDF* kdf = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  EVP_KDF_CTX* context = EVP_KDF_CTX_new(kdf);
  auto bytes = [](std::span<const uint8_t> v) { return const_cast<uint8_t*>(v.data()); };
  char digest[] = "SHA256";
  OSSL_PARAM params[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, bytes(secret), secret.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, const_cast<char*>(info.data()),
                                        info.size()),
      salt.empty()
          ? OSSL_PARAM_construct_end()
          : OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, bytes(salt), salt.size()),
      OSSL_PARAM_construct_end()};
  EXPECT_EQ(EVP_KDF_derive(context, out.data(), out.size(), params), 1);
  EVP_KDF_CTX_free(context);
  EVP_KDF_free(kdf);
  return out;
}

TEST(SealKey, SubkeysAndIdAreHkdfOfTheKey) {
  std::array<uint8_t, kSealKeyBytes> secret;
  secret.fill(0x5a);
  auto key = *SealKey::create(secret);
  std::vector<uint8_t> salt(32, 3);
  Subkey subkey;
  ASSERT_TRUE(key->derive(salt, "cachesvc file", subkey).ok());
  EXPECT_THAT(subkey.bytes, ::testing::ElementsAreArray(hkdf(secret, salt, "cachesvc file")));
  auto id = hkdf(secret, {}, "cachesvc key id");
  EXPECT_TRUE(std::equal(key->id().begin(), key->id().end(), id.begin()));
  EXPECT_NE((*SealKey::make_ephemeral())->id(), (*SealKey::make_ephemeral())->id());
}

TEST(SealKey, AKeyFileIsPrivateAndOf32BytesOr64HexDigits) {
  TempDir dir;
  std::string path = dir.path() + "/key";
  auto write = [&](const std::string& text, mode_t mode) {
    fs::remove(path);
    std::ofstream(path) << text;
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
  };
  std::string raw(32, '\x5a'), hex;
  for (int i = 0; i < 32; ++i) hex += "5A";
  write(raw, 0600);
  auto key = read_key_file(path);
  ASSERT_TRUE(key.ok()) << key.status().to_string();
  EXPECT_EQ((*key)->id(), sample_key(0x5a)->id());
  EXPECT_FALSE((*key)->ephemeral());
  for (const std::string& text : {hex, hex + "\n"}) {
    write(text, 0400);
    ASSERT_TRUE(read_key_file(path).ok());
    EXPECT_EQ((*read_key_file(path))->id(), (*key)->id());
  }
  for (const std::string& text : {std::string(), raw.substr(1), raw + "x", hex.substr(1), hex + "5",
                                  hex + "\n\n", hex.substr(1) + "g", std::string(1 << 16, 'a')}) {
    write(text, 0600);
    EXPECT_EQ(read_key_file(path).status().code(), StatusCode::invalid_argument) << text.size();
  }
  for (mode_t mode : {0640, 0604, 0620, 0602, 0610, 0601}) {
    write(raw, mode);
    EXPECT_EQ(read_key_file(path).status().code(), StatusCode::invalid_argument) << mode;
  }
  EXPECT_EQ(read_key_file(dir.path()).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(read_key_file("/dev/null").status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(read_key_file(dir.path() + "/none").status().code(), StatusCode::io_error);
  if (::geteuid() == 0) {
    write(raw, 0600);
    ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
    EXPECT_EQ(read_key_file(path).status().code(), StatusCode::invalid_argument)
        << "another user's";
  }
  EXPECT_EQ(*seal_key_of(""), nullptr);
  EXPECT_TRUE((*seal_key_of("ephemeral"))->ephemeral());
}

// A file in a folder, and ways to look at it.
class SealedFile : public ::testing::Test {
 protected:
  void make(const FileImage& image) {
    image_ = image;
    name_ = image.header.name;
    path_ = dir_.path() + "/" + file_name(name_);
    SealSalt salt;
    salt.fill(0x77);
    bytes_ = seal(*key_, file_name(name_), *encode_file(image), salt);
    spill(path_, bytes_);
  }
  StatusCode read(const std::string& path) {
    auto image = read_object(posix_files(), buffers_, path, name_, key_.get());
    if (image.ok()) expect_same(image_, *image);
    return image.status().code();
  }
  StatusCode head(const std::string& path) {
    return read_head(posix_files(), path, key_.get()).status().code();
  }
  TempDir dir_{true};
  ReadBuffers buffers_;
  std::shared_ptr<const SealKey> key_ = sample_key(1);
  FileImage image_;
  ObjectName name_;
  std::string path_;
  std::vector<uint8_t> bytes_;
};

TEST_F(SealedFile, EverySizeOfPayloadComesBack) {
  std::mt19937_64 rng(61);
  for (size_t size : {0ul, 1ul, kSealedChunkBytes - 1, kSealedChunkBytes, kSealedChunkBytes + 1,
                      3 * kSealedChunkBytes, 9 * kSealedChunkBytes + 5}) {
    Object o = sample_block(rng, {}, 0, 4, 2);
    o.planes.clear();
    o.states = {{0, 0, random_payload(rng, size / 3)},
                {1, 0, random_payload(rng, size - size / 3)}};
    stamp(o, sample_realm());
    make(raw_image(o));
    EXPECT_EQ(read(path_), StatusCode::ok) << size;
    auto view = read_head(posix_files(), path_, key_.get());
    ASSERT_TRUE(view.ok()) << view.status().to_string();
    EXPECT_EQ(view->header.tokens, o.tokens);
    EXPECT_EQ(view->unpacked_bytes, size);
  }
}

TEST_F(SealedFile, EveryBitFlippedAndEveryOtherLengthIsAMiss) {
  std::mt19937_64 rng(62);
  make(raw_image(sample_block(rng, {}, 0, 4, 2)));
  ASSERT_EQ(read(path_), StatusCode::ok);
  size_t head_end = kEnvelopeBytes + 2 * kSealTagBytes + encode_file(image_)->head.size();
  for (size_t bit = 0; bit < bytes_.size() * 8; ++bit) {
    auto bad = bytes_;
    bad[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    spill(path_, bad);
    StatusCode code = read(path_);
    // Another version, cipher or key is told as such; all else is damage.
    size_t at = bit / 8;
    bool other = at == 8 || at == 9 || at == 10 || (at >= 24 && at < 40);
    ASSERT_EQ(code, other ? StatusCode::unsupported : StatusCode::corruption) << "bit " << bit;
    bool in_front = at < kEnvelopeBytes + kSealTagBytes;  // then come the tags of the payload
    if (in_front || (at >= head_end - encode_file(image_)->head.size() && at < head_end)) {
      ASSERT_NE(head(path_), StatusCode::ok) << "bit " << bit;
    }
  }
  for (size_t size = 0; size <= bytes_.size() + 40; ++size) {
    if (size == bytes_.size()) continue;
    auto bad = bytes_;
    bad.resize(size);
    spill(path_, bad);
    ASSERT_EQ(read(path_), StatusCode::corruption) << size;
    ASSERT_EQ(head(path_), StatusCode::corruption) << size;
  }
}

// A writer of the directory without the key: nothing that it can put together opens.
TEST_F(SealedFile, UnderAnotherNameOrWithOthersPartsIsAMiss) {
  std::mt19937_64 rng(63);
  Object o = sample_block(rng, {}, 0, 4, 2);
  o.states = {{0, 0, random_payload(rng, 2 * kSealedChunkBytes + 100)}};
  make(raw_image(o));
  ASSERT_EQ(read(path_), StatusCode::ok);
  std::string copy = dir_.path() + "/" + std::string(64, '0') + ".block";
  fs::copy_file(path_, copy);
  EXPECT_EQ(read(copy), StatusCode::corruption) << "another name";
  auto fails = [&](std::vector<uint8_t> bad, const char* what) {
    spill(path_, bad);
    EXPECT_EQ(read(path_), StatusCode::corruption) << what;
  };
  auto bad = bytes_;
  constexpr long kTags = kEnvelopeBytes + kSealTagBytes;  // of the payload's three chunks
  long payload = kTags + 48 + static_cast<long>(encode_file(image_)->head.size());
  constexpr long kChunk = kSealedChunkBytes;
  std::swap_ranges(bad.begin() + payload, bad.begin() + payload + kChunk,
                   bad.begin() + payload + kChunk);
  std::swap_ranges(bad.begin() + kTags, bad.begin() + kTags + 16, bad.begin() + kTags + 16);
  fails(bad, "two chunks and their tags swapped");
  // The last chunk cut off, the envelope made to agree.
  bad = bytes_;
  bad.resize(static_cast<size_t>(payload + 2 * kChunk));
  bad.erase(bad.begin() + kTags + 32, bad.begin() + kTags + 48);
  uint64_t shorter = 2 * kSealedChunkBytes;
  std::memcpy(bad.data() + 16, &shorter, sizeof(shorter));
  fails(bad, "cut at a chunk");
  SealSalt salt;
  salt.fill(0x78);
  auto other = seal(*key_, file_name(name_), *encode_file(image_), salt);
  bad = bytes_;
  std::copy_n(other.begin() + kTags, 48, bad.begin() + kTags);
  std::copy(other.begin() + payload, other.end(), bad.begin() + payload);
  fails(bad, "the payload of another writing");
}

TEST_F(SealedFile, AnotherKeyIsToldFromDamage) {
  std::mt19937_64 rng(64);
  make(raw_image(sample_block(rng, {}, 0, 4, 2)));
  auto other = sample_key(2);
  for (const SealKey* key : {other.get(), static_cast<const SealKey*>(nullptr)}) {
    auto got = read_object(posix_files(), buffers_, path_, name_, key);
    EXPECT_EQ(got.status().code(), StatusCode::unsupported);
    EXPECT_THAT(got.status().message(), ::testing::HasSubstr(to_hex(key_->id())));
    ASSERT_TRUE(sealed_by_other(posix_files(), path_, key));
    EXPECT_EQ(sealed_by_other(posix_files(), path_, key)->key_id, key_->id());
  }
  EXPECT_FALSE(sealed_by_other(posix_files(), path_, key_.get()));
  bytes_.resize(100);  // whose key it was still shows, and that nobody else may judge it
  spill(path_, bytes_);
  EXPECT_EQ(read_object(posix_files(), buffers_, path_, name_, nullptr).status().code(),
            StatusCode::unsupported);
  EXPECT_EQ(read(path_), StatusCode::corruption);
}

// Byte for byte, with a fixed key and salt: a change here needs a new version. KV_WRITE_GOLDEN=1
// writes it. A program that knows no seals sees a version that it doesn't read.
TEST_F(SealedFile, GoldenFile) {
  std::mt19937_64 rng(99);
  make(raw_image(sample_block(rng, {}, 0, 4, 2)));
  std::string path = std::string(KV_GOLDEN_DIR) + "/sealed.bin";
  if (std::getenv("KV_WRITE_GOLDEN") != nullptr) spill(path, bytes_);
  EXPECT_EQ(slurp(path), bytes_);
  SealSalt salt;
  salt.fill(0x77);
  auto corpus = seal(*key_, "golden", *encode_file(image_), salt);
  path = std::string(KV_CORPUS_DIR) + "/sealed/sample.bin";
  if (std::getenv("KV_WRITE_GOLDEN") != nullptr) spill(path, corpus);
  EXPECT_EQ(slurp(path), corpus) << "what tests/fuzz/sealed_file.cc starts from";
  EXPECT_EQ(decode_prefix(bytes_, bytes_.size()).status().code(), StatusCode::unsupported);
  bytes_[8] = 3;
  spill(path_, bytes_);
  EXPECT_EQ(read(path_), StatusCode::unsupported) << "a version after this one";
}

// What is encrypted is the same each time: only the nonce or the key can make it another text.
TEST(SealedRows, NoTwoHaveANonceInCommon) {
  std::mt19937_64 rng(66);
  auto key = sample_key(1);
  Object o = sample_block(rng), got;
  got.name = o.name;
  std::set<std::vector<uint8_t>> salts, texts;
  for (int opening : {1, 2}) {
    SealedRows rows(*key);
    for (int i = 0; i < 3; ++i) {
      auto row = *rows.seal("a.block", o);
      ASSERT_TRUE(rows.open("a.block", row, got).ok()) << i;
      EXPECT_EQ(got.tokens, o.tokens);
      salts.emplace(row.begin(), row.begin() + 32);
      texts.emplace(row.begin() + 40, row.end());
    }
    EXPECT_EQ(salts.size(), static_cast<size_t>(opening)) << "a new salt at each opening, no more";
  }
  EXPECT_EQ(texts.size(), 6u);
}

TEST(SealedRows, OpenOnlyUnderTheirNameAndKey) {
  std::mt19937_64 rng(65);
  auto key = sample_key(1);
  Object o = sample_block(rng);
  o.extras = {{3, {9, 8, 7}}, {5, {}}};
  stamp(o, sample_realm());
  auto other_key = sample_key(2);  // SealedRows keep a reference
  SealedRows rows(*key), others(*other_key);
  auto sealed = *rows.seal("a.block", o);
  Object got;
  got.name = o.name;
  ASSERT_TRUE(rows.open("a.block", sealed, got).ok());
  EXPECT_EQ(got.tokens, o.tokens);
  EXPECT_EQ(got.extras, o.extras);
  EXPECT_EQ(got.ns, o.ns);
  EXPECT_TRUE(id_matches(got));
  EXPECT_FALSE(rows.open("b.block", sealed, got).ok());
  EXPECT_FALSE(others.open("a.block", sealed, got).ok());
  for (size_t bit = 0; bit < sealed.size() * 8; ++bit) {
    auto bad = sealed;
    bad[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    ASSERT_FALSE(rows.open("a.block", bad, got).ok()) << bit;
  }
  for (size_t size = 0; size < sealed.size(); ++size) {
    ASSERT_FALSE(rows.open("a.block", std::span(sealed).first(size), got).ok()) << size;
  }
  EXPECT_TRUE(rows.open("a.block", sealed, got).ok());
}

}  // namespace
}  // namespace kv
