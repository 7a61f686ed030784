// See experts.h.
#include "tests/tiny/experts.h"

#include <algorithm>

namespace kv::tiny {

GatedNetwork::GatedNetwork(const Formula& formula, const std::string& name, uint32_t width,
                           uint32_t inner, float most)
    : gate(formula, name + ".gate_proj.weight", inner, width),
      up(formula, name + ".up_proj.weight", inner, width),
      down(formula, name + ".down_proj.weight", width, inner),
      limit(most) {}

void GatedNetwork::add(const float* x, float weight, float* out) const {
  std::vector<float> g(gate.rows), u(gate.rows), y(down.rows);
  gate.apply(x, g.data());
  up.apply(x, u.data());
  for (size_t i = 0; i < g.size(); ++i) {
    g[i] = silu(std::min(g[i], limit)) * std::clamp(u[i], -limit, limit);
  }
  down.apply(g.data(), y.data());
  for (size_t i = 0; i < y.size(); ++i) out[i] += weight * y[i];
}

void Route::normalise(float factor) {
  float sum = 0;
  for (float w : weights) sum += w;
  for (float& w : weights) w = w / sum * factor;
}

Experts::Experts(const Formula& formula, const std::string& name, uint32_t count, uint32_t width,
                 uint32_t inner, float limit) {
  auto gate_up = formula.tensor(name + ".gate_up_proj", {count, 2 * inner, width});
  auto down = formula.tensor(name + ".down_proj", {count, width, inner});
  auto piece = [](const std::vector<float>& from, size_t index, uint32_t rows, uint32_t columns) {
    Linear l;
    l.rows = rows;
    l.columns = columns;
    size_t size = size_t{rows} * columns;
    auto first = from.begin() + static_cast<ptrdiff_t>(index * size);
    l.weights.assign(first, first + static_cast<ptrdiff_t>(size));
    return l;
  };
  for (uint32_t e = 0; e < count; ++e) {
    GatedNetwork n;
    n.gate = piece(gate_up, 2 * e, inner, width);
    n.up = piece(gate_up, 2 * e + 1, inner, width);
    n.down = piece(down, e, width, inner);
    n.limit = limit;
    experts_.push_back(std::move(n));
  }
}

void Experts::add(const float* x, const Route& route, float* out) const {
  for (size_t i = 0; i < route.experts.size(); ++i) {
    experts_[route.experts[i]].add(x, route.weights[i], out);
  }
}

}  // namespace kv::tiny
