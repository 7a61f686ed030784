// HttpReceiver: a connection's HTTP requests on their way in. Loop thread only.
#pragma once

#include <utility>

#include "cachesvc/daemon/http_parser.h"
#include "cachesvc/daemon/stream_receiver.h"

namespace kv {

class HttpReceiver final : public StreamReceiver<HttpParser> {
 public:
  class Host : public StreamReceiver::Host {
   public:
    virtual void received(HttpRequest request) = 0;

   protected:
    ~Host() = default;
  };

  HttpReceiver(Host& host, Socket& socket) : StreamReceiver(host, socket), host_(host) {}
  unsigned error_code() const { return parser_.error_code(); }  ///< HTTP's status

 private:
  void hand_on(HttpRequest request) override { host_.received(std::move(request)); }
  void find_place() override {}

  Host& host_;
};

}  // namespace kv
