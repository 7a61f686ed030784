// Version of the program, for --version, the log and hello_ok.
#pragma once

namespace kv {

inline constexpr char kProgramVersion[] = "0.1.0";

}  // namespace kv
