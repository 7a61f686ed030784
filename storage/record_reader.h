// Reading a record's file: a profile or a model record, every byte verified, and the one that its
// name says. The only place that does: starts, the tier, its verification and inspect call it. Any
// thread.
//
// `sealed_as`, and what is read under which key: file_reader.h. Return: as read_file(); corruption
// also if the file holds another record than it should.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "storage/files.h"
#include "storage/record_file.h"
#include "storage/seal_key.h"

namespace kv {

Result<std::shared_ptr<const Profile>> read_profile(Files& files, const std::string& path,
                                                    const Id& id, const SealKey* key,
                                                    std::string_view sealed_as = {});
/// `model`: see model_id().
Result<ModelRecord> read_model_record(Files& files, const std::string& path, const Id& model,
                                      uint64_t serial, const SealKey* key,
                                      std::string_view sealed_as = {});

}  // namespace kv
