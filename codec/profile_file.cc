// Reading and writing of profile files. See profile_file.h.
#include "codec/profile_file.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <vector>

#include "proto/bytes.h"
#include "proto/checksum.h"
#include "proto/limits.h"

namespace kv {
namespace {

constexpr uint32_t kFileMagic = 0x314C434B;  // "KCL1"

}  // namespace

Result<ProfileFile> read_profile_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = in ? static_cast<std::streamoff>(in.tellg()) : -1;
  if (size < 0) return Status(StatusCode::not_found, "no profile file " + path);
  const Status damaged = corruption("profile file " + path + " is damaged");
  if (size == 0 || size > static_cast<std::streamoff>(kMaxProfileBytes)) return damaged;
  std::vector<uint8_t> bytes(static_cast<size_t>(size));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(bytes.data()), size);
  ByteReader reader(bytes);
  ProfileFile file;
  const uint32_t magic = reader.u32();
  std::ranges::copy(reader.raw(32), file.fingerprint.bytes.begin());
  std::ranges::copy(reader.raw(32), file.base.bytes.begin());
  auto sum = reader.raw(32);
  auto body = reader.raw(reader.left());
  if (!in || magic != kFileMagic || reader.failed() ||
      !std::ranges::equal(sum, sha256(body).bytes)) {
    return damaged;
  }
  ByteReader encoded(body);
  KV_ASSIGN_OR_RETURN(file.profile, decode_profile(encoded));
  return file;
}

Result<Profile> read_profile_file(const std::string& path, const ModelSpec& model, const Id* base) {
  KV_ASSIGN_OR_RETURN(ProfileFile file, read_profile_file(path));
  if (file.fingerprint != model.fingerprint || (base != nullptr && file.base != *base)) {
    const bool same_model = file.fingerprint == model.fingerprint;
    return invalid_argument("profile file " + path + " was made " +
                            (same_model ? "from another profile" : "for another model"));
  }
  KV_RETURN_IF_ERROR(validate(file.profile, model));
  return file.profile;
}

Status write_profile_file(const std::string& path, const ModelSpec& model, const Id& base,
                          const Profile& profile) {
  ByteWriter body, out;
  encode(profile, body);
  out.u32(kFileMagic);
  out.raw(model.fingerprint.bytes);
  out.raw(base.bytes);
  out.raw(sha256(body.span()).bytes);
  out.raw(body.span());
  const std::string temporary = path + "." + std::to_string(::getpid());
  std::ofstream file(temporary, std::ios::binary);
  file.write(reinterpret_cast<const char*>(out.span().data()),
             static_cast<std::streamsize>(out.size()));
  file.close();
  if (file && std::rename(temporary.c_str(), path.c_str()) == 0) return {};
  std::remove(temporary.c_str());
  return {StatusCode::io_error, "can't write " + path};
}

}  // namespace kv
