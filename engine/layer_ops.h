// Operations of a layer beside its products and its attention, one row at a time: the same
// functions for a single step, a batch and prefill, so that they agree.
//
// Pure; each order of summation is fixed. Any thread.
#pragma once

#include <span>

#include "codec/attention.h"
#include "codec/kernels.h"
#include "engine/model.h"

namespace kv {

/// x (width): the token's row of the embedding, scaled as the architecture wants.
void embed(const Model& model, Token token, float* x);
/// out = x / rms(x) * weight, over weight.size() values. `out` may be `x`.
void rms_norm(const float* x, std::span<const float> weight, float eps, float* out);
/// In place: `heads` vectors of q or k: normed where `norm` isn't empty, then rotated; cos_sin as
/// Model::rope gives it for the layer's kind and the row's position.
void finish_heads(const ModelShape& shape, std::span<const float> norm,
                  std::span<const float> cos_sin, uint32_t heads, float* x);
/// gate[i] = activation(gate[i]) * up[i], with silu or gelu (tanh); `work` (ffn) is scratch.
void gate_times(const ModelShape& shape, float* gate, const float* up, float* work,
                const Kernels& kernels);
/// x += branch, which is normed before where `norm` isn't empty; `branch` (width) is destroyed.
void add_branch(const ModelShape& shape, std::span<const float> norm, float* branch, float* x);
/// Softmax scale of the scores.
float attention_scale(const ModelShape& shape);
/// The rows that the query at `position` sees.
RowLimit row_limit(const ModelShape& shape, uint32_t layer, uint32_t position);

}  // namespace kv
