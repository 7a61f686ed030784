// SealKey: the secret that the store's files and catalog rows are sealed with. FORMAT.md, "Sealed
// files".
//
// The key is 32 bytes, from a file of the user's or made anew in memory. They are wiped when the
// key goes, and no message, log or file names them: only the key's id is shown. The master key
// encrypts nothing itself: every file and every run of rows has a subkey of its own, derived with a
// random salt of 256 bits, so that no (key, nonce) is ever used twice. Immutable: any thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "proto/status.h"

struct evp_cipher_ctx_st;

namespace kv {

inline constexpr size_t kSealKeyBytes = 32;
inline constexpr size_t kSealSaltBytes = 32;
inline constexpr size_t kSealTagBytes = 16;
inline constexpr size_t kSealNonceBytes = 12;
using KeyId = std::array<uint8_t, 16>;
using SealSalt = std::array<uint8_t, kSealSaltBytes>;
using SealNonce = std::array<uint8_t, kSealNonceBytes>;

/// 32 lower-case hex digits.
std::string to_hex(const KeyId& id);

/// Secret bytes, wiped when they go.
struct Subkey {
  std::array<uint8_t, kSealKeyBytes> bytes{};
  Subkey() = default;
  ~Subkey();
  Subkey(const Subkey&) = delete;  // one place to wipe
  Subkey& operator=(const Subkey&) = delete;
};

class SealKey {
 public:
  /// `secret` is copied; the caller wipes its own. `ephemeral`: kept in memory only, so that what
  /// it sealed can be read by nobody once it is gone.
  static Result<std::shared_ptr<const SealKey>> create(
      std::span<const uint8_t, kSealKeyBytes> secret, bool ephemeral = false);
  /// A random key that is nowhere but in this object. Returns: io_error (no randomness).
  static Result<std::shared_ptr<const SealKey>> make_ephemeral();
  ~SealKey();
  SealKey(const SealKey&) = delete;  // one place to wipe
  SealKey& operator=(const SealKey&) = delete;

  const KeyId& id() const { return id_; }
  bool ephemeral() const { return ephemeral_; }
  /// HKDF-SHA256 (RFC 5869) of the key with `salt` and `purpose`, 32 bytes. Returns: io_error
  /// (libcrypto failed).
  Status derive(std::span<const uint8_t> salt, std::string_view purpose, Subkey& out) const;

 private:
  SealKey() = default;
  std::array<uint8_t, kSealKeyBytes> secret_{};
  KeyId id_{};
  bool ephemeral_ = false;
};

/// The key in a file of 32 bytes, or of 64 hex digits and perhaps a newline.
/// Returns: invalid_argument naming what is wrong: no regular file, of another user, readable or
/// writable by others (mode & 077), of another length; io_error.
Result<std::shared_ptr<const SealKey>> read_key_file(const std::string& path);
/// The key of `tier.ssd.key_file`: null if empty, a random key for "ephemeral", else read_key_file.
/// Returns: as they do.
Result<std::shared_ptr<const SealKey>> seal_key_of(const std::string& setting);

/// Fills `out` from the operating system's generator. Returns: io_error.
Status random_fill(std::span<uint8_t> out);

/// AES-256-GCM in one direction under one subkey, message by message. One thread at a time.
class Gcm {
 public:
  enum class Direction : uint8_t { seal, open };
  Gcm() = default;
  ~Gcm();
  Gcm(const Gcm&) = delete;  // owns libcrypto's context
  Gcm& operator=(const Gcm&) = delete;

  Status set_key(const Subkey& key, Direction direction);
  /// Starts a message: its nonce, and the bytes that are authenticated beside it.
  Status start(const SealNonce& nonce, std::span<const uint8_t> associated);
  /// `out` has in.size() bytes and is `in` itself or apart from it. What is opened may not be used
  /// before finish_open said ok.
  Status update(std::span<const uint8_t> in, uint8_t* out);
  Status finish_seal(std::span<uint8_t, kSealTagBytes> tag);
  /// Returns: corruption if anything differs from what was sealed.
  Status finish_open(std::span<const uint8_t, kSealTagBytes> tag);

 private:
  evp_cipher_ctx_st* context_ = nullptr;
};

}  // namespace kv
