// Reports of coding: requested against active.
#include "tools/cachectl_coding.h"

namespace kv::cachectl {

std::vector<PartReport> coding_report(const ModelRecord& record, const Profile& profile) {
  if (!validate(profile, record.model).ok()) return {};
  return report(record.model, profile);
}

std::vector<std::string> report_lines(const std::vector<PartReport>& report) {
  std::vector<LayerLine> said;
  for (const auto& line : report) {
    said.push_back({line.layer,
                    "part " + std::to_string(line.part) + " " + to_string(line.kind) + " " +
                        to_string(line.side) + ": requested " + coding_name(line.requested_bits) +
                        ", active " + coding_name(line.active_bits) +
                        (line.reason.empty() ? "" : ": " + line.reason)});
  }
  return lines_by_text(said);
}

Json report_json(const std::vector<PartReport>& report) {
  Json out = Json::array();
  for (const auto& line : report) {
    out.push_back({{"layer", line.layer},
                   {"part", line.part},
                   {"kind", to_string(line.kind)},
                   {"side", to_string(line.side)},
                   {"requested", coding_name(line.requested_bits)},
                   {"active", coding_name(line.active_bits)},
                   {"reason", line.reason}});
  }
  return out;
}

}  // namespace kv::cachectl
