// CodedModel: the memory of a client's model under one profile, and its charge.
//
// Clients choose its size, so it is charged first, then made on a worker. It is then immutable, and
// shared by every namespace and session that opens the same model under the same profile. The
// charge goes back with the last pointer to any part of it. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cachesvc/ram_pool.h"
#include "codec/codec.h"
#include "proto/client.h"

namespace kv {

struct CodedModel {
  Charge charge;  ///< first member: given back after all that it pays for
  Id key;         ///< names the model's and the profile's bytes
  Id profile_id;
  std::shared_ptr<const ModelSpec> spec;
  std::shared_ptr<const Profile> profile;
  std::shared_ptr<const Codec> codec;
  std::shared_ptr<const std::vector<PartGroup>> groups;
  std::vector<CodingReport> reports;
};

/// Copies spec and profile, so that nothing else of their owners is kept. Takes coded_model_bytes
/// out of `charge`. Returns: what Codec::create returns; busy if the charge is smaller.
Result<std::shared_ptr<CodedModel>> make_coded_model(const ModelSpec& spec, const Profile& profile,
                                                     Charge& charge);

/// A part of `whole`, alive as long as all of it.
template <typename T>
std::shared_ptr<T> part_of(const std::shared_ptr<const CodedModel>& whole,
                           const std::shared_ptr<T>& part) {
  return std::shared_ptr<T>(whole, part.get());
}

/// Upper bounds of memory. Null profile: the plain one.
uint64_t held_bytes(const ModelSpec& spec);
uint64_t held_bytes(const Profile& profile);
uint64_t coded_model_bytes(const ModelSpec& spec, const Profile* profile);

/// Bytes of part_groups(spec), among those of coded_model_bytes.
uint64_t groups_bytes(const ModelSpec& spec);

/// Names the model's and the profile's bytes.
Id coded_key(const ModelSpec& spec, const Id& profile);

/// Binds a charge to a value: it goes back with the last pointer.
template <typename T>
std::shared_ptr<const T> charged(std::shared_ptr<const T> value, Charge charge) {
  struct Paid {
    std::shared_ptr<const T> value;
    Charge charge;
  };
  auto paid = std::make_shared<Paid>(Paid{std::move(value), std::move(charge)});
  return std::shared_ptr<const T>(paid, paid->value.get());
}

}  // namespace kv
