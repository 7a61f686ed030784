// A profile that codes a model's rows by transforms, for `cachectl tune --coding tc`. One thread.
#pragma once

#include "proto/transform.h"
#include "tools/cachectl_quality_settings.h"

namespace kv::cachectl {

/// The set has K and V of each part of row_parts() in order; all else is kept raw, in the dtype of
/// the model's profile. Returns: what row_parts and validate return; invalid_argument (more than
/// kMaxProfileBytes).
Result<Profile> transform_profile(const CalibratedModel& model, TransformSet set);

}  // namespace kv::cachectl
