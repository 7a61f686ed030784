// The coding of each part of a model by a profile, for people and as JSON. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "codec/plan.h"
#include "proto/client.h"
#include "tools/cachectl_print.h"
#include "tools/cachectl_store.h"

namespace kv::cachectl {

/// Empty if the profile does not fit the model.
std::vector<PartReport> coding_report(const ModelRecord& record, const Profile& profile);
/// One text for all layers that say the same: "layers 0-3 part 0 latent other: requested tq4,
/// active raw: latent: never coded".
std::vector<std::string> report_lines(const std::vector<PartReport>& report);
Json report_json(const std::vector<PartReport>& report);
/// The same of a daemon's report, which has one line per part: "layers 0-3 part 0 latent: requested
/// tq4, active raw: latent: never coded".
std::vector<std::string> report_lines(const std::vector<CodingReport>& report);
Json report_json(const std::vector<CodingReport>& report);

}  // namespace kv::cachectl
