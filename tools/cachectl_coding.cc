// Reports of coding: requested against active.
#include "tools/cachectl_coding.h"

#include <algorithm>

namespace kv::cachectl {

std::vector<PartReport> coding_report(const ModelRecord& record, const Profile& profile) {
  if (!validate(profile, record.model).ok()) return {};
  return report(record.model, profile);
}

std::vector<std::string> report_lines(const std::vector<PartReport>& report) {
  struct Group {
    std::string text;
    std::vector<uint32_t> layers;
  };
  std::vector<Group> groups;
  for (const auto& line : report) {
    std::string text = "part " + std::to_string(line.part) + " " + to_string(line.kind) + " " +
                       to_string(line.side) + ": requested " + coding_name(line.requested_bits) +
                       ", active " + coding_name(line.active_bits) +
                       (line.reason.empty() ? "" : ": " + line.reason);
    auto same =
        std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.text == text; });
    if (same == groups.end()) same = groups.insert(groups.end(), Group{text, {}});
    same->layers.push_back(line.layer);
  }
  std::vector<std::string> lines;
  for (const auto& g : groups) {
    std::string layers;
    for (size_t i = 0; i < g.layers.size();) {
      size_t last = i;
      while (last + 1 < g.layers.size() && g.layers[last + 1] == g.layers[last] + 1) ++last;
      layers += (layers.empty() ? "" : ",") + std::to_string(g.layers[i]);
      if (last > i) layers += "-" + std::to_string(g.layers[last]);
      i = last + 1;
    }
    lines.push_back("layers " + layers + " " + g.text);
  }
  return lines;
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
