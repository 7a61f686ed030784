// CodedModel: all that a client's model takes in memory under one profile, and its charge.
//
// Clients size it, so it is charged before it is made, and made on a worker. Immutable then, and
// shared: by every namespace and session that opens the same model under the same profile. The
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
  Charge charge;  ///< first: it goes back when all that it pays for has
  Id key;         ///< of the model's and the profile's bytes
  Id profile_id;
  std::shared_ptr<const ModelSpec> spec;
  std::shared_ptr<const Profile> profile;
  std::shared_ptr<const Codec> codec;
  std::shared_ptr<const std::vector<PartGroup>> groups;
  std::vector<CodingReport> reports;
};

/// Copies both: what else their owners hold is not kept with them. Takes coded_model_bytes out of
/// `charge`. Returns: what Codec::create returns; busy if the charge is smaller.
Result<std::shared_ptr<CodedModel>> make_coded_model(const ModelSpec& spec, const Profile& profile,
                                                     Charge& charge);

/// A part of `whole`, alive as long as all of it.
template <typename T>
std::shared_ptr<T> part_of(const std::shared_ptr<const CodedModel>& whole,
                           const std::shared_ptr<T>& part) {
  return std::shared_ptr<T>(whole, part.get());
}

/// Upper bounds of what they take in memory. Without a profile: of the plain one.
uint64_t held_bytes(const ModelSpec& spec);
uint64_t held_bytes(const Profile& profile);
uint64_t coded_model_bytes(const ModelSpec& spec, const Profile* profile);

/// Bytes of part_groups(spec), among those of coded_model_bytes.
uint64_t groups_bytes(const ModelSpec& spec);

/// Names the model's and the profile's bytes.
Id coded_key(const ModelSpec& spec, const Id& profile);

/// The same value; the charge goes back with the last pointer to it.
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
