// One prefill of the calibration text, and the file that keeps its result. See calibration.h.
#include "engine/calibration.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "codec/calibrate.h"
#include "engine/prefill.h"

namespace kv {
namespace {

constexpr uint32_t kFileMagic = 0x314C434B;  // "KCL1"

// Layout: magic, model fingerprint, id of the base profile, SHA-256 of the profile's bytes, those.
Result<Profile> read_file(const std::string& path, const Model& model, const Id& base) {
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
  bool fits = in && magic == kFileMagic && is_id(model.spec().fingerprint) && is_id(base);
  auto sum = reader.raw(32);
  auto body = reader.raw(reader.left());
  if (!fits || reader.failed() || !std::equal(sum.begin(), sum.end(), sha256(body).bytes.begin())) {
    return corruption("calibration file " + path + " is another model's or damaged");
  }
  ByteReader profile(body);
  return decode_profile(profile);
}

void write_file(const std::string& path, const Model& model, const Id& base, const Profile& made) {
  ByteWriter body, out;
  encode(made, body);
  out.u32(kFileMagic);
  out.raw(model.spec().fingerprint.bytes);
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

Result<Profile> calibrate(const Model& model, const Profile& base, Threads& threads,
                          Deadline deadline) {
  KV_ASSIGN_OR_RETURN(auto tokens, model.tokenizer().encode(kCalibrationText));
  tokens.resize(
      std::min({tokens.size(), size_t{kCalibrationTokens}, size_t{model.shape().context}}));
  KeyStatistics statistics(model.spec());
  const ModelShape& s = model.shape();
  auto source = [](uint32_t, Side, float*) { return Status(); };
  auto sink = [&](uint32_t layer, uint32_t rows, const float* k, const float*) {
    return statistics.add_keys(layer, 0, 0, {k, size_t{rows} * s.kv_heads * s.head_dim});
  };
  Prefill prefill(model, threads, base.block_tokens);
  KV_RETURN_IF_ERROR(prefill.run(tokens, 0, source, sink, deadline));
  return statistics.calibrated(base);
}

Result<Profile> calibrate_with_file(const Model& model, const Profile& base, Threads& threads,
                                    const std::string& path, Deadline deadline) {
  Id id = base.id();
  if (auto kept = read_file(path, model, id); kept.ok() && validate(*kept, model.spec()).ok()) {
    return kept;
  }
  KV_ASSIGN_OR_RETURN(Profile made, calibrate(model, base, threads, deadline));
  write_file(path, model, id, made);
  return made;
}

}  // namespace kv
