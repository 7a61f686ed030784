// A small store and the real program cachectl on it: for tools_cachectl_test.cc.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "codec/codec.h"
#include "codec/lossless.h"
#include "codec/plan.h"
#include "storage/ssd_tier.h"
#include "tests/support/storage_testing.h"

namespace kv::testing {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

inline constexpr uint32_t kBlockTokens = 16;
inline constexpr Token kSecretToken = 987654321;

inline std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

inline void spew(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

/// Everything that cachectl might disturb: names, contents, sizes, modes, times of change.
inline std::map<std::string, std::string> listing(const std::string& directory) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    struct stat s;
    if (::lstat(entry.path().c_str(), &s) != 0) continue;
    out[entry.path()] = std::to_string(s.st_mtim.tv_sec) + "." + std::to_string(s.st_mtim.tv_nsec) +
                        " " + std::to_string(s.st_ctim.tv_nsec) + " " + std::to_string(s.st_mode) +
                        " " + (entry.is_regular_file() ? slurp(entry.path()) : "");
  }
  return out;
}

struct Ran {
  int code = -1;
  std::string out, err;
  json parsed() const { return json::parse(out); }
};

inline Ran run_cachectl(const std::string& arguments) {
  TempDir scratch;
  std::string out = scratch.path() + "/out", err = scratch.path() + "/err";
  std::string command =
      std::string(KV_CACHECTL_BIN) + " " + arguments + " >" + out + " 2>" + err + " </dev/null";
  int status = std::system(command.c_str());
  EXPECT_TRUE(WIFEXITED(status)) << arguments;
  return {WEXITSTATUS(status), slurp(out), slurp(err)};
}

/// One full layer at 4 bit and one latent layer, which is never coded.
inline ModelSpec two_layer_model() {
  ModelSpec model;
  model.name = "two-layers";
  model.fingerprint = sha256(std::vector<uint8_t>{9});
  PartSpec full, latent;
  full.heads = 2;
  full.k_dim = full.v_dim = 32;
  latent.kind = PartKind::latent;
  latent.heads = 1;
  latent.k_dim = 64;
  model.layers = {LayerSpec{{full}}, LayerSpec{{latent}}};
  return model;
}

class Cachectl : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = two_layer_model();
    CodingSettings settings;
    settings.block_tokens = kBlockTokens;
    auto profile = plain_profile(model_, settings);
    ASSERT_TRUE(profile.ok()) << profile.status().to_string();
    profile_ = std::make_shared<const Profile>(*profile);
    auto codec = Codec::create(model_, profile_);
    ASSERT_TRUE(codec.ok()) << codec.status().to_string();
    codec_ = *codec;
    realm_ = {"tenant\x1b[31m", model_.fingerprint, profile_->id()};
    // root - first - second - tail, and a branch: first - other
    first_ = make({}, 0, kBlockTokens, ObjectKind::block);
    second_ = make(first_.name.id, 16, kBlockTokens, ObjectKind::block);
    tail_ = make(second_.name.id, 32, 5, ObjectKind::tail);
    other_ = make(first_.name.id, 16, kBlockTokens, ObjectKind::block);
    write();
  }

  Plane plane(uint16_t layer, const SideSpec& side, uint32_t first, uint32_t rows) {
    Plane p;
    p.layer = layer;
    p.side = side.side;
    p.heads = side.heads;
    p.dim = side.dim;
    p.dtype = DType::f32;
    p.first_row = first;
    p.runs = {{RunForm::exact, rows}};
    // The latent layer repeats itself, so that there is something to pack.
    std::vector<float> values(size_t{rows} * side.heads * side.dim, 0.5f);
    std::normal_distribution<float> normal;
    if (layer == 0) {
      for (float& v : values) v = normal(rng_);
    }
    auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
    p.bytes = Bytes::copy_of({bytes, values.size() * sizeof(float)});
    return p;
  }

  Object make(const Id& parent, uint32_t first, uint32_t rows, ObjectKind kind) {
    Object o;
    o.name.kind = kind;
    o.parent = parent;
    o.first_token = first;
    for (uint32_t i = 0; i < rows; ++i) o.tokens.push_back(static_cast<Token>(rng_() % 50000));
    o.tokens[0] = kSecretToken;
    for (uint16_t layer = 0; layer < 2; ++layer) {
      for (const auto& side : sides_of(model_.layers[layer].parts[0])) {
        Plane p = plane(layer, side, first, rows);
        auto stored = kind == ObjectKind::tail ? codec_->raw(p) : codec_->encode(p);
        EXPECT_TRUE(stored.ok()) << stored.status().to_string();
        o.planes.push_back(*stored);
      }
    }
    stamp(o, realm_);
    EXPECT_TRUE(validate(o, model_, *profile_).ok());
    return o;
  }

  FileImage packed(const Object& object) {
    FileImage image = raw_image(object);
    for (size_t i = 0; i < image.pieces.size(); ++i) {
      Piece& piece = image.pieces[i];
      const bool codes = object.planes[i].bits != 0;
      auto small = codes ? pack(piece.bytes.span()) : pack_split(piece.bytes.span(), 2);
      if (!small) continue;
      piece.packing = codes ? Packing::zstd : Packing::split;
      piece.bytes = Bytes::owning(std::move(*small));
      ++(codes ? zstd_pieces_ : split_pieces_);
    }
    return image;
  }

  void write(SsdOptions options = small_options()) {
    auto opened = SsdTier::open(dir_.store(), std::move(options));
    ASSERT_TRUE(opened.ok() && (*opened)->recover().ok());
    tier_ = std::move(*opened);
    ASSERT_TRUE(tier_->put_profile(*profile_).ok());
    ASSERT_TRUE(tier_->put_model_record({realm_.ns, model_, profile_->id(), 1}).ok());
    std::vector<FileImage> images{packed(first_), packed(second_), packed(tail_), packed(other_)};
    for (const auto& r : tier_->put(images, Durability::spilled)) {
      ASSERT_TRUE(r.status.ok()) << r.status.to_string();
    }
    ASSERT_GT(split_pieces_, 0u);
  }

  /// Runs cachectl, with the tier still open unless closed by the test.
  Ran run(const std::string& arguments) {
    auto before = listing(dir_.path());
    Ran ran = run_changing(arguments);
    EXPECT_EQ(before, listing(dir_.path())) << arguments << " changed the directory";
    return ran;
  }
  Ran run_changing(const std::string& arguments) { return run_cachectl(arguments); }
  std::string store() const { return dir_.store(); }
  fs::path path(const Object& o) const { return store() + "/" + relative_path(o.name); }
  static std::string hex(const Object& o) { return o.name.id.hex(); }

  /// verify must exit 1 and name exactly `o`'s file, with `reason`.
  void expect_damaged(const Object& o, const std::string& reason, bool deep = false) {
    std::string verify = deep ? "verify --deep " : "verify ";
    if (deep) {
      EXPECT_EQ(run("verify " + store()).code, 0) << "the checksums are right";
    }
    Ran text = run(verify + store());
    EXPECT_EQ(text.code, 1);
    EXPECT_THAT(text.out, HasSubstr("damaged  " + relative_path(o.name)));
    EXPECT_THAT(text.out, HasSubstr(reason));
    Ran ran = run(verify + "--json " + store());
    EXPECT_EQ(ran.code, 1);
    ASSERT_EQ(ran.parsed()["damaged"].size(), 1u) << ran.out;
    EXPECT_EQ(ran.parsed()["damaged"][0]["path"], relative_path(o.name));
    EXPECT_EQ(ran.parsed()["damaged"][0]["code"], "corruption");
  }

  TempDir dir_;
  std::mt19937_64 rng_{7};
  ModelSpec model_;
  std::shared_ptr<const Profile> profile_;
  std::shared_ptr<const Codec> codec_;
  Realm realm_;
  Object first_, second_, tail_, other_;
  std::unique_ptr<SsdTier> tier_;
  uint64_t zstd_pieces_ = 0, split_pieces_ = 0;
};

}  // namespace kv::testing
