// Profile files and model records. FORMAT.md, "Record files".
#include "storage/record_file.h"

#include <algorithm>

#include "storage/file_frame.h"

namespace kv {
namespace {

Result<UnframedFile> unframe_kind(const Bytes& file, FileKind kind) {
  KV_ASSIGN_OR_RETURN(UnframedFile frame, unframe_file(file));
  if (frame.prefix.kind != kind) {
    return corruption(std::string("a ") + to_string(frame.prefix.kind) + " file, expected a " +
                      to_string(kind));
  }
  return frame;
}

}  // namespace

Result<EncodedFile> encode_profile_file(const Profile& profile) {
  ByteWriter payload;
  encode(profile, payload);
  ByteWriter header;
  header.raw(sha256(payload.span()).bytes);
  return frame_file(FileKind::profile, header.span(), {Bytes::owning(payload.take())},
                    profile.transforms ? kStreamVersion : kFileVersion);
}

Result<Profile> decode_profile_file(const Bytes& file) {
  KV_ASSIGN_OR_RETURN(UnframedFile frame, unframe_kind(file, FileKind::profile));
  ByteReader header(frame.header.span());
  Id id;
  read_id(header, id);
  if (!header.done()) return corruption("profile: header is not one id");
  if (sha256(frame.payload.span()) != id) {
    return corruption("profile: id does not follow from the content");
  }
  ByteReader in(frame.payload.span());
  KV_ASSIGN_OR_RETURN(Profile profile, decode_profile(in));
  if (!in.done()) return corruption("profile: bytes left over");
  if ((profile.transforms != nullptr) != (frame.prefix.version == kStreamVersion)) {
    return corruption("profile: transforms in a file of another version, or none in one of theirs");
  }
  return profile;
}

Result<EncodedFile> encode_model_record(const ModelRecord& record) {
  if (record.ns.size() > kMaxNamespaceBytes) return invalid_argument("namespace over its limit");
  ByteWriter header;
  header.raw(model_id(record.ns, record.model.fingerprint).bytes);
  header.string(record.ns);
  header.raw(record.model.fingerprint.bytes);
  header.raw(record.profile.bytes);
  header.u64(record.serial);
  ByteWriter payload;
  encode(record.model, payload);
  return frame_file(FileKind::model_record, header.span(), {Bytes::owning(payload.take())});
}

Result<ModelRecord> decode_model_record(const Bytes& file) {
  KV_ASSIGN_OR_RETURN(UnframedFile frame, unframe_kind(file, FileKind::model_record));
  ByteReader header(frame.header.span());
  ModelRecord record;
  Id id, fingerprint;
  read_id(header, id);
  record.ns = header.string(kMaxNamespaceBytes);
  read_id(header, fingerprint);
  read_id(header, record.profile);
  record.serial = header.u64();
  if (!header.done()) return corruption("model record: header is truncated or too long");
  if (id != model_id(record.ns, fingerprint)) {
    return corruption("model record: id does not follow from the content");
  }
  ByteReader in(frame.payload.span());
  KV_ASSIGN_OR_RETURN(record.model, decode_model(in));
  if (!in.done() || record.model.fingerprint != fingerprint) {
    return corruption("model record: bytes left over or another fingerprint");
  }
  return record;
}

}  // namespace kv
