// RemoteLink: one connection to one node: connects, greets, sends commands and gives their replies
// back in order. REMOTE.md, "Nodes".
//
//   connecting ──TCP and, if asked for, TLS──> greeting ──AUTH and READONLY answered──> open
//   connecting ──refused, or in vain for connect_timeout──> closed
//   greeting, open ──an error, no progress, or close()──> closed
//
// Commands may be given before it is open; nothing of them is sent until then. Every one of them
// ends once: with a reply, or with the status of the link's end. Bounded: commands that wait,
// replies (RespReplyParser), time without progress while an answer is owed. Bytes that wait are
// bounded by whoever owns them. Loop thread only.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cachesvc/loop/timer.h"
#include "cachesvc/remote/slots.h"
#include "proto/bytes.h"
#include "proto/resp_reply.h"

namespace kv {

inline constexpr size_t kMaxLinkCommands = 4096;

struct RemoteLinkOptions {
  std::string user, password;                      ///< empty: none
  std::shared_ptr<boost::asio::ssl::context> tls;  ///< null: plain TCP
  std::string tls_name;                            ///< of the node's certificate; empty: any
  std::chrono::milliseconds connect_timeout{1000};
  std::chrono::milliseconds answer_timeout{500};  ///< without a byte, while one is owed
};

/// Contexts of TLS: the authority that nodes' certificates are checked against, and a certificate
/// of one's own where the nodes ask for one. Returns: invalid_argument naming the file.
Result<std::shared_ptr<boost::asio::ssl::context>> remote_tls(const std::string& ca_file,
                                                              const std::string& cert_file,
                                                              const std::string& key_file);

/// A command's bytes: a bulk for each word.
Bytes remote_words(std::initializer_list<std::string_view> words);

struct RemoteCommand {
  std::vector<Bytes> bytes;          ///< as sent
  std::span<uint8_t> into{};         ///< where a bulk goes; empty: it is kept in the reply
  std::shared_ptr<const void> keep;  ///< what `into` lies in
  std::function<void(Result<RespReply>)> done;
};

class RemoteLink : public std::enable_shared_from_this<RemoteLink> {
 public:
  using Clock = std::chrono::steady_clock;
  RemoteLink(boost::asio::io_context& loop, NodeAddress to, const RemoteLinkOptions& options);
  RemoteLink(const RemoteLink&) = delete;  // handlers point here
  RemoteLink& operator=(const RemoteLink&) = delete;

  /// Begins to connect. Once.
  void start();
  /// The link is not closed, and had room.
  void send(RemoteCommand command);
  /// Room for two commands: ASKING goes before another one.
  bool has_room() const { return waiting_.size() + 2 <= kMaxLinkCommands; }
  bool closed() const { return state_ == State::closed; }
  /// Ends every command with `why`.
  void close(const Status& why);

 private:
  enum class State : uint8_t { connecting, greeting, open, closed };
  using Tcp = boost::asio::ip::tcp;

  void greet();
  void connect(const std::vector<Tcp::endpoint>& endpoints);
  void connected();
  void ready();
  void greeted();
  void write();
  void join();
  void read();
  void received(size_t bytes);
  void watch();
  Status failure(const char* what, const boost::system::error_code& error) const;
  template <typename F>
  void with_stream(F f) {
    tls_ ? f(*tls_) : f(socket_);
  }

  const NodeAddress to_;
  const RemoteLinkOptions& options_;
  State state_ = State::connecting;
  Tcp::resolver resolver_;
  Tcp::socket socket_;
  std::optional<boost::asio::ssl::stream<Tcp::socket&>> tls_;
  std::deque<RemoteCommand> waiting_;  // for their replies, the oldest first
  std::deque<Bytes> unsent_;
  std::deque<Bytes> held_;  // until it is open
  bool writing_ = false, write_soon_ = false;
  RespReplyParser parser_;
  Clock::time_point progress_;  // bytes went or came
  Timer timer_;
};

}  // namespace kv
