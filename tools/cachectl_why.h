// cachectl why: its arguments, and the answer of a directory without a daemon. One thread.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "proto/request_record.h"
#include "tools/cachectl_store.h"

namespace kv::cachectl {

void add_why(CLI::App& app, std::function<Exit()>& chosen);
/// A list of token ids, or an object whose "tokens" is one. Returns: invalid_argument.
Result<std::vector<Token>> tokens_in(const std::string& file);
/// Hits that each model of the store would serve of these tokens from its files alone, the longest
/// first. `ns`: of this namespace only; empty: of all.
std::vector<RequestRecord> why_of(const StoreView& store, const std::vector<Token>& tokens,
                                  const std::string& ns);

}  // namespace kv::cachectl
