// Object and record files: round trips, and no damage that passes. Format: storage/FORMAT.md.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "storage/block_file.h"
#include "storage/file_frame.h"
#include "storage/record_file.h"
#include "tests/support/storage_decode_file.h"
#include "tests/support/storage_testing.h"
#include "tests/support/transform_profile.h"

namespace kv {
namespace {

using namespace kv::testing;

std::vector<uint8_t> bytes_of(const FileImage& image) {
  auto file = encode_file(image);
  EXPECT_TRUE(file.ok()) << file.status().to_string();
  return file.ok() ? file->flatten() : std::vector<uint8_t>{};
}

TEST(BlockFile, EveryKindRoundTrips) {
  std::mt19937_64 rng(1);
  Object block = sample_block(rng);
  block.extras = {{3, {9, 8, 7}}, {5, {}}};
  stamp(block, sample_realm());
  Object tail = sample_block(rng, block.name.id, 16, 5);
  tail.name.kind = ObjectKind::tail;
  stamp(tail, sample_realm());
  for (const Object& o : {block, tail, sample_supplement(rng, block, 2, 4, 16),
                          sample_supplement(rng, tail, 0, 16, 21), sample_snapshot(rng, block, 0),
                          sample_snapshot(rng, block, 3)}) {
    FileImage image = raw_image(o);
    auto decoded = decode_file(Bytes::owning(bytes_of(image)));
    ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
    expect_same(image, *decoded);
    auto object = to_object(*decoded, [](const Piece&) { return Result<Bytes>(Bytes()); });
    ASSERT_TRUE(object.ok());
    EXPECT_EQ(object->planes, o.planes);
    EXPECT_EQ(object->states, o.states);
  }
}

TEST(BlockFile, PackedPiecesKeepBothSizes) {
  std::mt19937_64 rng(2);
  Object block = sample_block(rng);
  FileImage image = raw_image(block);
  Bytes plain = image.pieces[1].bytes;
  image.pieces[1] = {Packing::zstd, plain.size(), random_payload(rng, plain.size() / 2)};
  auto decoded = decode_file(Bytes::owning(bytes_of(image)));
  ASSERT_TRUE(decoded.ok());
  expect_same(image, *decoded);
  size_t calls = 0;
  auto object = to_object(*decoded, [&](const Piece& piece) -> Result<Bytes> {
    ++calls;
    EXPECT_TRUE(piece.bytes == image.pieces[1].bytes);
    return plain;
  });
  ASSERT_TRUE(object.ok());
  EXPECT_EQ(calls, 1u);
  EXPECT_EQ(object->planes, block.planes);
  auto wrong = to_object(*decoded, [&](const Piece&) { return Result<Bytes>(plain.slice(0, 1)); });
  EXPECT_EQ(wrong.status().code(), StatusCode::corruption);
}

// An earlier program says "another version" of such a file and leaves it; without split pieces it
// reads all that this one writes.
TEST(BlockFile, OnlyASplitPieceMakesTheNextVersion) {
  std::mt19937_64 rng(7);
  FileImage image = raw_image(sample_block(rng));
  const size_t size = image.pieces[1].bytes.size();
  image.pieces[1] = {Packing::zstd, size, random_payload(rng, size / 2)};
  EXPECT_EQ(bytes_of(image)[8], kFileVersion);
  image.pieces[1].packing = Packing::split;
  auto bytes = bytes_of(image);
  EXPECT_EQ(bytes[8], kSplitVersion);
  auto decoded = decode_file(Bytes::copy_of(bytes));
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  expect_same(image, *decoded);
  auto head = decode_head(bytes, bytes.size());
  ASSERT_TRUE(head.ok()) << head.status().to_string();
  EXPECT_EQ(head->pieces[1].packing, Packing::split);

  // Right checksums around what this version has no place for.
  auto rewritten = [&](uint16_t version, FileKind kind, uint8_t packing) {
    EncodedFile file = *encode_file(image);
    std::vector<uint8_t> header(file.head.begin() + kPrefixBytes, file.head.end());
    ByteReader in(header);
    EXPECT_TRUE(decode_header(in).ok());
    header[header.size() - in.left() + 4] = packing;  // of the first piece
    return frame_file(kind, header, std::move(file.payload), version)->flatten();
  };
  auto code = [](std::vector<uint8_t> file) {
    return decode_file(Bytes::owning(std::move(file))).status().code();
  };
  EXPECT_EQ(code(rewritten(kSplitVersion, FileKind::block, 0)), StatusCode::ok);
  EXPECT_EQ(code(rewritten(kSplitVersion, FileKind::block, 3)), StatusCode::corruption);
  EXPECT_EQ(code(rewritten(kFileVersion, FileKind::block, 0)), StatusCode::corruption);
  EXPECT_EQ(code(rewritten(kFileVersion + 2, FileKind::block, 0)), StatusCode::unsupported);
  EXPECT_EQ(code(rewritten(kSplitVersion, FileKind::profile, 0)), StatusCode::corruption);
}

TEST(BlockFile, StreamsMakeAVersionOfTheirOwn) {
  std::mt19937_64 rng(8);
  Object block = sample_block(rng);
  const FileImage plain = raw_image(block);
  Plane& p = block.planes[0];
  p.bits = 0;
  p.runs = {{RunForm::stream, p.rows(), 33, 0, p.rows()}};
  p.bytes = random_payload(rng, 33);
  FileImage image = raw_image(block);
  const size_t size = image.pieces[1].bytes.size();
  for (Packing packing : {Packing::raw, Packing::split}) {
    if (packing != Packing::raw) image.pieces[1] = {packing, size, random_payload(rng, size / 2)};
    const auto bytes = bytes_of(image);
    EXPECT_EQ(bytes[8], kStreamVersion);
    auto decoded = decode_file(Bytes::copy_of(bytes));
    ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
    expect_same(image, *decoded);
    EXPECT_EQ(decoded->header.planes[0].runs, p.runs);
  }
  auto as_version = [](const FileImage& of, uint16_t version) {
    EncodedFile file = *encode_file(of);
    const std::vector<uint8_t> header(file.head.begin() + kPrefixBytes, file.head.end());
    auto framed = frame_file(FileKind::block, header, std::move(file.payload), version);
    return decode_file(Bytes::owning(framed->flatten())).status().code();
  };
  EXPECT_EQ(as_version(image, kSplitVersion), StatusCode::corruption);
  EXPECT_EQ(as_version(image, kStreamVersion), StatusCode::ok);
  EXPECT_EQ(as_version(plain, kStreamVersion), StatusCode::corruption);

  ModelSpec model{"m", Id{{1}}, {{{PartSpec{}}}}};
  model.layers[0].parts[0].heads = 1;
  model.layers[0].parts[0].k_dim = model.layers[0].parts[0].v_dim = 8;
  Profile base;
  base.parts = {{PartCoding{}}};
  const Profile profile = with_transforms(base, model);
  const auto file = encode_profile_file(profile)->flatten();
  EXPECT_EQ(file[8], kStreamVersion);
  auto read = decode_profile_file(Bytes::copy_of(file));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(*read, profile);
  EXPECT_EQ((*encode_profile_file(base)).flatten()[8], kFileVersion);
}

TEST(BlockFile, EncodingRefusesWhatDecodingWould) {
  std::mt19937_64 rng(3);
  FileImage good = raw_image(sample_block(rng));
  auto refused = [](FileImage image) { return encode_file(image).status().code(); };
  FileImage image = good;
  image.header.tokens[0] ^= 1;
  EXPECT_EQ(refused(image), StatusCode::invalid_argument) << "id";
  image = good;
  image.pieces.pop_back();
  EXPECT_EQ(refused(image), StatusCode::invalid_argument) << "piece count";
  image = good;
  image.pieces[0].bytes = image.pieces[0].bytes.slice(0, 3);
  EXPECT_EQ(refused(image), StatusCode::invalid_argument) << "raw but short";
  image = good;
  image.pieces[0].unpacked_bytes += 1;
  EXPECT_EQ(refused(image), StatusCode::invalid_argument) << "unpacked size";
  image = good;
  image.header.name.end_row = 4;
  EXPECT_EQ(refused(image), StatusCode::invalid_argument) << "rows of a block";
  image = good;
  image.header.planes[0].runs = {{RunForm::exact, 1u << 22}};
  image.header.planes[0].heads = 1024;
  EXPECT_EQ(refused(image), StatusCode::invalid_argument) << "plane over the object limit";
}

// Damage to any byte or length is told, with the decoder that reads everything and with the one
// that reads heads only (which can't see the payload).
TEST(BlockFile, EveryTruncationAndEveryFlippedBitIsTold) {
  std::mt19937_64 rng(4);
  Object block = sample_block(rng, {}, 0, 4, 2);
  std::vector<uint8_t> good = bytes_of(raw_image(block));
  for (size_t length = 0; length < good.size(); ++length) {
    std::vector<uint8_t> cut(good.begin(), good.begin() + static_cast<long>(length));
    EXPECT_EQ(decode_file(Bytes::copy_of(cut)).status().code(), StatusCode::corruption) << length;
    EXPECT_EQ(decode_head(cut, cut.size()).status().code(), StatusCode::corruption) << length;
  }
  size_t head_bytes = encode_file(raw_image(block))->head.size();
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::vector<uint8_t> bad = good;
    bad[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    bool version = bit / 8 == 8 || bit / 8 == 9;
    StatusCode expected = version ? StatusCode::unsupported : StatusCode::corruption;
    EXPECT_EQ(decode_file(Bytes::copy_of(bad)).status().code(), expected) << "bit " << bit;
    bool file_hash = bit / 8 >= 40 && bit / 8 < 56;
    if (bit / 8 < head_bytes && !file_hash) {
      EXPECT_EQ(decode_head(bad, bad.size()).status().code(), expected) << "bit " << bit;
    }
  }
  good.push_back(0);
  EXPECT_EQ(decode_file(Bytes::copy_of(good)).status().code(), StatusCode::corruption);
}

// Headers that are well framed and lie: the checksum is right, so the fields must be checked too.
TEST(BlockFile, RandomHeadersUnderARightChecksumNeverCrash) {
  uint64_t seed = 20240607;
  std::mt19937_64 rng(seed);
  FileImage image = raw_image(sample_block(rng, {}, 0, 4, 2));
  EncodedFile file = *encode_file(image);
  std::vector<uint8_t> header(file.head.begin() + kPrefixBytes, file.head.end());
  size_t accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<uint8_t> bad = header;
    for (uint64_t flips = 1 + rng() % 3; flips > 0; --flips) {
      bad[rng() % bad.size()] = rng() % 2 == 0 ? 0xff : static_cast<uint8_t>(rng());
    }
    if (bad == header) continue;
    std::vector<uint8_t> whole = file.flatten();
    std::copy(bad.begin(), bad.end(), whole.begin() + kPrefixBytes);
    Xxh128Stream head_hash;
    head_hash.update(std::span(whole).first(24));
    head_hash.update(bad);
    Xxh128 h = head_hash.digest();
    std::memcpy(whole.data() + 24, &h, 16);
    Xxh128Stream file_hash;
    file_hash.update(std::span(whole).first(40));
    file_hash.update(std::span(whole).subspan(56));
    h = file_hash.digest();
    std::memcpy(whole.data() + 40, &h, 16);
    auto decoded = decode_file(Bytes::owning(std::move(whole)));
    // Fields outside the id (plane shapes of equal size) may change: the id names a computation.
    if (decoded.ok()) {
      ++accepted;
      EXPECT_EQ(decoded->header.tokens, image.header.tokens) << "seed " << seed;
      EXPECT_EQ(decoded->header.name.id, image.header.name.id) << "seed " << seed;
    }
  }
  EXPECT_LT(accepted, 8000u);
}

TEST(BlockFile, RandomBytesAreCorrupt) {
  std::mt19937_64 rng(5);
  for (int round = 0; round < 2000; ++round) {
    Bytes noise = random_payload(rng, rng() % 300);
    EXPECT_EQ(decode_file(noise).status().code(), StatusCode::corruption);
  }
}

TEST(RecordFile, ProfilesAndModelRecordsRoundTripAndTellDamage) {
  Profile profile = sample_profile(0.5f);
  ModelRecord record = sample_record(7);
  auto profile_file = encode_profile_file(profile)->flatten();
  auto record_file = encode_model_record(record)->flatten();
  EXPECT_EQ(*decode_profile_file(Bytes::copy_of(profile_file)), profile);
  EXPECT_EQ(*decode_model_record(Bytes::copy_of(record_file)), record);
  EXPECT_FALSE(decode_profile_file(Bytes::copy_of(record_file)).ok());
  EXPECT_FALSE(decode_model_record(Bytes::copy_of(profile_file)).ok());
  EXPECT_EQ(decode_file(Bytes::copy_of(profile_file)).status().code(), StatusCode::unsupported);
  for (auto* file : {&profile_file, &record_file}) {
    for (size_t i = 0; i <= file->size(); ++i) {
      std::vector<uint8_t> cut(file->begin(), file->begin() + static_cast<long>(i));
      if (i < file->size()) {
        std::vector<uint8_t> bad = *file;
        bad[i] ^= 0x10;
        EXPECT_FALSE(decode_profile_file(Bytes::copy_of(bad)).ok()) << i;
        EXPECT_FALSE(decode_model_record(Bytes::copy_of(bad)).ok()) << i;
        EXPECT_FALSE(decode_profile_file(Bytes::copy_of(cut)).ok()) << i;
        EXPECT_FALSE(decode_model_record(Bytes::copy_of(cut)).ok()) << i;
      }
    }
  }
}

TEST(FileNames, RoundTripAndRefuseForeignNames) {
  ObjectName name;
  name.id = sha256(std::vector<uint8_t>{1});
  for (auto kind : {ObjectKind::block, ObjectKind::tail, ObjectKind::snapshot}) {
    name.kind = kind;
    auto parsed = parse_file_name(file_name(name));
    ASSERT_TRUE(parsed) << file_name(name);
    EXPECT_EQ(parsed->object, name);
  }
  name = {ObjectKind::supplement, name.id, 65535, 7, UINT32_MAX};
  EXPECT_EQ(parse_file_name(file_name(name))->object, name);
  auto record = parse_file_name(model_record_file_name(name.id, UINT64_MAX));
  ASSERT_TRUE(record);
  EXPECT_EQ(record->serial, UINT64_MAX);
  EXPECT_EQ(parse_file_name(profile_file_name(name.id))->kind, FileKind::profile);

  std::string hex = name.id.hex();
  std::string upper = hex;
  upper[0] = 'A';
  for (const std::string& bad :
       {std::string(), hex, hex + ".", hex + ".block.tmp", hex + "..block", upper + ".block",
        hex.substr(1) + ".block", hex + ".0.5-4.supplement", hex + ".00.4-5.supplement",
        hex + ".65536.4-5.supplement", hex + ".1.4-4294967296.supplement", hex + ".-1.model",
        hex + ".1.model ", hex + ".18446744073709551616.model", std::string("../x.block"),
        hex + ".0.4-5.block"}) {
    EXPECT_FALSE(parse_file_name(bad)) << bad;
  }
}

// One file of each kind, byte for byte: a change here is a change of the format on disk, which
// needs a new version. KV_WRITE_GOLDEN=1 writes them.
TEST(BlockFile, GoldenFiles) {
  std::mt19937_64 rng(99);
  Object block = sample_block(rng, {}, 0, 4, 2);
  block.extras = {{1, {0xaa, 0xbb}}};
  stamp(block, sample_realm());
  Object tail = sample_block(rng, block.name.id, 4, 2, 2);
  tail.name.kind = ObjectKind::tail;
  stamp(tail, sample_realm());
  FileImage packed = raw_image(tail);
  packed.pieces[0] = {Packing::zstd, packed.pieces[0].unpacked_bytes, random_payload(rng, 3)};
  FileImage split = packed;
  split.pieces[1] = {Packing::split, split.pieces[1].unpacked_bytes, Bytes::owning({2, 0, 1})};
  std::vector<std::pair<std::string, std::vector<uint8_t>>> files = {
      {"block", bytes_of(raw_image(block))},
      {"tail", bytes_of(packed)},
      {"split", bytes_of(split)},
      {"supplement", bytes_of(raw_image(sample_supplement(rng, block, 1, 2, 4)))},
      {"snapshot", bytes_of(raw_image(sample_snapshot(rng, block, 1)))},
      {"profile", encode_profile_file(sample_profile(0.25f))->flatten()},
      {"model", encode_model_record(sample_record(3))->flatten()}};
  for (const auto& [name, bytes] : files) {
    std::string path = std::string(KV_GOLDEN_DIR) + "/" + name + ".bin";
    if (std::getenv("KV_WRITE_GOLDEN") != nullptr) {
      std::ofstream(path, std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
    }
    std::ifstream in(path, std::ios::binary);
    std::vector<uint8_t> golden((std::istreambuf_iterator<char>(in)), {});
    EXPECT_EQ(golden, bytes) << name;
  }
}

// The worked example of FORMAT.md is a file that this program writes and reads: the hex digits
// after each four-digit offset.
TEST(BlockFile, TheExampleInTheFormatIsTrue) {
  Object tail;
  tail.name.kind = ObjectKind::tail;
  tail.tokens = {7};
  Plane plane;
  plane.heads = 1;
  plane.dim = 2;
  plane.runs = {{RunForm::exact, 1}};
  plane.bytes = Bytes::owning({0x00, 0x3c, 0x00, 0xc0});  // 1.0, -2.0
  tail.planes = {plane};
  Realm realm;
  realm.ns = "a";
  realm.fingerprint.bytes.fill(0x11);
  realm.profile.bytes.fill(0x22);
  stamp(tail, realm);
  std::vector<uint8_t> expected = bytes_of(raw_image(tail));

  std::ifstream in(KV_FORMAT_FILE);
  std::vector<uint8_t> given;
  bool named = false;
  for (std::string line; std::getline(in, line);) {
    named = named || line.find(relative_path(tail.name)) != std::string::npos;
    std::istringstream words(line);
    std::string word;
    if (!(words >> word) || word.size() != 5 || word.back() != ':') continue;
    EXPECT_EQ(std::stoul(word.substr(0, 4), nullptr, 16), given.size()) << line;
    auto hex = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
    while (words >> word && word.size() == 2 && hex(word[0]) && hex(word[1])) {
      given.push_back(static_cast<uint8_t>(std::stoul(word, nullptr, 16)));
    }
  }
  EXPECT_TRUE(named) << relative_path(tail.name);
  if (given != expected) {
    for (size_t i = 0; i < expected.size(); ++i) std::printf("%02x ", expected[i]);
    std::printf("\n");
  }
  EXPECT_EQ(given, expected);
}

}  // namespace
}  // namespace kv
