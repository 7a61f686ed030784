// A coded store as files, tests/golden/format: every kernel set decodes their rows to what
// FORMAT.md's table of golden planes says. tests/format_reader_check.py reads the same files with
// no code of the codec or of storage. KV_WRITE_GOLDEN=1 writes the files.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "codec/lossless.h"
#include "codec/transform.h"
#include "proto/identity.h"
#include "storage/block_file.h"
#include "storage/record_file.h"
#include "tests/support/codec_data.h"
#include "tests/support/storage_decode_file.h"
#include "tests/support/transform_golden.h"

namespace kv {
namespace {

using namespace codec_data;

constexpr uint32_t kBlock = 16, kEnd = 21;  // a block, and a tail of 5 tokens

PartSpec full(uint32_t heads, uint32_t k_dim, uint32_t v_dim) {
  PartSpec part;
  part.heads = heads;
  part.k_dim = k_dim;
  part.v_dim = v_dim;
  return part;
}

// A layer for each kind of part, and the codes of all widths.
ModelSpec format_model() {
  ModelSpec model;
  model.name = "every kind";
  model.fingerprint.bytes.fill(0x5a);
  PartSpec window = full(1, 64, 64), latent = full(1, 24, 0), pooled = full(1, 8, 0), state;
  window.kind = PartKind::window;
  window.window = 8;
  window.keep = 2;
  latent.kind = PartKind::latent;
  latent.dtype = DType::bf16;
  pooled.kind = PartKind::pooled;
  pooled.rate = 4;
  pooled.overlap = true;
  state.kind = PartKind::state;
  state.dtype = DType::f32;
  for (const PartSpec& part :
       {full(2, 128, 128), full(1, 64, 80), full(1, 96, 256), window, latent, pooled, state}) {
    model.layers.push_back(LayerSpec{{part}});
  }
  return model;
}

Profile format_profile() {
  Profile profile;
  profile.block_tokens = kBlock;
  profile.requested_k_bits = profile.requested_v_bits = 4;
  const std::pair<uint8_t, uint8_t> kBits[] = {{4, 2}, {3, 8}, {8, 3}, {4, 4}, {}, {}, {}};
  for (auto [k, v] : kBits) profile.parts.push_back({PartCoding{k, v, {}, {}}});
  for (uint32_t j = 0; j < 2 * 128; ++j) {
    profile.parts[0][0].key_mean.push_back(static_cast<float>(37 * j % 101) - 50);
    profile.parts[0][0].key_gain.push_back(1 + static_cast<float>(j % 7) / 8);
  }
  return profile;
}

// Sums of eight random bytes, less their mean; with `same` every row is the first one.
Plane given_rows(const Codec& codec, uint16_t layer, Side side, uint32_t first, uint32_t end,
                 bool same = false) {
  const SideCoding& shape = *codec.side(layer, 0, side);
  SplitMix64 random{1000u + 10u * layer + static_cast<uint32_t>(side) + 1000u * first};
  std::vector<float> values(size_t{end - first} * shape.heads * shape.dim);
  const size_t row = size_t{shape.heads} * shape.dim;
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t word = random.next();
    int sum = -1020;
    for (int b = 0; b < 8; ++b) sum += static_cast<int>((word >> (8 * b)) & 255);
    values[i] = same && i >= row ? values[i - row] : static_cast<float>(sum);
  }
  Plane plane = plane_of(side, shape.heads, shape.dim, first, values);
  plane.layer = layer;
  return plane;
}

void add_sides(Object& o, const Codec& codec, uint16_t layer, uint32_t first, uint32_t end) {
  const bool coded = o.name.kind != ObjectKind::tail;
  for (const SideSpec& side : sides_of(codec.model().layers[layer].parts[0])) {
    Plane rows = given_rows(codec, layer, side.side, first, end, layer == 1);
    o.planes.push_back(coded ? *codec.encode(rows) : *codec.raw(rows));
  }
}

// Two coded rows before the exact ones, as where a tail begins with a block's.
void begin_with_codes(Plane& plane, const Codec& codec) {
  Plane rows = given_rows(codec, plane.layer, plane.side, plane.first_row, plane.end_row());
  Plane head = *codec.encode(*slice_rows(rows, plane.first_row, plane.first_row + 2));
  plane = *join_rows({head, *slice_rows(plane, plane.first_row + 2, plane.end_row())});
}

Object object_of(ObjectKind kind, const Id& parent, uint32_t first, uint32_t end) {
  Object o;
  o.name.kind = kind;
  o.parent = parent;
  o.first_token = first;
  for (uint32_t t = first; t < end; ++t) o.tokens.push_back(static_cast<Token>(100 + t));
  return o;
}

Bytes counted_bytes(size_t count) {
  std::vector<uint8_t> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<uint8_t>(i % 60);
  return Bytes::owning(std::move(out));
}

std::map<std::string, Object> format_objects(const Codec& codec) {
  const Realm realm{"format", codec.model().fingerprint, codec.profile().id()};
  Object block = object_of(ObjectKind::block, {}, 0, kBlock);
  block.extras = {{3, {0xaa, 0xbb}}};
  for (uint16_t layer : {0, 1, 2, 4}) add_sides(block, codec, layer, 0, kBlock);
  add_sides(block, codec, 5, 0, kBlock / 4);
  stamp(block, realm);
  Object window = block;
  window.name = {ObjectKind::supplement, block.name.id, 3, 6, kBlock};
  window.planes.clear();
  add_sides(window, codec, 3, 6, kBlock);
  Object tail = object_of(ObjectKind::tail, block.name.id, kBlock, kEnd);
  for (uint16_t layer : {0, 1, 2, 4}) add_sides(tail, codec, layer, kBlock, kEnd);
  add_sides(tail, codec, 5, kBlock / 4, kEnd / 4);
  begin_with_codes(tail.planes[0], codec);
  stamp(tail, realm);
  Object carry = tail;
  carry.name = {ObjectKind::supplement, tail.name.id, 5, kEnd, kEnd};
  carry.planes.clear();
  carry.states = {{5, 0, counted_bytes(12)}};
  Object snapshot = object_of(ObjectKind::snapshot, block.name.id, kBlock, kEnd);
  snapshot.states = {{6, 0, counted_bytes(40)}};
  stamp(snapshot, realm);
  return {{"block", block},
          {"window", window},
          {"tail", tail},
          {"carry", carry},
          {"snapshot", snapshot}};
}

// Packed as the service packs: codes in a frame of zstd, exact rows split, where that saves enough.
FileImage packed_image(const Object& object) {
  FileImage image = raw_image(object);
  for (size_t i = 0; i < object.planes.size(); ++i) {
    const Plane& plane = object.planes[i];
    auto packed = plane.bits != 0 ? pack(plane.bytes.span())
                                  : pack_split(plane.bytes.span(), dtype_bytes(plane.dtype));
    if (!packed) continue;
    image.pieces[i].packing = plane.bits != 0 ? Packing::zstd : Packing::split;
    image.pieces[i].bytes = Bytes::owning(std::move(*packed));
  }
  return image;
}

std::string golden_path(const std::string& name) {
  return std::string(KV_FORMAT_GOLDEN_DIR) + "/" + name + ".bin";
}

Bytes golden(const std::string& name) {
  std::ifstream in(golden_path(name), std::ios::binary);
  std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(in)), {});
  return Bytes::owning(std::move(bytes));
}

void write_golden(const std::string& name, const EncodedFile& file) {
  if (std::getenv("KV_WRITE_GOLDEN") == nullptr) return;
  const std::vector<uint8_t> bytes = file.flatten();
  std::ofstream(golden_path(name), std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
}

Result<Bytes> unpacked(const Piece& piece) {
  std::vector<uint8_t> out(piece.unpacked_bytes);
  auto way = piece.packing == Packing::split ? unpack_split : unpack;
  KV_RETURN_IF_ERROR(way(piece.bytes.span(), out));
  return Bytes::owning(std::move(out));
}

std::string crc_text(std::span<const uint8_t> bytes) {
  uint32_t crc = 0xFFFFFFFFu;
  for (uint8_t b : bytes) {
    crc ^= b;
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  char text[9];
  std::snprintf(text, sizeof(text), "%08x", ~crc);
  return text;
}

// A document's golden planes: "FILE LAYER SIDE FIRST to LAST" -> CRC-32 of the f32 rows.
std::map<std::string, std::string> documented_planes(const char* document = KV_FORMAT_FILE) {
  std::ifstream format(document);
  std::map<std::string, std::string> out;
  bool inside = false;
  for (std::string line; std::getline(format, line);) {
    if (line.starts_with("<!-- ")) inside = line == "<!-- golden planes -->";
    if (!inside || !line.starts_with("| ") || line.find(".bin") == line.npos) continue;
    std::vector<std::string> cells;
    std::istringstream words(line.substr(2));
    for (std::string cell; std::getline(words, cell, '|');) {
      cell.erase(cell.find_last_not_of(' ') + 1);
      cell.erase(0, cell.find_first_not_of(' '));
      cells.push_back(cell);
    }
    EXPECT_EQ(cells.size(), 5u) << line;
    if (cells.size() == 5)
      out[cells[0] + " " + cells[1] + " " + cells[2] + " " + cells[3]] = cells[4];
  }
  return out;
}

using testing::decode_file;

class CodecFormat : public ::testing::Test {
 protected:
  const ModelSpec model_ = format_model();
  const Profile profile_ = format_profile();
  const std::map<std::string, Object> objects_ = format_objects(*codec_of(model_, profile_));
};

TEST_F(CodecFormat, GoldenFilesHoldWhatTheirNamesSay) {
  const ModelRecord record{"format", model_, profile_.id(), 1};
  write_golden("profile", *encode_profile_file(profile_));
  write_golden("model", *encode_model_record(record));
  EXPECT_TRUE(*decode_profile_file(golden("profile")) == profile_);
  EXPECT_TRUE(*decode_model_record(golden("model")) == record);
  std::map<Packing, int> packings;
  for (const auto& [name, object] : objects_) {
    SCOPED_TRACE(name);
    Status valid = validate(object, model_, profile_);
    EXPECT_TRUE(valid.ok()) << valid.to_string();
    write_golden(name, *encode_file(packed_image(object)));
    auto image = decode_file(golden(name));
    ASSERT_TRUE(image.ok()) << image.status().to_string();
    for (const Piece& piece : image->pieces) ++packings[piece.packing];
    auto stored = to_object(*image, unpacked);
    ASSERT_TRUE(stored.ok()) << stored.status().to_string();
    EXPECT_EQ(stored->name, object.name);
    EXPECT_EQ(stored->planes, object.planes);
    EXPECT_EQ(stored->states, object.states);
  }
  EXPECT_EQ(packings.size(), 3u) << "raw, zstd and split pieces";
}

TEST_F(CodecFormat, EveryKernelSetDecodesTheDocumentedRows) {
  for (const Kernels* kernels : all_kernels()) {
    auto codec = codec_of(model_, profile_, kernels);
    auto documented = documented_planes();
    for (const auto& [name, object] : objects_) {
      auto image = decode_file(golden(name));
      ASSERT_TRUE(image.ok()) << name << ": " << image.status().to_string();
      auto stored = to_object(*image, unpacked);
      ASSERT_TRUE(stored.ok()) << stored.status().to_string();
      for (const Plane& plane : stored->planes) {
        const std::string row = name + ".bin " + std::to_string(plane.layer) + " " +
                                to_string(plane.side) + " " + std::to_string(plane.first_row) +
                                " to " + std::to_string(plane.end_row() - 1);
        auto decoded = codec->decoded(plane, DType::f32);
        ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
        EXPECT_EQ(documented[row], crc_text(decoded->bytes.span())) << row << kernels->name;
        documented.erase(row);
      }
    }
    EXPECT_TRUE(documented.empty()) << documented.begin()->first;
  }
}

// ---- files of streams, tests/golden/streams: TRANSFORM.md's set

constexpr uint32_t kStreamBlock = 40, kStreamEnd = 50;

Plane stream_rows(Side side, uint32_t first, uint32_t end) {
  std::vector<float> values;
  for (uint32_t i = 4 * first; i < 4 * end; ++i) {
    const auto number = static_cast<int>((37 * i + 5 * static_cast<uint32_t>(side)) % 64);
    values.push_back(static_cast<float>(number - 32) / 8);
  }
  return plane_of(side, 1, 4, first, values);
}

// The block's rows as the codec has them; the tail begins with rows cut from a longer stream.
std::map<std::string, Object> stream_objects(const Codec& codec) {
  const Realm realm{"format", codec.model().fingerprint, codec.profile().id()};
  Object block = object_of(ObjectKind::block, {}, 0, kStreamBlock);
  for (Side side : {Side::k, Side::v}) {
    block.planes.push_back(*codec.encode(stream_rows(side, 0, kStreamBlock)));
  }
  stamp(block, realm);
  Object tail = object_of(ObjectKind::tail, block.name.id, kStreamBlock, kStreamEnd);
  for (Side side : {Side::k, Side::v}) {
    Plane plane = *codec.raw(stream_rows(side, kStreamBlock, kStreamEnd));
    if (side == Side::k) {
      const Plane longer = stream_rows(side, 30, 60);
      std::vector<float> values(4 * 30);
      std::memcpy(values.data(), longer.bytes.data(), longer.bytes.size());
      auto stream = *codec.side(0, 0, side)->coder->encode(values, 30);
      plane.runs = {{RunForm::stream, 8, static_cast<uint32_t>(stream.size()), 10, 30}};
      plane.bytes = Bytes::owning(std::move(stream));
      plane = *join_rows({plane, *codec.raw(stream_rows(side, 48, kStreamEnd))});
    }
    tail.planes.push_back(std::move(plane));
  }
  stamp(tail, realm);
  return {{"block", block}, {"tail", tail}};
}

TEST(CodecFormatStreams, GoldenFilesHoldTheDocumentedRows) {
  ModelSpec model;
  model.name = "streams";
  model.fingerprint.bytes.fill(0x5b);
  model.layers = {LayerSpec{{full(1, 4, 4)}}};
  Profile profile;
  profile.codec_version = kTransformProfile;
  profile.block_tokens = kStreamBlock;
  profile.requested_k_bits = profile.requested_v_bits = kTransformWord;
  profile.parts = {{PartCoding{kTransformWord, kTransformWord, {}, {}}}};
  profile.transforms = share(testing::golden_transforms());
  const ModelRecord record{"format", model, profile.id(), 1};
  write_golden("../streams/profile", *encode_profile_file(profile));
  write_golden("../streams/model", *encode_model_record(record));
  EXPECT_TRUE(*decode_profile_file(golden("../streams/profile")) == profile);
  EXPECT_TRUE(*decode_model_record(golden("../streams/model")) == record);
  auto documented = documented_planes(KV_TRANSFORM_FILE);
  EXPECT_EQ(documented.size(), 4u);
  const auto codec = codec_of(model, profile);
  for (const auto& [name, object] : stream_objects(*codec)) {
    Status valid = validate(object, model, profile);
    EXPECT_TRUE(valid.ok()) << valid.to_string();
    write_golden("../streams/" + name, *encode_file(raw_image(object)));
    auto image = decode_file(golden("../streams/" + name));
    ASSERT_TRUE(image.ok()) << image.status().to_string();
    auto stored = to_object(*image, unpacked);
    ASSERT_TRUE(stored.ok() && stored->planes == object.planes) << name;
    for (const Plane& plane : stored->planes) {
      const std::string row = name + ".bin 0 " + to_string(plane.side) + " " +
                              std::to_string(plane.first_row) + " to " +
                              std::to_string(plane.end_row() - 1);
      EXPECT_EQ(documented[row], crc_text(codec->decoded(plane, DType::f32)->bytes.span())) << row;
    }
  }
}

}  // namespace
}  // namespace kv
