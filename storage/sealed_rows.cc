// Rows sealed one by one: salt, counter, ciphertext, tag.
#include "storage/sealed_rows.h"

#include <algorithm>
#include <cstring>

#include "storage/file_frame.h"

namespace kv {
namespace {

constexpr const char* kRowPurpose = "cachesvc catalog";
constexpr size_t kCounterBytes = 8;
constexpr size_t kFrontBytes = kSealSaltBytes + kCounterBytes;

SealNonce nonce_of(uint64_t counter) {
  SealNonce nonce{};
  std::memcpy(nonce.data(), &counter, sizeof(counter));
  return nonce;
}

void write_fields(const Object& o, ByteWriter& out) {
  out.raw(o.parent.bytes);
  out.raw(o.profile.bytes);
  out.string(o.ns);
  out.raw(o.fingerprint.bytes);
  out.u32(o.first_token);
  out.array(std::span(o.tokens));
  out.u32(static_cast<uint32_t>(o.extras.size()));
  for (const auto& e : o.extras) {
    out.u32(e.position);
    out.blob(e.bytes);
  }
}

bool read_fields(ByteReader& in, Object& o) {
  read_id(in, o.parent);
  read_id(in, o.profile);
  o.ns = in.string(kMaxNamespaceBytes);
  read_id(in, o.fingerprint);
  o.first_token = in.u32();
  o.tokens = in.array<Token>(kMaxBlockTokens);
  uint32_t count = in.u32();
  if (count > kMaxExtras) in.fail();
  for (uint32_t i = 0; i < count && !in.failed(); ++i) {
    uint32_t position = in.u32();
    auto bytes = in.blob(kMaxExtraBytes);
    o.extras.push_back({position, {bytes.begin(), bytes.end()}});
  }
  return in.done();
}

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

Result<std::vector<uint8_t>> SealedRows::seal(const std::string& file, const Object& header) {
  ByteWriter fields;
  write_fields(header, fields);
  return seal(file, {}, fields.span());
}

Result<std::vector<uint8_t>> SealedRows::seal(const std::string& file, std::string_view what,
                                              std::span<const uint8_t> plain) {
  if (!sealing_.ready) {
    KV_RETURN_IF_ERROR(random_fill(sealing_.salt));
    Subkey subkey;
    KV_RETURN_IF_ERROR(key_.derive(sealing_.salt, kRowPurpose, subkey));
    KV_RETURN_IF_ERROR(sealing_.gcm.set_key(subkey, Gcm::Direction::seal));
    sealing_.ready = true;
  }
  ByteWriter out;
  out.raw(sealing_.salt);
  out.u64(next_);
  out.raw(plain);
  auto fields = std::span(out.bytes()).subspan(kFrontBytes);
  std::array<uint8_t, kSealTagBytes> tag;
  const std::string bound = file + std::string(what);
  KV_RETURN_IF_ERROR(sealing_.gcm.start(nonce_of(next_++), bytes_of(bound)));
  KV_RETURN_IF_ERROR(sealing_.gcm.update(fields, fields.data()));
  KV_RETURN_IF_ERROR(sealing_.gcm.finish_seal(tag));
  out.raw(tag);
  return out.take();
}

Status SealedRows::open(const std::string& file, std::span<const uint8_t> sealed, Object& header) {
  KV_ASSIGN_OR_RETURN(auto fields, open(file, {}, sealed));
  ByteReader opened(fields);
  return read_fields(opened, header) ? Status() : corruption("sealed row: fields don't decode");
}

Result<std::vector<uint8_t>> SealedRows::open(const std::string& file, std::string_view what,
                                              std::span<const uint8_t> sealed) {
  if (sealed.size() < kFrontBytes + kSealTagBytes) return corruption("sealed row is truncated");
  ByteReader in(sealed);
  auto salt = in.raw(kSealSaltBytes);
  uint64_t counter = in.u64();
  if (!opening_.ready || !std::equal(salt.begin(), salt.end(), opening_.salt.begin())) {
    opening_.ready = false;
    Subkey subkey;
    KV_RETURN_IF_ERROR(key_.derive(salt, kRowPurpose, subkey));
    KV_RETURN_IF_ERROR(opening_.gcm.set_key(subkey, Gcm::Direction::open));
    std::copy(salt.begin(), salt.end(), opening_.salt.begin());
    opening_.ready = true;
  }
  auto text = in.raw(in.left() - kSealTagBytes);
  std::vector<uint8_t> fields(text.size());
  const std::string bound = file + std::string(what);
  KV_RETURN_IF_ERROR(opening_.gcm.start(nonce_of(counter), bytes_of(bound)));
  KV_RETURN_IF_ERROR(opening_.gcm.update(text, fields.data()));
  KV_RETURN_IF_ERROR(opening_.gcm.finish_open(in.raw(kSealTagBytes).first<kSealTagBytes>()));
  return fields;
}

}  // namespace kv
