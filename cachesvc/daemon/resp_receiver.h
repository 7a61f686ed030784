// RespReceiver: a connection's RESP commands on their way in. The value of a SET that is too long
// to be kept goes where it is put from, behind the head of its state (proto/keyed.h); other long
// arguments are dropped. Loop thread only.
#pragma once

#include "cachesvc/daemon/stream_receiver.h"
#include "proto/resp.h"

namespace kv {

/// A command as it arrived. `staging` has the state of a SET whose value did not come as an
/// argument; `dropped`: why a value was not taken.
struct RespRequest {
  RespCommand command;
  Staging staging;
  Status dropped;
};

class RespReceiver final : public StreamReceiver<RespParser> {
 public:
  class Host : public StreamReceiver::Host {
   public:
    virtual void received(RespRequest request) = 0;

   protected:
    ~Host() = default;
  };

  RespReceiver(Host& host, Socket& socket, uint64_t max_state_bytes)
      : StreamReceiver(host, socket), host_(host), max_state_bytes_(max_state_bytes) {}

  void set_newcomer(bool newcomer) {
    newcomer_ = newcomer;
    parser_.set_newcomer(newcomer);
  }

 private:
  void hand_on(RespCommand command) override;
  void find_place() override;

  Host& host_;
  const uint64_t max_state_bytes_;
  bool newcomer_ = false;
};

/// `text` in capitals: names of commands and of options are compared so.
std::string resp_word(std::string text);

}  // namespace kv
