// PartGroups: a model's part groups as realms and their jobs share them.
//
// Groups are made at their first use, as a start knows of many models that nobody will ask for; an
// open brings those that its worker made. Loop thread only; what shared() gives: any thread.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "proto/model.h"

namespace kv {

class PartGroups {
 public:
  using Groups = std::vector<PartGroup>;

  /// `made`: part_groups of that model; null: not yet.
  explicit PartGroups(std::shared_ptr<const ModelSpec> model,
                      std::shared_ptr<const Groups> made = nullptr)
      : model_(std::move(model)), made_(std::move(made)) {}
  const std::shared_ptr<const Groups>& shared() const {
    if (!made_) made_ = std::make_shared<const Groups>(part_groups(*model_));
    return made_;
  }

  const PartGroup& operator[](size_t group) const { return (*shared())[group]; }
  size_t size() const { return shared()->size(); }
  const PartGroup* data() const { return shared()->data(); }
  Groups::const_iterator begin() const { return shared()->begin(); }
  Groups::const_iterator end() const { return shared()->end(); }

 private:
  std::shared_ptr<const ModelSpec> model_;
  mutable std::shared_ptr<const Groups> made_;
};

}  // namespace kv
