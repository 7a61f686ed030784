// The program's version, as --version, the log and hello_ok say it.
#pragma once

namespace kv {

inline constexpr char kProgramVersion[] = "0.1.0";

}  // namespace kv
