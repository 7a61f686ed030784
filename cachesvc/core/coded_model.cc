// A CodedModel's bytes, counted before it is made; and its making.
#include "cachesvc/core/coded_model.h"

#include <algorithm>

#include "codec/plan.h"
#include "codec/transform.h"

namespace kv {
namespace {

constexpr uint64_t kPointer = sizeof(void*);
constexpr uint64_t kOwnPageBytes = 4096;      // large blocks are pages of their own
constexpr uint64_t kLargeBytes = 128u << 10;  // malloc's lowest threshold for them
constexpr uint64_t kReasonBytes = 64;         // reason text of a report
constexpr uint64_t kMaxCodedDim = 512;        // longer vectors are never coded
constexpr uint64_t kSides = 3;                // k, v, other: a codec has a place for each
constexpr uint64_t kFixedBytes = 4096;        // the part that doesn't grow with the model

// Bytes of one allocation, malloc's overhead included.
uint64_t heap(uint64_t bytes) {
  if (bytes == 0) return 0;
  return bytes + 3 * kPointer + (bytes >= kLargeBytes ? kOwnPageBytes : 0);
}

uint64_t text_bytes(const std::string& text) {
  return text.size() < sizeof(std::string) / 2 ? 0 : heap(text.size() + 1);
}

uint64_t sums_over_parts(const ModelSpec& spec, uint64_t (*of)(const PartSpec&)) {
  uint64_t bytes = 0;
  for (const auto& layer : spec.layers) {
    for (const PartSpec& part : layer.parts) bytes += of(part);
  }
  return bytes;
}

// Bytes that a codec keeps of a part beside its channels.
uint64_t side_bytes(const PartSpec& part) {
  uint64_t signs = 0;
  for (const SideSpec& side : sides_of(part)) {
    signs += heap(std::min<uint64_t>(side.dim, kMaxCodedDim) * sizeof(float)) + heap(64);
  }
  return sizeof(std::vector<SideCoding>) + heap(kSides * sizeof(SideCoding)) + signs;
}

// Upper bound: each part may be a group of its own; the list grows by doubling.
uint64_t group_bytes(const PartSpec& part) {
  return 2 * sizeof(PartGroup) + text_bytes(part.label) + heap(2 * sizeof(PartGroup::Member));
}

uint64_t report_bytes(const PartSpec&) { return 2 * sizeof(CodingReport) + heap(kReasonBytes); }

uint64_t channel_bytes(const Profile& profile, bool of_codec) {
  uint64_t bytes = 0;
  for (const auto& layer : profile.parts) {
    for (const PartCoding& part : layer) {
      uint64_t mean = part.key_mean.size() * sizeof(float);
      uint64_t gain = part.key_gain.size() * sizeof(float);
      // A codec has both, and the gains' inverses.
      bytes += of_codec ? 3 * heap(std::max(mean, gain)) : heap(mean) + heap(gain);
    }
  }
  return bytes;
}

// Vectors of a set, each one allocation.
uint64_t set_bytes(const Profile& profile) {
  if (!profile.transforms) return 0;
  const TransformSet& set = profile.transforms->set;
  uint64_t bytes = sizeof(SharedTransforms) + heap(2 * set.tables.size() * sizeof(IntegerTable)) +
                   heap(2 * set.rotations.size() * sizeof(Rotation)) +
                   heap(2 * set.transforms.size() * (sizeof(Transform) + sizeof(double)));
  for (const IntegerTable& t : set.tables) bytes += heap(t.counts.size() * sizeof(uint16_t));
  for (const Rotation& r : set.rotations) bytes += heap(r.step.size() * sizeof(float));
  for (const Transform& t : set.transforms) {
    bytes +=
        2 * heap(t.mean.size() * sizeof(float)) + heap(t.basis.size()) + 2 * heap(t.table.size());
  }
  return bytes;
}

// Memory that a codec makes of a set: tables of numbers, turns, and for each side that is coded by
// a transform the matrices both ways and the mean.
uint64_t coder_bytes(const ModelSpec& spec, const Profile& profile) {
  if (!profile.transforms) return 0;
  const TransformSet& set = profile.transforms->set;
  constexpr uint64_t kTableBytes =
      kTableTotal * sizeof(uint32_t) + 256 * sizeof(IntegerTables::Symbol);
  constexpr uint64_t kNearTurns = 2 * 256 * sizeof(float);  // sine and cosine of near positions
  uint64_t bytes = kFixedBytes + (set.tables.size() + kMaxLowBits) * (2 * 64 + heap(kTableBytes));
  for (const Rotation& r : set.rotations) bytes += heap(r.step.size() * (4 + kNearTurns)) + 256;
  for (size_t l = 0; l < spec.layers.size() && l < profile.parts.size(); ++l) {
    for (const PartCoding& part : profile.parts[l]) {
      for (Side side : {Side::k, Side::v}) {
        if (part.word(side) != kTransformWord) continue;
        if (part.transform(side) >= set.transforms.size()) continue;  // refused later
        const Transform& t = set.transforms[part.transform(side)];
        const uint64_t row = padded(t.width) * sizeof(float);
        bytes += sizeof(TransformCoder) + 64 + 2 * heap(t.mean.size() * row) +
                 heap(t.mean.size() / std::max<uint64_t>(t.width, 1) * row);
      }
    }
  }
  return bytes;
}

uint64_t part_codings(size_t layers, uint64_t parts) {
  return heap(layers * sizeof(std::vector<PartCoding>)) + layers * heap(1) +
         parts * sizeof(PartCoding);
}

uint64_t parts_of(const ModelSpec& spec) {
  return sums_over_parts(spec, [](const PartSpec&) { return uint64_t{1}; });
}

// The codec reports side by side; clients see one line per part.
std::vector<CodingReport> part_reports(const ModelSpec& model, const Profile& profile) {
  std::vector<CodingReport> out;
  for (const auto& side : report(model, profile)) {
    if (out.empty() || out.back().layer != side.layer || out.back().part != side.part) {
      CodingReport line;
      line.layer = static_cast<uint16_t>(side.layer);
      line.part = static_cast<uint16_t>(side.part);
      line.kind = side.kind;
      out.push_back(line);
    }
    CodingReport& line = out.back();
    bool k = side.side != Side::v, v = side.side != Side::k;
    if (k) line.requested_k_bits = side.requested_bits;
    if (k) line.active_k_bits = side.active_bits;
    if (v) line.requested_v_bits = side.requested_bits;
    if (v) line.active_v_bits = side.active_bits;
    if (line.reason.empty()) line.reason = side.reason;
  }
  return out;
}

}  // namespace

uint64_t held_bytes(const ModelSpec& spec) {
  uint64_t bytes = text_bytes(spec.name) + heap(spec.layers.size() * sizeof(LayerSpec));
  for (const LayerSpec& layer : spec.layers) bytes += heap(layer.parts.size() * sizeof(PartSpec));
  return kFixedBytes + bytes +
         sums_over_parts(spec, [](const PartSpec& part) { return text_bytes(part.label); });
}

uint64_t held_bytes(const Profile& profile) {
  uint64_t parts = 0;
  for (const auto& layer : profile.parts) parts += layer.size();
  return kFixedBytes + part_codings(profile.parts.size(), parts) + channel_bytes(profile, false) +
         set_bytes(profile);
}

uint64_t coded_model_bytes(const ModelSpec& spec, const Profile* profile) {
  const uint64_t layers = spec.layers.size();
  const uint64_t codec =
      held_bytes(spec) + sums_over_parts(spec, side_bytes) +
      layers * (sizeof(std::vector<SideCoding>) + heap(1)) +
      (profile ? channel_bytes(*profile, true) + coder_bytes(spec, *profile) : 0);
  const uint64_t coding = profile ? held_bytes(*profile)
                                  : kFixedBytes + part_codings(spec.layers.size(), parts_of(spec));
  return held_bytes(spec) + coding + codec + groups_bytes(spec) +
         sums_over_parts(spec, report_bytes);
}

uint64_t groups_bytes(const ModelSpec& spec) { return sums_over_parts(spec, group_bytes); }

Id coded_key(const ModelSpec& spec, const Id& profile) {
  ByteWriter out;
  out.bytes().reserve(held_bytes(spec));
  encode(spec, out);
  out.raw(profile.bytes);
  return sha256(out.span());
}

Result<std::shared_ptr<CodedModel>> make_coded_model(const ModelSpec& spec, const Profile& profile,
                                                     Charge& charge) {
  const uint64_t bytes = coded_model_bytes(spec, &profile);
  if (bytes > charge.bytes())
    return Status(StatusCode::busy, "model " + spec.name + ": larger than its record said");
  auto made = std::make_shared<CodedModel>();
  made->charge = charge.split(bytes);
  made->spec = std::make_shared<const ModelSpec>(spec);
  made->profile = std::make_shared<const Profile>(profile);
  KV_ASSIGN_OR_RETURN(made->codec, Codec::create(*made->spec, made->profile));
  made->groups = std::make_shared<const std::vector<PartGroup>>(part_groups(spec));
  made->reports = part_reports(spec, profile);
  made->profile_id = profile.id();
  made->key = coded_key(spec, made->profile_id);
  return made;
}

}  // namespace kv
