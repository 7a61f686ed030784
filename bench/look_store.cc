// A store of many small objects, for the figures of cachectl's verbs: look_store DIR OBJECTS.
//
// One model of one layer, blocks of 16 tokens; ten objects are a block and nine tails that go on
// from it. `cachectl ls DIR`, `tree DIR`, and `status` of a daemon that serves it are timed then.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "codec/plan.h"
#include "proto/identity.h"
#include "storage/ssd_tier.h"

namespace kv {
namespace {

constexpr uint32_t kBlock = 16, kHeads = 1, kDim = 8, kTails = 9;
constexpr size_t kBatch = 2000;

class Maker {
 public:
  Maker() {
    PartSpec part;
    part.heads = kHeads;
    part.k_dim = part.v_dim = kDim;
    model_.name = "small";
    model_.fingerprint = sha256(std::vector<uint8_t>{1});
    model_.layers = {LayerSpec{{part}}};
    CodingSettings settings;
    settings.block_tokens = kBlock;
    settings.k_bits = settings.v_bits = 0;
    profile_ = *plain_profile(model_, settings);
  }
  Object next() {
    if (left_ == 0) {
      left_ = kTails;
      Object block = make({}, 0, kBlock, ObjectKind::block);
      parent_ = block.name.id;
      return block;
    }
    --left_;
    return make(parent_, kBlock, 1 + left_, ObjectKind::tail);
  }
  Status begin(SsdTier& tier) const {
    KV_RETURN_IF_ERROR(tier.put_profile(profile_));
    return tier.put_model_record({"bench", model_, profile_.id(), 1});
  }

 private:
  Object make(const Id& parent, uint32_t first, uint32_t rows, ObjectKind kind) {
    Object o;
    o.name.kind = kind;
    o.parent = parent;
    o.first_token = first;
    for (uint32_t i = 0; i < rows; ++i) o.tokens.push_back(static_cast<Token>(rng_() % 49152));
    for (const SideSpec& side : sides_of(model_.layers[0].parts[0])) {
      Plane p;
      p.side = side.side;
      p.heads = side.heads;
      p.dim = side.dim;
      p.first_row = first;
      p.runs = {{RunForm::exact, rows}};
      p.bytes = Bytes::owning(std::vector<uint8_t>(plane_bytes(p)));
      o.planes.push_back(std::move(p));
    }
    stamp(o, {"bench", model_.fingerprint, profile_.id()});
    return o;
  }

  ModelSpec model_;
  Profile profile_;
  std::mt19937_64 rng_{1};
  Id parent_;
  uint32_t left_ = 0;
};

int run(const std::string& directory, size_t objects) {
  SsdOptions options;
  options.limit_bytes = uint64_t{1} << 40;
  auto tier = SsdTier::open(directory, options);
  KV_CHECK(tier.ok() && (*tier)->recover().ok());
  Maker maker;
  KV_CHECK(maker.begin(**tier).ok());
  for (size_t at = 0; at < objects;) {
    std::vector<FileImage> batch;
    for (; at < objects && batch.size() < kBatch; ++at) batch.push_back(raw_image(maker.next()));
    for (const auto& r : (*tier)->put(batch, Durability::spilled)) KV_CHECK(r.status.ok());
  }
  std::printf("%zu objects in %s\n", objects, directory.c_str());
  return 0;
}

}  // namespace
}  // namespace kv

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: look_store DIR OBJECTS\n");
    return 2;
  }
  return kv::run(argv[1], std::strtoull(argv[2], nullptr, 10));
}
