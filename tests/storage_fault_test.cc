// Injected faults: any call of any script fails, once or for ever, and no answer is wrong.
#include <gtest/gtest.h>

#include "tests/storage_script.h"

namespace kv {
namespace {

using namespace kv::testing;

// Under a sanitizer every so many-th call is enough: release runs them all.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kStride = 11;
#else
constexpr uint64_t kStride = 1;
#endif

struct Fault {
  FaultFiles::Mode mode;
  StatusCode code;  ///< io_error: EIO, EROFS, EMFILE; resource_exhausted: ENOSPC, EDQUOT
};
constexpr Fault kFaults[] = {
    {FaultFiles::Mode::fail_once, StatusCode::io_error},
    {FaultFiles::Mode::fail_for_ever, StatusCode::io_error},
    {FaultFiles::Mode::fail_once, StatusCode::resource_exhausted},
    {FaultFiles::Mode::fail_for_ever, StatusCode::resource_exhausted},
};

// One run with the fault at call `at`. A fault for ever ends before the script's last steps: what
// it made impossible works again, in the same tier.
void inject(const Script::Case& which, const Fault& fault, uint64_t at) {
  TempDir dir(true);
  FaultFiles files;
  Script script(which);
  Script::Events events;
  auto tell = [&](const std::string& event) { events.push_back(event); };
  script.prepare(dir.store(), tell);
  files.mode = fault.mode;
  files.at = at;
  files.code = fault.code;
  script.run(dir.store(), &files, tell, [&] { files.mode = FaultFiles::Mode::off; });
  files.mode = FaultFiles::Mode::off;
  script.check(dir.store(), events);
}

class Faults : public ::testing::TestWithParam<Script::Case> {};

TEST_P(Faults, EveryCallFailsOnceAndForEverWithEachError) {
  uint64_t calls = Script(GetParam()).count_calls(), injected = 0;
  ASSERT_GE(calls, GetParam().least_calls());
  for (const Fault& fault : kFaults) {
    for (uint64_t at = 1; at <= calls; at += kStride * GetParam().step()) {
      SCOPED_TRACE("failing call " + std::to_string(at) + " mode " +
                   std::to_string(static_cast<int>(fault.mode)) + " with " + to_string(fault.code));
      inject(GetParam(), fault, at);
      ++injected;
      if (HasFailure()) return;
    }
  }
  RecordProperty("injected", static_cast<int>(injected));
  if (kStride * GetParam().step() == 1) {
    EXPECT_EQ(injected, calls * std::size(kFaults));
  }
}

INSTANTIATE_TEST_SUITE_P(Scripts, Faults, ::testing::ValuesIn(Script::kCases));

}  // namespace
}  // namespace kv
