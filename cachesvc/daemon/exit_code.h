// Exit codes: meanings of the program's end for its supervisor (cachesvc.service).
#pragma once

namespace kv {

inline constexpr int kOk = 0;
inline constexpr int kRuntime = 1;
inline constexpr int kUsage = 2;
inline constexpr int kTemporary = 75;  ///< EX_TEMPFAIL: others hold store or socket; no memory
inline constexpr int kConfig = 78;     ///< a wrong configuration does not get better

}  // namespace kv
