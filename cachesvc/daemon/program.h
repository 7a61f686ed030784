// The program: its command line, and what each command does. Main thread only.
#pragma once

#include <functional>

#include "cachesvc/daemon/config.h"

namespace kv {

/// `cachesvc ARGS`. `adjust` changes what `serve` was told, if there is one: a test shortens limits
/// that no setting changes. Returns: an ExitCode.
int run_program(int argc, char** argv, const std::function<void(Config&)>& adjust = nullptr);

}  // namespace kv
