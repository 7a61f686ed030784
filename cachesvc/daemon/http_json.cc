// Commas and escapes.
#include "cachesvc/daemon/http_json.h"

#include "cachesvc/daemon/http_metrics.h"
#include "cachesvc/daemon/http_names.h"

namespace kv {

void JsonText::next() {
  if (!first_) out_ += ',';
  first_ = false;
}

void JsonText::quoted(std::string_view text) {
  out_ += '"';
  for (char c : shown_name(text)) {
    if (c == '"' || c == '\\') out_ += '\\';
    out_ += c;
  }
  out_ += '"';
}

JsonText& JsonText::open(char bracket) {
  next();
  out_ += bracket;
  first_ = true;
  return *this;
}

JsonText& JsonText::close(char bracket) {
  out_ += bracket;
  first_ = false;
  return *this;
}

JsonText& JsonText::name(std::string_view name) {
  next();
  quoted(name);
  out_ += ':';
  first_ = true;
  return *this;
}

JsonText& JsonText::text(std::string_view text) {
  next();
  quoted(text);
  return *this;
}

JsonText& JsonText::number(double number) {
  next();
  out_ += number_text(number);
  return *this;
}

JsonText& JsonText::boolean(bool value) {
  next();
  out_ += value ? "true" : "false";
  return *this;
}

}  // namespace kv
