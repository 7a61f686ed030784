// Reports of coding: requested against active.
#include "tools/cachectl_coding.h"

namespace kv::cachectl {
namespace {

std::string names_of(uint8_t k_bits, uint8_t v_bits) {
  if (k_bits == v_bits) return coding_name(k_bits);
  return "K " + coding_name(k_bits) + " V " + coding_name(v_bits);
}

}  // namespace

std::vector<PartReport> coding_report(const ModelRecord& record, const Profile& profile) {
  if (!validate(profile, record.model).ok()) return {};
  return report(record.model, profile);
}

std::vector<std::string> report_lines(const std::vector<PartReport>& report) {
  std::vector<LayerLine> said;
  for (const auto& line : report) {
    said.push_back({line.layer, "part " + std::to_string(line.part) + " " + to_string(line.kind) +
                                    " " + to_string(line.side) + ": requested " +
                                    coding_name(line.requested_bits) + ", active " +
                                    coding_name(line.active_bits) +
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

std::vector<std::string> report_lines(const std::vector<CodingReport>& report) {
  std::vector<LayerLine> said;
  for (const CodingReport& line : report) {
    said.push_back({line.layer, "part " + std::to_string(line.part) + " " + to_string(line.kind) +
                                    ": requested " +
                                    names_of(line.requested_k_bits, line.requested_v_bits) +
                                    ", active " + names_of(line.active_k_bits, line.active_v_bits) +
                                    (line.reason.empty() ? "" : ": " + line.reason)});
  }
  return lines_by_text(said);
}

Json report_json(const std::vector<CodingReport>& report) {
  Json out = Json::array();
  for (const CodingReport& line : report) {
    out.push_back({{"layer", line.layer},
                   {"part", line.part},
                   {"kind", to_string(line.kind)},
                   {"requested_k", coding_name(line.requested_k_bits)},
                   {"requested_v", coding_name(line.requested_v_bits)},
                   {"active_k", coding_name(line.active_k_bits)},
                   {"active_v", coding_name(line.active_v_bits)},
                   {"reason", line.reason}});
  }
  return out;
}

}  // namespace kv::cachectl
