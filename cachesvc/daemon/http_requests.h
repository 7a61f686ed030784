// /requests: recent requests and why they were not served whole, as JSON: the fields and words of
// `cachectl why --json`. Pure, but for the answer's way from the core. Loop thread only.
#pragma once

#include <functional>
#include <string>

#include "cachesvc/core/cache_core.h"
#include "cachesvc/daemon/http_form.h"

namespace kv {

/// `now_ms` since 1970.
std::string requests_json(const WhyReply& reply, uint64_t now_ms);
/// number= (one request) or limit=, missed=1, namespace=. Returns: invalid_argument.
Result<WhyRequest> read_requests(const HttpForm& form);

}  // namespace kv
