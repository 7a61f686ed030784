// tiny_model: the model of tests/support/tiny_gguf.h, loaded once per process.
#pragma once

#include <memory>

#include "engine/model.h"
#include "tests/support/tiny_gguf.h"

namespace kv {

inline std::shared_ptr<const Model> tiny_model() {
  static std::shared_ptr<const Model> model = [] {
    auto file = GgufFile::parse(Bytes::owning(TinyGguf().write()));
    KV_CHECK(file.ok());
    auto loaded = Model::load(std::move(*file));
    KV_CHECK(loaded.ok());
    return *loaded;
  }();
  return model;
}

}  // namespace kv
