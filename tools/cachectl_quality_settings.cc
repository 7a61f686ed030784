// Presets, profile files and other systems' formats as functions on rows.
#include "tools/cachectl_quality_settings.h"

#include <algorithm>
#include <cmath>

#include "codec/float16.h"
#include "codec/plan.h"
#include "codec/preset.h"
#include "codec/profile_file.h"
#include "engine/calibration.h"
#include "engine/model_network.h"
#include "tools/cachectl_teacher.h"

namespace kv::cachectl {
namespace {

constexpr uint32_t kBlockValues = 32;  // of llama.cpp's formats

Result<QualitySetting> blocks(const std::string& name, const ModelSpec& spec, double block_bytes,
                              void (*round)(float*)) {
  KV_ASSIGN_OR_RETURN(auto parts, row_parts(spec));
  for (const RowPart& part : parts) {
    for (const SideSpec& side : sides_of(part.spec)) {
      const uint32_t width = side.heads * side.dim;
      if (width % kBlockValues == 0) continue;
      return invalid_argument("setting " + name + ": rows of " + std::to_string(width) +
                              " values are no whole blocks of 32");
    }
  }
  QualitySetting setting{name, block_bytes / (2 * kBlockValues), true, {}, nullptr};
  setting.coder = [round](uint32_t, Side, uint32_t, std::span<float> rows) -> Status {
    for (size_t at = 0; at < rows.size(); at += kBlockValues) round(rows.data() + at);
    return {};
  };
  return setting;
}

Result<QualitySetting> profiled(const std::string& name, const ModelSpec& spec, Profile profile,
                                uint32_t tokens) {
  QualitySetting setting{name, stored_ratio(spec, profile, tokens), false, {}, nullptr};
  KV_ASSIGN_OR_RETURN(auto codec,
                      Codec::create(spec, std::make_shared<const Profile>(std::move(profile))));
  std::shared_ptr<CodedBytes> bytes;  // of streams, which depend on the rows
  if (codec->profile().transforms) setting.bytes = bytes = std::make_shared<CodedBytes>();
  KV_ASSIGN_OR_RETURN(setting.coder, coder_of(std::move(codec), std::move(bytes)));
  return setting;
}

// One bit is no preset: nobody would want it.
Result<Preset> bits_of(const std::string& name) {
  return name == "tq1" ? Preset{"tq1", 1, 1} : find_preset(name);
}

// Without means, gains and exact tokens.
Result<Profile> plain(const ModelSpec& spec, uint8_t k_bits, uint8_t v_bits) {
  CodingSettings settings;
  settings.k_bits = k_bits;
  settings.v_bits = v_bits;
  settings.exact_tokens = 0;
  return plain_profile(spec, settings);
}

Result<QualitySetting> words3(const ModelSpec& spec, uint32_t tokens) {
  KV_ASSIGN_OR_RETURN(Profile profile, plain(spec, 3, 3));
  KV_ASSIGN_OR_RETURN(QualitySetting setting, profiled("words3", spec, std::move(profile), tokens));
  KV_ASSIGN_OR_RETURN(auto parts, row_parts(spec));
  double words = 0, whole = 0;  // bytes of a row
  for (const RowPart& part : parts) {
    for (const SideSpec& side : sides_of(part.spec)) {
      words += side.heads * ((side.dim + 9) / 10 * 4.0 + 4);
      whole += side.heads * (2.0 * side.dim);
    }
  }
  setting.ratio = words / whole;
  setting.by_rows = true;
  return setting;
}

}  // namespace

Result<CalibratedModel> load_calibrated(const std::string& path, uint32_t threads) {
  CalibratedModel out;
  KV_ASSIGN_OR_RETURN(out.model, Model::load(path));
  out.spec = out.model->spec();
  KV_ASSIGN_OR_RETURN(auto network, make_network(out.model, threads));
  CodingSettings settings;
  settings.k_bits = settings.v_bits = 8;
  KV_ASSIGN_OR_RETURN(Profile base, plain_profile(out.spec, settings));
  KV_ASSIGN_OR_RETURN(out.profile, calibrate(*network, base, Deadline::max()));
  return out;
}

Result<CalibratedModel> calibrated_by(TeacherLink& link) {
  CalibratedModel out{nullptr, link.spec(), {}};
  KV_ASSIGN_OR_RETURN(out.profile, calibrate(link));
  return out;
}

Result<RowCoder> coder_of(std::shared_ptr<const Codec> codec, std::shared_ptr<CodedBytes> counted) {
  KV_ASSIGN_OR_RETURN(auto parts, row_parts(codec->model()));
  std::vector<uint32_t> part_of(codec->model().layers.size());
  for (const RowPart& part : parts) part_of[part.layer] = part.part;
  return RowCoder([codec = std::move(codec), part_of = std::move(part_of),
                   counted = std::move(counted)](uint32_t layer, Side side, uint32_t first,
                                                 std::span<float> rows) -> Status {
    const SideCoding* coding = codec->side(layer, part_of[layer], side);
    KV_CHECK(coding != nullptr && coding->heads > 0);
    Plane plane;
    plane.layer = static_cast<uint16_t>(layer);
    plane.part = static_cast<uint8_t>(part_of[layer]);
    plane.side = side;
    plane.dtype = DType::f32;
    plane.heads = coding->heads;
    plane.dim = coding->dim;
    plane.first_row = first;
    const auto count = static_cast<uint32_t>(rows.size() / (coding->heads * coding->dim));
    plane.runs = {{RunForm::exact, count}};
    auto* bytes = reinterpret_cast<uint8_t*>(rows.data());
    plane.bytes = Bytes(nullptr, bytes, rows.size_bytes());
    KV_ASSIGN_OR_RETURN(Plane stored, codec->encode(plane));
    if (counted) {
      counted->whole += 2 * rows.size();
      counted->stored += stored.bytes.size();
      KV_ASSIGN_OR_RETURN(stored, codec->decoded(stored, coding->raw_dtype));
    }
    return codec->decode_rows(stored, first, first + count, DType::f32, {bytes, rows.size_bytes()});
  });
}

// ggml-quants.c, quantize_row_q8_0_ref: the scale is rounded to fp16 after the codes are made.
void round_q8_0(float* block) {
  float largest = 0;
  for (uint32_t i = 0; i < kBlockValues; ++i) largest = std::max(largest, std::fabs(block[i]));
  const float step = largest / 127.0f, inverse = step != 0 ? 1.0f / step : 0;
  const float stored = half_to_float(float_to_half(step));
  for (uint32_t i = 0; i < kBlockValues; ++i) block[i] = std::round(block[i] * inverse) * stored;
}

// ggml-quants.c, quantize_row_q4_0_ref: the value of largest size becomes -8.
void round_q4_0(float* block) {
  float extreme = 0;
  for (uint32_t i = 0; i < kBlockValues; ++i) {
    if (std::fabs(block[i]) > std::fabs(extreme)) extreme = block[i];
  }
  const float step = extreme / -8.0f, inverse = step != 0 ? 1.0f / step : 0;
  const float stored = half_to_float(float_to_half(step));
  for (uint32_t i = 0; i < kBlockValues; ++i) {
    const auto code = static_cast<int>(block[i] * inverse + 8.5f);
    block[i] = static_cast<float>(std::min(code, 15) - 8) * stored;
  }
}

Result<QualitySetting> make_setting(const std::string& name, const CalibratedModel& model,
                                    uint32_t tokens) {
  const ModelSpec& spec = model.spec;
  if (name == "q8_0") return blocks(name, spec, 34, round_q8_0);
  if (name == "q4_0") return blocks(name, spec, 18, round_q4_0);
  if (name == "words3") return words3(spec, tokens);
  if (name.find('/') != name.npos) {
    KV_ASSIGN_OR_RETURN(Profile profile, read_profile_file(name, spec, nullptr));
    return profiled(name.substr(name.rfind('/') + 1), spec, std::move(profile), tokens);
  }
  const size_t dash = name.find('-');
  const std::string kind = dash == name.npos ? "" : name.substr(dash + 1);
  auto preset = bits_of(name.substr(0, dash));
  if (!preset.ok() || (!kind.empty() && kind != "mean" && kind != "plain")) {
    std::string known;
    for (const Preset& p : presets()) known += std::string(p.name) + ", ";
    return invalid_argument(
        "setting \"" + name + "\": expected one of " + known +
        "tq1, the same with -mean or -plain, q8_0, q4_0, words3, or the path of a "
        "profile file (with a /)");
  }
  if (kind == "plain") {
    KV_ASSIGN_OR_RETURN(Profile profile, plain(spec, preset->k_bits, preset->v_bits));
    return profiled(name, spec, std::move(profile), tokens);
  }
  Profile profile = model.profile;
  KV_ASSIGN_OR_RETURN(auto rows, row_parts(spec));
  for (const RowPart& at : rows) {
    PartCoding& part = profile.parts[at.layer][at.part];
    part.k_bits = preset->k_bits;
    part.v_bits = preset->v_bits;
    if (kind == "mean") std::ranges::fill(part.key_gain, 1.0f);
  }
  return profiled(name, spec, std::move(profile), tokens);
}

}  // namespace kv::cachectl
