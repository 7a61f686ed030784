// Known configurations of models, for `cachectl kinds` without a file. Constants.
#pragma once

#include <span>

namespace kv::cachectl {

/// The keys of a model's config.json that decide its cache, as published at huggingface.co/NAME.
struct KnownConfig {
  const char* name;
  const char* config;
};

std::span<const KnownConfig> known_configs();

}  // namespace kv::cachectl
