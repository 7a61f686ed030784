// Fuzz target: a sealed file as the tier reads it, from memory, with the key of the corpus. What
// opens must be the plain file that was sealed, of the lengths that the envelope says.
#include "storage/sealed_file.h"

#include "tests/support/storage_decode_file.h"

namespace {

// The key of SealedFile.GoldenFile (tests/storage_sealed_file_test.cc: it checks that the corpus
// opens).
std::shared_ptr<const kv::SealKey> corpus_key() {
  std::array<uint8_t, kv::kSealKeyBytes> secret;
  secret.fill(1);
  return *kv::SealKey::create(secret);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto key = corpus_key();
  std::vector<uint8_t> file(data, data + size);
  auto envelope = kv::decode_envelope(file);
  if (!envelope.ok() || !kv::check_lengths(*envelope, size).ok()) return 0;
  if (envelope->key_id != key->id()) return 0;
  std::span<uint8_t> bytes(file);
  auto front = bytes.first(envelope->head_at()), plain = bytes.subspan(envelope->head_at());
  kv::FileOpener opener;
  if (!opener.start(*key, "golden", front, *envelope).ok()) return 0;
  bool opened = opener.open(plain).ok();
  if (opened != opener.done()) __builtin_trap();
  if (opened && !kv::testing::decode_file(kv::Bytes::copy_of(plain)).ok()) __builtin_trap();
  return 0;
}
