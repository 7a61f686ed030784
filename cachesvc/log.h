// Log lines of the service: text for people, or one JSON object per line. Set up once, in main.
#pragma once

#include <string>
#include <vector>

#include "cachesvc/config.h"
#include "proto/client.h"

namespace kv {

/// Sends spdlog's default logger to stderr as `options` say. Never prompt content, never token ids.
void set_up_log(const LogOptions& options);
/// Layers whose active codec is not the requested one, one text for each reason:
/// "layers 0,2-5 latent: requested tq4, active raw: latent: never coded".
std::vector<std::string> coding_lines(const std::vector<CodingReport>& reports);

}  // namespace kv
