// One prefill of the calibration text, and the file that keeps its result. See calibration.h.
#include "engine/calibration.h"

#include <algorithm>

#include "codec/calibrate.h"
#include "codec/plan.h"
#include "codec/profile_file.h"

namespace kv {

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
  if (auto kept = read_profile_file(path, model, &id); kept.ok()) return kept;
  KV_ASSIGN_OR_RETURN(Profile made, calibrate(network, base, deadline));
  (void)write_profile_file(path, model, id, made);  // the next start makes it again
  return made;
}

}  // namespace kv
