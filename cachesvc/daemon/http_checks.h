// Checks of an HTTP request before anything is done for it: whom it names as the host, which page
// it comes from, and the token that it brings. Pure functions.
//
// A page of some site that a browser of this machine shows may send requests here; it can neither
// name this machine as their host, once its own name leads here, nor as their origin.
#pragma once

#include <string>
#include <string_view>

#include "cachesvc/daemon/http_parser.h"

namespace kv {

/// True for this machine's own names, with or without a port: localhost, 127.x.x.x, [::1].
bool is_own_host(std::string_view host);
/// True if there is no origin, or it is the host that the request names.
bool is_own_origin(std::string_view origin, std::string_view host);
/// The token of an Authorization header: `Bearer TOKEN`, or the password of `Basic …`; empty: none.
std::string token_of(std::string_view authorization);
/// Base64 with its padding; empty if it is none.
std::string from_base64(std::string_view text);

}  // namespace kv
