// The same for tests of the service: its owners and their rigs too.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include "tests/support/cachesvc_owners.h"
#include "tests/support/cachesvc_testing.h"
#include "tests/support/precompiled.h"
