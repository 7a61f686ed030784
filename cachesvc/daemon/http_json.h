// JsonText: JSON as it is written, with its commas. Pure.
#pragma once

#include <string>
#include <string_view>

namespace kv {

class JsonText {
 public:
  JsonText& open(char bracket);   ///< '{' or '['
  JsonText& close(char bracket);  ///< '}' or ']'
  JsonText& name(std::string_view name);
  JsonText& text(std::string_view text);
  JsonText& number(double number);
  JsonText& boolean(bool value);
  /// A field of an object.
  JsonText& field(std::string_view n, double value) { return name(n).number(value); }
  JsonText& field(std::string_view n, std::string_view value) { return name(n).text(value); }
  std::string take() { return std::move(out_); }

 private:
  void next();
  void quoted(std::string_view text);

  std::string out_;
  bool first_ = true;
};

}  // namespace kv
