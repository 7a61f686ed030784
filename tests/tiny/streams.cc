// See streams.h; formulas: transformers 5.23, models/deepseek_v4 (DeepseekV4HyperConnection).
#include "tests/tiny/streams.h"

namespace kv::tiny {
namespace {

constexpr uint32_t kBalancings = 20;
constexpr float kSmall = 1e-6f;

// In place: rows, or columns, divided by their sums.
void balance(std::vector<float>& m, uint32_t row_step, uint32_t column_step) {
  for (uint32_t i = 0; i < kStreams; ++i) {
    float sum = 0;
    for (uint32_t j = 0; j < kStreams; ++j) sum += m[i * row_step + j * column_step];
    for (uint32_t j = 0; j < kStreams; ++j) m[i * row_step + j * column_step] /= sum + kSmall;
  }
}

std::vector<float> weighted_sum(const Streams& streams, const float* weights) {
  std::vector<float> out(kWidth);
  for (uint32_t s = 0; s < kStreams; ++s) {
    for (uint32_t i = 0; i < kWidth; ++i) out[i] += weights[s] * streams[s * kWidth + i];
  }
  return out;
}

}  // namespace

StreamMixer::StreamMixer(const Formula& f, const std::string& name)
    : weights_(f, name + ".fn", (2 + kStreams) * kStreams, kStreams * kWidth),
      base_(f.tensor(name + ".base", {(2 + kStreams) * kStreams})),
      scale_(f.tensor(name + ".scale", {3})) {}

Mixing StreamMixer::open(const Streams& streams) const {
  Streams normed = streams;
  rms_norm(normed, {});
  std::vector<float> w(weights_.rows), pre(kStreams);
  weights_.apply(normed.data(), w.data());
  Mixing m;
  m.mix.resize(kStreams * kStreams);
  for (uint32_t s = 0; s < kStreams; ++s) {
    pre[s] = sigmoid(w[s] * scale_[0] + base_[s]) + kSmall;
    m.post.push_back(2 * sigmoid(w[kStreams + s] * scale_[1] + base_[kStreams + s]));
    auto row = std::span(m.mix).subspan(s * kStreams, kStreams);
    for (uint32_t t = 0; t < kStreams; ++t) {
      uint32_t i = 2 * kStreams + s * kStreams + t;
      row[t] = w[i] * scale_[2] + base_[i];
    }
    softmax(row);
    for (float& x : row) x += kSmall;
  }
  balance(m.mix, 1, kStreams);
  for (uint32_t i = 1; i < kBalancings; ++i) {
    balance(m.mix, kStreams, 1);
    balance(m.mix, 1, kStreams);
  }
  m.collapsed = weighted_sum(streams, pre.data());
  return m;
}

void StreamMixer::close(const Mixing& m, const float* result, Streams& streams) {
  Streams before = streams;
  for (uint32_t s = 0; s < kStreams; ++s) {
    for (uint32_t i = 0; i < kWidth; ++i) {
      float sum = m.post[s] * result[i];
      for (uint32_t t = 0; t < kStreams; ++t)
        sum += m.mix[t * kStreams + s] * before[t * kWidth + i];
      streams[s * kWidth + i] = sum;
    }
  }
}

StreamHead::StreamHead(const Formula& f)
    : weights_(f, "model.hc_head.hc_fn", kStreams, kStreams * kWidth),
      base_(f.tensor("model.hc_head.hc_base", {kStreams})),
      scale_(f.tensor("model.hc_head.hc_scale", {1})) {}

std::vector<float> StreamHead::collapse(const Streams& streams) const {
  Streams normed = streams;
  rms_norm(normed, {});
  std::vector<float> w(kStreams);
  weights_.apply(normed.data(), w.data());
  for (uint32_t s = 0; s < kStreams; ++s) w[s] = sigmoid(w[s] * scale_[0] + base_[s]) + kSmall;
  return weighted_sum(streams, w.data());
}

}  // namespace kv::tiny
