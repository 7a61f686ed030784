// The demo_step of the tests: runs the models of tests/tiny by their names. See demo_network.h.
#include "tools/demo_network.h"

#include "tests/tiny/tiny_model.h"

namespace kv {

Result<std::unique_ptr<Network>> demo_network(const std::string& model, uint32_t) {
  return tiny::make_tiny(model, 1);
}

}  // namespace kv
