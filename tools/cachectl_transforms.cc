// The file, and the coding as a function on rows. See cachectl_transforms.h.
#include "tools/cachectl_transforms.h"

#include <algorithm>
#include <fstream>

#include "codec/float16.h"
#include "codec/transform.h"
#include "engine/teacher_link.h"

namespace kv::cachectl {

Status each_transformed_block(uint32_t first, std::span<float> rows, size_t width,
                              const std::function<Status(uint32_t, std::span<float>)>& code) {
  const auto end = static_cast<uint32_t>(first + rows.size() / width);
  for (uint32_t at = std::max(first, kExactTransformTokens); at < end;) {
    const uint32_t next = std::min(end, (at / kTeacherBlock + 1) * kTeacherBlock);
    KV_RETURN_IF_ERROR(code(at, rows.subspan((at - first) * width, (next - at) * width)));
    at = next;
  }
  return {};
}

bool is_transforms_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  uint32_t magic = 0;
  in.read(reinterpret_cast<char*>(&magic), 4);
  return in && magic == kTransformsMagic;
}

Result<TransformSet> read_transforms(const std::string& path, const ModelSpec& spec) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = in ? static_cast<std::streamoff>(in.tellg()) : -1;
  if (size < 0) return Status(StatusCode::not_found, "no transforms file " + path);
  const Status damaged = corruption("transforms file " + path + " is damaged");
  if (size > static_cast<std::streamoff>(kMaxTransformBytes)) return damaged;
  std::vector<uint8_t> bytes(static_cast<size_t>(size));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(bytes.data()), size);
  ByteReader reader(bytes);
  const uint32_t magic = reader.u32();
  const auto fingerprint = reader.raw(32), sum = reader.raw(32), body = reader.raw(reader.left());
  if (!in || magic != kTransformsMagic || reader.failed() ||
      !std::ranges::equal(sum, sha256(body).bytes)) {
    return damaged;
  }
  if (!std::ranges::equal(fingerprint, spec.fingerprint.bytes)) {
    return invalid_argument("transforms file " + path + " was made for another model");
  }
  ByteReader encoded(body);
  return decode_transforms(encoded);
}

Result<RowCoder> transform_coder(const ModelSpec& spec, const TransformSet& transforms,
                                 std::shared_ptr<CodedBytes> bytes) {
  KV_ASSIGN_OR_RETURN(auto parts, row_parts(spec));
  KV_ASSIGN_OR_RETURN(auto tables,
                      TransformTables::create(std::make_shared<const TransformSet>(transforms)));
  std::vector<std::shared_ptr<const TransformCoder>> coders(2 * spec.layers.size());
  size_t next = 0;
  for (const RowPart& at : parts) {
    for (const SideSpec& side : sides_of(at.spec)) {
      KV_ASSIGN_OR_RETURN(coders[2 * at.layer + (side.side == Side::v ? 1 : 0)],
                          TransformCoder::create(tables, next++, side.heads, side.dim));
    }
  }
  return RowCoder([coders = std::move(coders), bytes = std::move(bytes)](
                      uint32_t layer, Side side, uint32_t first, std::span<float> rows) -> Status {
    const auto& coder = coders[2 * layer + (side == Side::v ? 1 : 0)];
    bytes->whole += 2 * rows.size();
    bytes->stored += 2 * rows.size();
    auto code = [&](uint32_t at, std::span<float> block) -> Status {
      const auto stream = coder->encode(block, at);
      if (!stream || stream->size() >= 2 * block.size()) return {};
      bytes->stored -= 2 * block.size() - stream->size();
      const auto count = static_cast<uint32_t>(block.size() / coder->values());
      KV_RETURN_IF_ERROR(coder->decode(*stream, count, at, 0, count, block));
      for (float& x : block) x = half_to_float(float_to_half(std::clamp(x, -kHalfMax, kHalfMax)));
      return {};
    };
    return each_transformed_block(first, rows, coder->values(), code);
  });
}

}  // namespace kv::cachectl
