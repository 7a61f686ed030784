// From a set of transforms to a profile. See cachectl_transforms.h.
#include "tools/cachectl_transforms.h"

#include "codec/plan.h"

namespace kv::cachectl {

Result<Profile> transform_profile(const CalibratedModel& model, TransformSet set) {
  CodingSettings settings;
  settings.k_bits = settings.v_bits = 0;
  settings.raw_dtype = model.profile.raw_dtype;
  KV_ASSIGN_OR_RETURN(Profile profile, plain_profile(model.spec, settings));
  profile.codec_version = kTransformProfile;
  profile.requested_k_bits = profile.requested_v_bits = kTransformWord;
  profile.transforms = share(std::move(set));
  KV_ASSIGN_OR_RETURN(auto parts, row_parts(model.spec));
  uint16_t next = 0;
  for (const RowPart& at : parts) {
    PartCoding& part = profile.parts[at.layer][at.part];
    part.k_bits = part.v_bits = kTransformWord;
    part.k_transform = next++;
    part.v_transform = next++;
  }
  KV_RETURN_IF_ERROR(validate(profile, model.spec));
  if (encoded_bytes(profile) <= kMaxProfileBytes) return profile;
  return invalid_argument("transforms: a profile of " + std::to_string(encoded_bytes(profile)) +
                          " bytes, expected at most " + std::to_string(kMaxProfileBytes));
}

}  // namespace kv::cachectl
