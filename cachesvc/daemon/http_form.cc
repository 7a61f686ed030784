// Fields and their escapes.
#include "cachesvc/daemon/http_form.h"

#include <algorithm>
#include <utility>

#include "cachesvc/daemon/config_values.h"

namespace kv {
namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

Result<std::string> unescaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    if (i + 2 >= text.size()) {
      return invalid_argument("form: an escape without its two hex digits");
    }
    const int first = hex_value(text[i + 1]), second = hex_value(text[i + 2]);
    if (first < 0 || second < 0) {
      return invalid_argument("form: an escape without its two hex digits");
    }
    out += static_cast<char>(first * 16 + second);
    i += 2;
  }
  return out;
}

}  // namespace

Result<HttpForm> HttpForm::read(std::string_view text) {
  HttpForm form;
  while (!text.empty()) {
    const size_t end = std::min(text.find('&'), text.size());
    const std::string_view field = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (field.empty()) continue;
    const size_t equals = std::min(field.find('='), field.size());
    KV_ASSIGN_OR_RETURN(std::string name, unescaped(field.substr(0, equals)));
    KV_ASSIGN_OR_RETURN(std::string value,
                        unescaped(field.substr(std::min(equals + 1, field.size()))));
    if (form.fields_.size() == kMaxFields) {
      return invalid_argument("form: over " + std::to_string(kMaxFields) + " fields");
    }
    if (!form.fields_.emplace(std::move(name), std::move(value)).second) {
      return invalid_argument("form: a field twice");
    }
  }
  return form;
}

const std::string& HttpForm::get(const std::string& name) const {
  static const std::string none;
  auto at = fields_.find(name);
  return at == fields_.end() ? none : at->second;
}

Result<std::vector<Token>> HttpForm::tokens(const std::string& name) const {
  std::vector<Token> out;
  std::string_view text = get(name);
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    auto token = parse_count(text.substr(0, end), 0, INT32_MAX);
    if (!token.ok()) return invalid_argument(name + ": " + token.status().message());
    out.push_back(static_cast<Token>(*token));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string HttpForm::unknown(const std::vector<std::string>& known) const {
  for (const auto& [name, value] : fields_) {
    if (std::find(known.begin(), known.end(), name) == known.end()) return name;
  }
  return "";
}

std::pair<std::string_view, std::string_view> split_target(std::string_view target) {
  const size_t mark = std::min(target.find('?'), target.size());
  return {target.substr(0, mark), target.substr(std::min(mark + 1, target.size()))};
}

}  // namespace kv
