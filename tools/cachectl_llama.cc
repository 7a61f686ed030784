// Runs the program, reads logits batch by batch, compares them as they come. See cachectl_llama.h.
#include "tools/cachectl_llama.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "tools/cachectl_child.h"

namespace kv::cachectl {
namespace {

constexpr size_t kRuns = 1 + std::size(kLlamaTypes);  // fp16 first

struct CloseFile {
  void operator()(FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<FILE, CloseFile>;

Status failed(const std::string& what) { return {StatusCode::io_error, "llama.cpp: " + what}; }

// A running program and what it writes.
class Running {
 public:
  explicit Running(const LlamaProgram& program) : program_(program) {}

  // With `tokens` as its standard input, from a file without a name.
  Status start(std::span<const Token> tokens) {
    File input(std::tmpfile());
    if (input == nullptr ||
        std::fwrite(tokens.data(), sizeof(Token), tokens.size(), input.get()) != tokens.size() ||
        std::fflush(input.get()) != 0 || std::fseek(input.get(), 0, SEEK_SET) != 0) {
      return failed("no temporary file");
    }
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return failed("no pipe");
    output_.reset(::fdopen(ends[0], "rb"));
    KV_CHECK(output_ != nullptr);
    std::vector<std::string> arguments = {program_.model, std::to_string(program_.threads),
                                          std::to_string(kLlamaBatch), "f16"};
    for (const LlamaType& type : kLlamaTypes) arguments.emplace_back(type.name);
    const Status started =
        child_.start(program_.command, arguments, ::fileno(input.get()), ends[1]);
    ::close(ends[1]);
    return started;
  }

  template <typename T>
  Status read(std::span<T> to) {
    if (std::fread(to.data(), sizeof(T), to.size(), output_.get()) == to.size()) return {};
    KV_RETURN_IF_ERROR(finish());
    return failed("\"" + program_.command + "\" ended early");
  }

  // After all that is expected: nothing more comes, and the program ends well.
  Status finish() {
    const bool more = std::fgetc(output_.get()) != EOF;
    output_.reset();
    const bool well = child_.wait();
    if (more) return failed("\"" + program_.command + "\" gives more logits than were asked for");
    return well ? Status() : failed("\"" + program_.command + "\" fails");
  }

 private:
  const LlamaProgram& program_;
  Child child_;
  File output_;  // closed before the child is waited for: a program that writes on ends by that
};

}  // namespace

Result<std::vector<Divergence>> llama_divergences(const LlamaProgram& program,
                                                  std::span<const Token> tokens) {
  Running child(program);
  KV_RETURN_IF_ERROR(child.start(tokens));
  uint32_t vocab = 0;
  KV_RETURN_IF_ERROR(child.read(std::span(&vocab, 1)));
  if (vocab != program.vocab) {
    return failed("logits of " + std::to_string(vocab) + " tokens, expected " +
                  std::to_string(program.vocab));
  }
  std::vector<Token> next(tokens.begin() + 1, tokens.end());
  next.push_back(-1);
  std::vector<Divergence> out(std::size(kLlamaTypes));
  std::vector<std::vector<float>> logits(kRuns);
  for (size_t first = 0; first < tokens.size(); first += kLlamaBatch) {
    const size_t count = std::min<size_t>(kLlamaBatch, tokens.size() - first);
    for (auto& run : logits) {
      run.resize(count * vocab);
      KV_RETURN_IF_ERROR(child.read(std::span(run)));
    }
    if (first < kTeacherBlock) continue;
    const auto compared = compare_logits(logits, vocab, std::span(next).subspan(first, count));
    for (size_t i = 0; i < out.size(); ++i) out[i].append(compared[i]);
  }
  KV_RETURN_IF_ERROR(child.finish());
  return out;
}

}  // namespace kv::cachectl
