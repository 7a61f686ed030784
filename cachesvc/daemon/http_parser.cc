// Requests out of Beast's parser.
#include "cachesvc/daemon/http_parser.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstring>
#include <utility>

namespace kv {
namespace {

namespace http = boost::beast::http;

// A head fits, and as much of a body again.
constexpr size_t kStageBytes = 2 * kMaxHttpHeadBytes;

std::string text(boost::beast::string_view view) { return {view.data(), view.size()}; }

}  // namespace

struct HttpParser::Beast {
  Beast() {
    parser.header_limit(kMaxHttpHeadBytes);
    parser.body_limit(kMaxHttpBodyBytes);
    parser.eager(true);
  }
  http::request_parser<http::string_body> parser;
};

HttpParser::HttpParser() : beast_(std::make_unique<Beast>()), stage_(kStageBytes) {}
HttpParser::~HttpParser() = default;

std::span<uint8_t> HttpParser::prepare() {
  if (begin_ > 0) {
    std::memmove(stage_.data(), stage_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  return std::span<uint8_t>(stage_).subspan(end_);
}

Status HttpParser::commit(size_t bytes) {
  end_ += bytes;
  return error_;
}

void HttpParser::fail(unsigned code, std::string why) {
  error_code_ = code;
  error_ = invalid_argument(std::move(why));
}

// Beast takes what it can; a line that has not arrived whole stays in the stage.
std::optional<HttpRequest> HttpParser::next() {
  while (error_.ok() && begin_ < end_) {
    boost::beast::error_code ec;
    const size_t n =
        beast_->parser.put(boost::asio::const_buffer(stage_.data() + begin_, end_ - begin_), ec);
    begin_ += n;
    taken_ += n;
    if (ec == http::error::header_limit) {
      fail(431, "the request's head is over " + std::to_string(kMaxHttpHeadBytes) + " bytes");
    } else if (ec == http::error::body_limit) {
      fail(413, "the body is over " + std::to_string(kMaxHttpBodyBytes) + " bytes");
    } else if (ec && ec != http::error::need_more) {
      fail(400, "not HTTP/1: " + ec.message());
    } else if (beast_->parser.is_header_done() && beast_->parser.chunked()) {
      fail(411, "a body without Content-Length");
    } else if (beast_->parser.is_done()) {
      return taken();
    } else if (ec == http::error::need_more && n == 0) {
      if (end_ - begin_ == stage_.size()) fail(431, "a line of the head is too long");
      return std::nullopt;
    }
  }
  return std::nullopt;
}

HttpRequest HttpParser::taken() {
  auto message = beast_->parser.release();
  HttpRequest out;
  out.method = text(message.method_string());
  out.target = text(message.target());
  auto header = [&](http::field field) { return text(message[field]); };
  out.host = header(http::field::host);
  out.origin = header(http::field::origin);
  out.authorization = header(http::field::authorization);
  out.accept = header(http::field::accept);
  out.content_type = header(http::field::content_type);
  out.several_hosts = message.count(http::field::host) > 1;
  out.keep_alive = message.keep_alive();
  out.body = std::move(message.body());
  beast_ = std::make_unique<Beast>();
  taken_ = 0;
  return out;
}

}  // namespace kv
