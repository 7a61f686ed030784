// Fuzz target: what a teacher says, from its hello on. It is read to its end or to an error, and
// what is read lies within what was asked for.
#include <algorithm>
#include <cmath>

#include "engine/teacher_link.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::span<const uint8_t> left(data, size);
  auto link = kv::TeacherLink::open({[&](std::span<uint8_t> to) -> kv::Status {
                                       if (to.size() > left.size())
                                         return kv::corruption("the end");
                                       std::copy_n(left.begin(), to.size(), to.begin());
                                       left = left.subspan(to.size());
                                       return {};
                                     },
                                     [](std::span<const uint8_t>) { return kv::Status(); }});
  if (!link.ok()) return 0;
  auto tokens = link->encode("text", 8);
  if (!tokens.ok()) return 0;
  if (tokens->size() > 8) __builtin_trap();
  auto text = link->exact(0, *tokens, 2);
  if (!text.ok()) return 0;
  if (text->logits.size() != (tokens->size() - 2) * link->vocab()) __builtin_trap();
  auto same = [](uint32_t, kv::Side, uint32_t, std::span<float>) { return kv::Status(); };
  auto found = link->hit(*text, same);
  if (!found.ok()) return 0;
  if (found->kld.size() != tokens->size() - 2) __builtin_trap();
  for (float kld : found->kld) {
    if (std::isnan(kld) || kld < 0) __builtin_trap();
  }
  return 0;
}
