// One prefill of the calibration text, and the file that keeps its result. See calibration.h.
#include "engine/calibration.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "codec/calibrate.h"
#include "codec/plan.h"

namespace kv {
namespace {

constexpr uint32_t kFileMagic = 0x314C434B;  // "KCL1"

// Layout: magic, model fingerprint, id of the base profile, SHA-256 of the profile's bytes, those.
Result<Profile> read_file(const std::string& path, const ModelSpec& model, const Id& base) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  std::streamoff size = in ? static_cast<std::streamoff>(in.tellg()) : 0;
  if (size <= 0 || size > static_cast<std::streamoff>(kMaxProfileBytes)) {
    return Status(StatusCode::not_found, "no calibration in " + path);
  }
  std::vector<uint8_t> bytes(static_cast<size_t>(size));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(bytes.data()), size);
  ByteReader reader(bytes);
  uint32_t magic = reader.u32();
  auto is_id = [&reader](const Id& id) {
    auto raw = reader.raw(32);
    return !reader.failed() && std::equal(raw.begin(), raw.end(), id.bytes.begin());
  };
  bool fits = in && magic == kFileMagic && is_id(model.fingerprint) && is_id(base);
  auto sum = reader.raw(32);
  auto body = reader.raw(reader.left());
  if (!fits || reader.failed() || !std::equal(sum.begin(), sum.end(), sha256(body).bytes.begin())) {
    return corruption("calibration file " + path + " is another model's or damaged");
  }
  ByteReader profile(body);
  return decode_profile(profile);
}

void write_file(const std::string& path, const ModelSpec& model, const Id& base,
                const Profile& made) {
  ByteWriter body, out;
  encode(made, body);
  out.u32(kFileMagic);
  out.raw(model.fingerprint.bytes);
  out.raw(base.bytes);
  out.raw(sha256(body.span()).bytes);
  out.raw(body.span());
  std::string temporary = path + "." + std::to_string(::getpid());
  std::ofstream file(temporary, std::ios::binary);
  file.write(reinterpret_cast<const char*>(out.span().data()),
             static_cast<std::streamsize>(out.size()));
  file.close();
  if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) std::remove(temporary.c_str());
}

}  // namespace

Result<Profile> calibrate(Network& network, const Profile& base, Deadline deadline) {
  KV_ASSIGN_OR_RETURN(auto tokens, network.encode(kCalibrationText));
  tokens.resize(std::min({tokens.size(), size_t{kCalibrationTokens}, size_t{network.context()}}));
  CodingSettings exact;
  exact.k_bits = exact.v_bits = 0;
  exact.raw_dtype = DType::f32;
  exact.block_tokens = base.block_tokens;
  const ModelSpec& spec = network.spec();
  KV_ASSIGN_OR_RETURN(Profile profile, plain_profile(spec, exact));
  KV_ASSIGN_OR_RETURN(auto codec,
                      Codec::create(spec, std::make_shared<const Profile>(std::move(profile))));
  KvCache cache(codec, {});
  KV_RETURN_IF_ERROR(network.prefill(tokens, cache, deadline));
  KeyStatistics statistics(spec);
  auto end = static_cast<uint32_t>(tokens.size());
  std::vector<float> rows;
  for (uint32_t l = 0; l < spec.layers.size(); ++l) {
    for (uint32_t p = 0; p < spec.layers[l].parts.size(); ++p) {
      if (base.coding(l, p).k_bits == 0) continue;
      const PartSpec& part = spec.layers[l].parts[p];
      rows.resize(size_t{end} * part.heads * part.k_dim);
      KV_RETURN_IF_ERROR(cache.decode(l, p, Side::k, {0, end}, rows.data()));
      KV_RETURN_IF_ERROR(statistics.add_keys(l, p, 0, rows));
    }
  }
  return statistics.calibrated(base);
}

Result<Profile> calibrate_with_file(Network& network, const Profile& base, const std::string& path,
                                    Deadline deadline) {
  const ModelSpec& model = network.spec();
  Id id = base.id();
  if (auto kept = read_file(path, model, id); kept.ok() && validate(*kept, model).ok()) {
    return kept;
  }
  KV_ASSIGN_OR_RETURN(Profile made, calibrate(network, base, deadline));
  write_file(path, model, id, made);
  return made;
}

}  // namespace kv
