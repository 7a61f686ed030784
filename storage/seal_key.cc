// Keys from files and from the generator, subkeys by HKDF, and AES-256-GCM by libcrypto.
#include "storage/seal_key.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <vector>

#include "storage/private_file.h"

namespace kv {
namespace {

constexpr const char* kKeyIdPurpose = "cachesvc key id";
constexpr size_t kMaxKeyFileBytes = 2 * kSealKeyBytes + 1;  // 64 hex digits and a newline
constexpr size_t kMaxPurposeBytes = 64;

Status crypto_failed(const char* what) {
  return {StatusCode::io_error, std::string("libcrypto: ") + what + " failed"};
}

// HMAC-SHA256 into 32 bytes.
bool hmac(std::span<const uint8_t> key, std::span<const uint8_t> text, uint8_t* out) {
  unsigned size = 0;
  return HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), text.data(), text.size(), out,
              &size) != nullptr &&
         size == kSealKeyBytes;
}

int hex_digit(uint8_t c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// 64 hex digits and perhaps a newline; false if `text` is something else.
bool read_hex(std::span<const uint8_t> text, Subkey& out) {
  if (text.size() == 2 * kSealKeyBytes + 1 && text.back() == '\n') text = text.first(64);
  if (text.size() != 2 * kSealKeyBytes) return false;
  for (size_t i = 0; i < kSealKeyBytes; ++i) {
    int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out.bytes[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return true;
}

}  // namespace

std::string to_hex(const KeyId& id) {
  std::string out;
  for (uint8_t b : id) {
    out += "0123456789abcdef"[b >> 4];
    out += "0123456789abcdef"[b & 15];
  }
  return out;
}

Subkey::~Subkey() { OPENSSL_cleanse(bytes.data(), bytes.size()); }

SealKey::~SealKey() { OPENSSL_cleanse(secret_.data(), secret_.size()); }

Result<std::shared_ptr<const SealKey>> SealKey::create(
    std::span<const uint8_t, kSealKeyBytes> secret, bool ephemeral) {
  std::shared_ptr<SealKey> key(new SealKey());
  std::copy(secret.begin(), secret.end(), key->secret_.begin());
  key->ephemeral_ = ephemeral;
  Subkey id;
  KV_RETURN_IF_ERROR(key->derive({}, kKeyIdPurpose, id));
  std::copy_n(id.bytes.begin(), key->id_.size(), key->id_.begin());
  return std::shared_ptr<const SealKey>(std::move(key));
}

Result<std::shared_ptr<const SealKey>> SealKey::make_ephemeral() {
  Subkey secret;
  if (RAND_priv_bytes(secret.bytes.data(), static_cast<int>(secret.bytes.size())) != 1) {
    return crypto_failed("RAND_priv_bytes");
  }
  return create(secret.bytes, true);
}

// Extract, then the one block of expand that 32 bytes need (RFC 5869, 2.2 and 2.3).
Status SealKey::derive(std::span<const uint8_t> salt, std::string_view purpose, Subkey& out) const {
  constexpr uint8_t kNoSalt[kSealKeyBytes] = {};
  if (salt.empty()) salt = kNoSalt;
  KV_CHECK(purpose.size() <= kMaxPurposeBytes);
  std::array<uint8_t, kMaxPurposeBytes + 1> info;
  std::copy(purpose.begin(), purpose.end(), info.begin());
  info[purpose.size()] = 1;
  Subkey extracted;
  if (!hmac(salt, secret_, extracted.bytes.data()) ||
      !hmac(extracted.bytes, std::span(info).first(purpose.size() + 1), out.bytes.data())) {
    return crypto_failed("HMAC");
  }
  return {};
}

Result<std::shared_ptr<const SealKey>> read_key_file(const std::string& path) {
  std::array<uint8_t, kMaxKeyFileBytes + 1> text{};
  struct Wipe {
    std::span<uint8_t> bytes;
    ~Wipe() { OPENSSL_cleanse(bytes.data(), bytes.size()); }
  } wipe{text};
  KV_ASSIGN_OR_RETURN(size_t size, read_private("key file", path, text));
  if (size == kSealKeyBytes) return SealKey::create(std::span(text).first<kSealKeyBytes>());
  Subkey secret;
  if (!read_hex(std::span(text).first(size), secret)) {
    return invalid_argument("key file " + path + ": expected 32 bytes or 64 hex digits");
  }
  return SealKey::create(secret.bytes);
}

Result<std::shared_ptr<const SealKey>> seal_key_of(const std::string& setting) {
  if (setting.empty()) return std::shared_ptr<const SealKey>();
  return setting == "ephemeral" ? SealKey::make_ephemeral() : read_key_file(setting);
}

Status random_fill(std::span<uint8_t> out) {
  if (RAND_bytes(out.data(), static_cast<int>(out.size())) == 1) return {};
  return crypto_failed("RAND_bytes");
}

Gcm::~Gcm() { EVP_CIPHER_CTX_free(context_); }

Status Gcm::set_key(const Subkey& key, Direction direction) {
  int seals = direction == Direction::seal ? 1 : 0;
  if (context_ == nullptr) context_ = EVP_CIPHER_CTX_new();
  if (context_ == nullptr || EVP_CipherInit_ex(context_, EVP_aes_256_gcm(), nullptr,
                                               key.bytes.data(), nullptr, seals) != 1) {
    return crypto_failed("AES-256-GCM");
  }
  return {};
}

Status Gcm::start(const SealNonce& nonce, std::span<const uint8_t> associated) {
  int size = 0;
  if (EVP_CipherInit_ex(context_, nullptr, nullptr, nullptr, nonce.data(), -1) != 1 ||
      EVP_CipherUpdate(context_, nullptr, &size, associated.data(),
                       static_cast<int>(associated.size())) != 1) {
    return crypto_failed("AES-256-GCM");
  }
  return {};
}

Status Gcm::update(std::span<const uint8_t> in, uint8_t* out) {
  constexpr size_t kMaxStep = 1 << 30;  // libcrypto counts in int
  while (!in.empty()) {
    auto part = in.first(std::min(in.size(), kMaxStep));
    int size = 0;
    if (EVP_CipherUpdate(context_, out, &size, part.data(), static_cast<int>(part.size())) != 1 ||
        static_cast<size_t>(size) != part.size()) {
      return crypto_failed("AES-256-GCM");
    }
    in = in.subspan(part.size());
    out += part.size();
  }
  return {};
}

Status Gcm::finish_seal(std::span<uint8_t, kSealTagBytes> tag) {
  uint8_t nothing[kSealTagBytes];
  int size = 0;
  if (EVP_CipherFinal_ex(context_, nothing, &size) != 1 ||
      EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_GET_TAG, kSealTagBytes, tag.data()) != 1) {
    return crypto_failed("AES-256-GCM");
  }
  return {};
}

Status Gcm::finish_open(std::span<const uint8_t, kSealTagBytes> tag) {
  uint8_t nothing[kSealTagBytes];
  int size = 0;
  if (EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_SET_TAG, kSealTagBytes,
                          const_cast<uint8_t*>(tag.data())) != 1) {
    return crypto_failed("AES-256-GCM");
  }
  if (EVP_CipherFinal_ex(context_, nothing, &size) == 1) return {};
  return corruption("sealed bytes don't verify");
}

}  // namespace kv
