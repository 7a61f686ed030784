// Connecting, greeting, writing ahead, and replies in order.
#include "cachesvc/remote/link.h"

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <utility>

namespace kv {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr size_t kWriteBytes = 1 << 20;    // of one write
constexpr size_t kWritePieces = 64;        // asio's most
constexpr size_t kSmallPiece = 1024;       // those that follow each other are joined,
constexpr size_t kJoinedBytes = 64 << 10;  // so many at a time: a question is hundreds of them

}  // namespace

Result<std::shared_ptr<asio::ssl::context>> remote_tls(const std::string& ca_file,
                                                       const std::string& cert_file,
                                                       const std::string& key_file) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_client);
  auto loaded = [&](const error_code& error, const std::string& file) {
    return error ? invalid_argument(file + ": " + error.message()) : Status();
  };
  error_code error;
  context->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                       asio::ssl::context::no_tlsv1_1);
  context->set_verify_mode(asio::ssl::verify_peer, error);
  context->load_verify_file(ca_file, error);
  KV_RETURN_IF_ERROR(loaded(error, ca_file));
  if (cert_file.empty()) return context;
  context->use_certificate_chain_file(cert_file, error);
  KV_RETURN_IF_ERROR(loaded(error, cert_file));
  context->use_private_key_file(key_file, asio::ssl::context::pem, error);
  KV_RETURN_IF_ERROR(loaded(error, key_file));
  return context;
}

Bytes remote_words(std::initializer_list<std::string_view> words) {
  RespWriter out;
  out.array(words.size());
  for (std::string_view word : words) out.bulk(word);
  return Bytes::owning(out.take());
}

RemoteLink::RemoteLink(asio::io_context& loop, NodeAddress to, const RemoteLinkOptions& options)
    : to_(std::move(to)),
      options_(options),
      resolver_(loop),
      socket_(loop),
      timer_(loop.get_executor(), [this] { watch(); }) {}

Status RemoteLink::failure(const char* what, const error_code& error) const {
  return {StatusCode::unavailable, to_string(to_) + ": " + what + ": " + error.message()};
}

void RemoteLink::start() {
  progress_ = Clock::now();
  timer_.arm_in(options_.connect_timeout);
  greet();
  error_code error;
  auto address = asio::ip::make_address(to_.host, error);
  if (!error) return connect({Tcp::endpoint(address, to_.port)});
  resolver_.async_resolve(
      to_.host, std::to_string(to_.port),
      [this, self = shared_from_this()](const error_code& e, const Tcp::resolver::results_type& r) {
        if (closed()) return;
        if (e) return close(failure("its name", e));
        connect(std::vector<Tcp::endpoint>(r.begin(), r.end()));
      });
}

// The first commands. READONLY lets a replica answer; a server without a cluster knows none.
void RemoteLink::greet() {
  auto first = [this](Bytes bytes, std::function<void(Result<RespReply>)> done) {
    unsent_.push_back(std::move(bytes));
    waiting_.push_back({{}, {}, nullptr, std::move(done)});
  };
  if (!options_.password.empty()) {
    const bool named = !options_.user.empty();
    Bytes auth = named ? remote_words({"AUTH", options_.user, options_.password})
                       : remote_words({"AUTH", options_.password});
    first(std::move(auth), [this](const Result<RespReply>& reply) {
      if (!reply.ok() || reply->type != RespType::error) return;
      close({StatusCode::denied, to_string(to_) + " refuses user or password"});
    });
  }
  first(remote_words({"READONLY"}), [this](const Result<RespReply>& reply) {
    if (reply.ok()) greeted();
  });
}

void RemoteLink::connect(const std::vector<Tcp::endpoint>& endpoints) {
  auto all = std::make_shared<std::vector<Tcp::endpoint>>(endpoints);
  asio::async_connect(socket_, *all,
                      [this, all, self = shared_from_this()](const error_code& e, Tcp::endpoint) {
                        if (closed()) return;
                        e ? close(failure("connecting", e)) : connected();
                      });
}

void RemoteLink::connected() {
  error_code ignored;
  socket_.set_option(Tcp::no_delay(true), ignored);
  if (!options_.tls) return ready();
  tls_.emplace(socket_, *options_.tls);
  if (!options_.tls_name.empty()) {
    tls_->set_verify_callback(asio::ssl::host_name_verification(options_.tls_name), ignored);
  }
  tls_->async_handshake(asio::ssl::stream_base::client,
                        [this, self = shared_from_this()](const error_code& e) {
                          if (closed()) return;
                          e ? close(failure("TLS", e)) : ready();
                        });
}

void RemoteLink::ready() {
  state_ = State::greeting;
  progress_ = Clock::now();
  timer_.arm_in(options_.answer_timeout);
  read();
  write();
}

void RemoteLink::greeted() {
  state_ = State::open;
  for (Bytes& piece : held_) unsent_.push_back(std::move(piece));
  held_.clear();
  write();
}

void RemoteLink::send(RemoteCommand command) {
  KV_CHECK(!closed() && waiting_.size() < kMaxLinkCommands);
  if (waiting_.empty()) progress_ = Clock::now();
  auto& pieces = state_ == State::open ? unsent_ : held_;
  for (Bytes& piece : command.bytes) {
    if (!piece.empty()) pieces.push_back(std::move(piece));
  }
  command.bytes.clear();
  waiting_.push_back(std::move(command));
  if (state_ != State::open) return;
  if (!timer_.armed()) timer_.arm_in(options_.answer_timeout);
  if (std::exchange(write_soon_, true)) return;
  // One write for all that this handler still sends.
  asio::post(socket_.get_executor(), [this, self = shared_from_this()] {
    write_soon_ = false;
    write();
  });
}

void RemoteLink::join() {
  size_t count = 0, bytes = 0;
  while (count < unsent_.size() && unsent_[count].size() <= kSmallPiece && bytes < kJoinedBytes) {
    bytes += unsent_[count++].size();
  }
  if (count < 2) return;
  std::vector<uint8_t> joined;
  joined.reserve(bytes);
  for (; count > 0; --count, unsent_.pop_front()) {
    const Bytes& piece = unsent_.front();
    joined.insert(joined.end(), piece.data(), piece.data() + piece.size());
  }
  unsent_.push_front(Bytes::owning(std::move(joined)));
}

void RemoteLink::write() {
  if (writing_ || unsent_.empty() || state_ == State::connecting || closed()) return;
  join();
  std::vector<asio::const_buffer> buffers;
  size_t bytes = 0;
  for (const Bytes& piece : unsent_) {
    if (buffers.size() == kWritePieces || bytes >= kWriteBytes) break;
    buffers.emplace_back(piece.data(), piece.size());
    bytes += piece.size();
  }
  writing_ = true;
  auto sent = [this, self = shared_from_this()](const error_code& e, size_t n) {
    writing_ = false;
    if (closed()) return unsent_.clear();
    if (e) return close(failure("sending", e));
    while (n > 0) {
      Bytes& front = unsent_.front();
      const size_t here = std::min(n, front.size());
      n -= here;
      if (here == front.size()) {
        unsent_.pop_front();
      } else {
        front = front.slice(here, front.size() - here);
      }
    }
    // Progress of the peer, not of a kernel's buffer: there was more than it took at once.
    if (!unsent_.empty()) progress_ = Clock::now();
    write();
  };
  with_stream([&](auto& stream) { stream.async_write_some(buffers, std::move(sent)); });
}

void RemoteLink::read() {
  auto to = parser_.prepare();
  // Memory that a bulk is read into stays until the read is over.
  std::shared_ptr<const void> keep = waiting_.empty() ? nullptr : waiting_.front().keep;
  auto got = [this, keep, self = shared_from_this()](const error_code& e, size_t n) {
    if (closed()) return;
    if (e) return close(failure("receiving", e));
    received(n);
  };
  with_stream([&](auto& stream) {
    stream.async_read_some(asio::buffer(to.data(), to.size()), std::move(got));
  });
}

void RemoteLink::received(size_t bytes) {
  progress_ = Clock::now();
  parser_.commit(bytes);
  while (!waiting_.empty()) {
    Status status = parser_.parse(waiting_.front().into);
    if (!status.ok()) return close(status);
    if (!parser_.ready()) break;
    RemoteCommand command = std::move(waiting_.front());
    waiting_.pop_front();
    command.done(parser_.take());
    if (closed()) return;
  }
  if (waiting_.empty() && !parser_.at_boundary()) {
    return close(corruption("a reply that nothing asked for"));
  }
  read();
}

// The time without progress is over, or the timer was armed for an earlier one.
void RemoteLink::watch() {
  if (state_ == State::connecting) {
    return close({StatusCode::unavailable, to_string(to_) + ": no connection in time"});
  }
  if (waiting_.empty()) return;
  const auto due = progress_ + options_.answer_timeout;
  if (Clock::now() < due) return timer_.arm_at(due);
  close({StatusCode::unavailable, to_string(to_) + ": no answer in time"});
}

void RemoteLink::close(const Status& why) {
  if (closed()) return;
  state_ = State::closed;
  auto self = shared_from_this();  // the owner lets go of us
  timer_.cancel();
  resolver_.cancel();
  error_code ignored;
  socket_.close(ignored);
  held_.clear();
  if (!writing_) unsent_.clear();
  for (RemoteCommand& command : std::exchange(waiting_, {})) command.done(why);
}

}  // namespace kv
