// See demo_network.h.
#include "tools/demo_network.h"

#include "engine/model_network.h"

namespace kv {

Result<std::unique_ptr<Network>> demo_network(const std::string& model, uint32_t threads) {
  KV_ASSIGN_OR_RETURN(auto loaded, Model::load(model));
  return make_network(std::move(loaded), threads);
}

}  // namespace kv
