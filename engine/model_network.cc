// See model_network.h.
#include "engine/model_network.h"

#include "engine/batch_decoder.h"
#include "engine/decoder.h"
#include "engine/prefill.h"
#include "engine/threads.h"

namespace kv {
namespace {

class ModelNetwork : public Network {
 public:
  ModelNetwork(std::shared_ptr<const Model> model, uint32_t threads)
      : model_(std::move(model)),
        threads_(threads),
        decoder_(*model_, threads_),
        batch_(*model_, threads_) {}

  const ModelSpec& spec() const override { return model_->spec(); }
  uint32_t vocab() const override { return model_->shape().vocab; }
  uint32_t context() const override { return model_->shape().context; }
  bool ends(Token token) const override { return token == model_->tokenizer().eos(); }
  Result<std::vector<Token>> encode(std::string_view text) const override {
    return model_->tokenizer().encode(text);
  }
  Status step(Token token, KvCache& cache, std::span<float> logits) override {
    return decoder_.step(token, cache, logits);
  }
  Result<Token> next(Token token, KvCache& cache) override { return decoder_.next(token, cache); }
  void step_rows(std::span<StepRow> rows) override { batch_.step(rows); }
  Status prefill(std::span<const Token> tokens, KvCache& cache, Deadline deadline) override {
    Prefill prefill(*model_, threads_, cache.block_tokens());
    return prefill.extend(tokens, cache, deadline);
  }

 private:
  std::shared_ptr<const Model> model_;
  Threads threads_;
  Decoder decoder_;
  BatchDecoder batch_;
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
