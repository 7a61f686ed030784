// Checksums on kept libraries: OpenSSL (SHA-256 with the CPU's SHA instructions), xxHash,
// Boost.CRC.
#include "proto/checksum.h"

#include <openssl/evp.h>

#include <array>
#include <boost/crc.hpp>
#include <memory>
#include <new>

// -Og, of the build with ASan, inlines no function that is handed on.
#if defined(__SANITIZE_ADDRESS__)
#define XXH_NO_INLINE_HINTS 1
#endif

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <xxh_x86dispatch.h>  // of the library: with AVX2 or AVX-512, whatever this is built for
#else                         // sanitizers see what is hashed
#define XXH_INLINE_ALL
#include <xxhash.h>
#endif

namespace kv {
namespace {

// The library looks at the processor in its first call of more than 240 bytes, which two threads
// must not make at once.
[[maybe_unused]] const XXH128_hash_t kFirstCall = [] {
  static constexpr uint8_t kZeros[512]{};
  return XXH3_128bits(kZeros, sizeof(kZeros));
}();

}  // namespace

std::string Id::hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out(64, '0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    out[2 * i] = kDigits[bytes[i] >> 4];
    out[2 * i + 1] = kDigits[bytes[i] & 15];
  }
  return out;
}

// The value of each hex digit, -1 for other characters.
constexpr auto kDigitValues = [] {
  std::array<int8_t, 256> values;
  values.fill(-1);
  for (int8_t i = 0; i < 16; ++i) values["0123456789abcdef"[i]] = i;
  return values;
}();

Result<Id> id_from_hex(std::string_view hex) {
  Id id;
  if (hex.size() != 64) return invalid_argument("id: expected 64 hex digits");
  int bad = 0;  // negative once a digit is none
  for (size_t i = 0; i < 64; i += 2) {
    int high = kDigitValues[static_cast<uint8_t>(hex[i])];
    int low = kDigitValues[static_cast<uint8_t>(hex[i + 1])];
    bad |= high | low;
    id.bytes[i / 2] = static_cast<uint8_t>(high << 4 | low);
  }
  if (bad < 0) return invalid_argument("id: expected lower-case hex digits");
  return id;
}

Id sha256(std::span<const uint8_t> bytes) {
  // Made once: to look the algorithm up and to make a context takes longer than to hash.
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  using Context = std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)>;
  thread_local const Context context = [] {
    Context made(EVP_MD_CTX_new(), EVP_MD_CTX_free);
    return made ? std::move(made) : throw std::bad_alloc();  // the next call tries again
  }();
  KV_CHECK(algorithm != nullptr);
  Id id;
  KV_CHECK(EVP_DigestInit_ex2(context.get(), algorithm, nullptr) == 1 &&
           EVP_DigestUpdate(context.get(), bytes.data(), bytes.size()) == 1 &&
           EVP_DigestFinal_ex(context.get(), id.bytes.data(), nullptr) == 1);
  return id;
}

Xxh128 xxh3_128(std::span<const uint8_t> bytes) {
  XXH128_hash_t h = XXH3_128bits(bytes.data(), bytes.size());
  return {h.low64, h.high64};
}

Xxh128Stream::Xxh128Stream() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_));
}
Xxh128Stream::~Xxh128Stream() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }
void Xxh128Stream::update(std::span<const uint8_t> bytes) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), bytes.data(), bytes.size());
}
Xxh128 Xxh128Stream::digest() const {
  XXH128_hash_t h = XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_));
  return {h.low64, h.high64};
}

uint32_t crc32c(std::span<const uint8_t> bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

uint16_t crc16(std::span<const uint8_t> bytes) {
  boost::crc_optimal<16, 0x1021, 0, 0, false, false> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

}  // namespace kv
