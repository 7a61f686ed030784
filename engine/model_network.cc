// See model_network.h.
#include "engine/model_network.h"

#include <new>

#include "engine/decoder.h"
#include "engine/prefill.h"
#include "engine/threads.h"

namespace kv {
namespace {

// The result of `body`; a status where it finds no memory. The cache may then hold half a layer.
template <typename Body>
auto if_memory(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::resource_exhausted, "the network: out of memory");
  }
}

class ModelNetwork : public Network {
 public:
  ModelNetwork(std::shared_ptr<const Model> model, uint32_t threads)
      : model_(std::move(model)), threads_(threads), decoder_(*model_, threads_) {}

  const ModelSpec& spec() const override { return model_->spec(); }
  uint32_t vocab() const override { return model_->shape().vocab; }
  uint32_t context() const override { return model_->shape().context; }
  bool ends(Token token) const override { return token == model_->tokenizer().eos(); }
  Result<std::vector<Token>> encode(std::string_view text) const override {
    return model_->tokenizer().encode(text);
  }
  Status step(Token token, KvCache& cache, std::span<float> logits) override {
    return if_memory([&] { return decoder_.step(token, cache, logits); });
  }
  void step_rows(std::span<StepRow> rows) override {
    Status status = if_memory([&] {
      decoder_.step(rows);
      return Status();
    });
    for (StepRow& row : rows) {
      if (!status.ok()) row.status = status;
    }
  }
  Status prefill(std::span<const Token> tokens, KvCache& cache, Deadline deadline) override {
    return if_memory([&] {
      Prefill prefill(*model_, threads_);
      prefill.pause_with([this] { pause(); });
      return prefill.extend(tokens, cache, deadline);
    });
  }
  void each(uint32_t count, const std::function<void(uint32_t)>& task) const override {
    threads_.run(count, [&](uint32_t i, uint32_t) { task(i); });
  }

 private:
  std::shared_ptr<const Model> model_;
  mutable Threads threads_;  // of whoever calls, one at a time
  Decoder decoder_;
};

}  // namespace

Result<std::unique_ptr<Network>> make_network(std::shared_ptr<const Model> model,
                                              uint32_t threads) {
  if (threads < 1 || threads > kMaxEngineThreads) {
    return invalid_argument("threads " + std::to_string(threads) + " outside 1.." +
                            std::to_string(kMaxEngineThreads));
  }
  return std::unique_ptr<Network>(new ModelNetwork(std::move(model), threads));
}

}  // namespace kv
