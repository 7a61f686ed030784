// Kinds of settings: numbers, sizes, durations, shares, texts, choices. Each function makes a Key
// whose bounds in the help are the ones that it checks. For config_keys.cc.
//
// A `field` is a function from Config to the field that the setting fills.
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cachesvc/daemon/config_keys.h"

namespace kv {

inline Status not_expected(const std::string& value, const std::string& expected) {
  return invalid_argument("\"" + value + "\": expected " + expected);
}

/// "text, json, auto".
template <typename Items, typename NameOf>
std::string listed(const Items& items, NameOf name_of) {
  std::string list;
  for (const auto& item : items) list += (list.empty() ? "" : ", ") + std::string(name_of(item));
  return list;
}

template <typename Field>
Key count_key(const char* name, const char* what, Field field, uint64_t low, uint64_t high) {
  using T = std::remove_reference_t<decltype(field(std::declval<Config&>()))>;
  Key key{name, "", what, "", "", TomlForm::number, {}, {}};
  key.accepts = "A whole number from " + std::to_string(low) + " to " + std::to_string(high);
  key.set = [=](Config& c, const std::string& v) -> Status {
    KV_ASSIGN_OR_RETURN(uint64_t n, parse_count(v, low, high));
    field(c) = static_cast<T>(n);
    return {};
  };
  key.get = [=](const Config& c) { return std::to_string(field(const_cast<Config&>(c))); };
  return key;
}

template <typename Field>
Key size_key(const char* name, const char* what, Field field, uint64_t low, uint64_t high) {
  Key key{name, "", what, "", "", TomlForm::text, {}, {}};
  const std::string bounds = "a size from " + format_size(low) + " to " + format_size(high);
  key.accepts = "A" + bounds.substr(1) + " (bytes, KiB, MiB, GiB, TiB)";
  key.set = [=](Config& c, const std::string& v) -> Status {
    KV_ASSIGN_OR_RETURN(uint64_t n, parse_size(v));
    if (n < low || n > high) return not_expected(v, bounds);
    field(c) = n;
    return {};
  };
  key.get = [=](const Config& c) { return format_size(field(const_cast<Config&>(c))); };
  return key;
}

template <typename Field>
Key duration_key(const char* name, const char* what, Field field, Milliseconds low,
                 Milliseconds high) {
  Key key{name, "", what, "", "", TomlForm::text, {}, {}};
  const std::string bounds =
      "a duration from " + format_duration(low) + " to " + format_duration(high);
  key.accepts = "A" + bounds.substr(1) + " (ms, s, m, h)";
  key.set = [=](Config& c, const std::string& v) -> Status {
    KV_ASSIGN_OR_RETURN(Milliseconds ms, parse_duration(v));
    if (ms < low || ms > high) return not_expected(v, bounds);
    field(c) = ms;
    return {};
  };
  key.get = [=](const Config& c) { return format_duration(field(const_cast<Config&>(c))); };
  return key;
}

/// A share alone, as a fraction.
template <typename Field>
Key share_key(const char* name, const char* what, Field field, double low, double high) {
  Key key{name, "", what, "", "", TomlForm::text, {}, {}};
  const std::string bounds =
      "a share from " + format_amount({0, low}) + " to " + format_amount({0, high});
  key.accepts = "A" + bounds.substr(1);
  key.set = [=](Config& c, const std::string& v) -> Status {
    auto share = parse_amount(v);
    if (!share.ok() || share->fraction < low || share->fraction > high) {
      return not_expected(v, bounds);
    }
    field(c) = share->fraction;
    return {};
  };
  key.get = [=](const Config& c) {
    return format_amount(Amount{0, field(const_cast<Config&>(c))});
  };
  return key;
}

/// A size or a share of `whole`. Sizes below `low` are refused, but 0 where it stands for "none".
struct AmountBounds {
  uint64_t low = 0;
  bool zero = true;
  double low_share = 0, high_share = 1;
  const char* whole = "";
};
template <typename Field>
Key amount_key(const char* name, const char* what, Field field, const AmountBounds& b) {
  Key key{name, "", what, "", "", TomlForm::text, {}, {}};
  const bool or_zero = b.zero && b.low > 0;
  std::string bounds = or_zero ? "0, or a size" : "a size";
  if (b.low > 0) bounds += " of at least " + format_size(b.low);
  bounds += ", or a share ";
  if (b.low_share > 0) bounds += "from " + format_amount({0, b.low_share}) + " ";
  bounds += "up to " + format_amount({0, b.high_share}) + " of " + b.whole +
            ", perhaps limited: " + format_amount({0, 0.2, 4ull << 30});
  key.accepts = or_zero ? bounds : "A" + bounds.substr(1);
  key.set = [=](Config& c, const std::string& v) -> Status {
    KV_ASSIGN_OR_RETURN(Amount amount, parse_amount(v));
    const bool share = amount.fraction > 0;
    const bool fits = share ? amount.fraction >= b.low_share && amount.fraction <= b.high_share
                            : amount.bytes >= b.low || (b.zero && amount.bytes == 0);
    if (!fits) return not_expected(v, bounds);
    field(c) = amount;
    return {};
  };
  key.get = [=](const Config& c) { return format_amount(field(const_cast<Config&>(c))); };
  return key;
}

template <typename Field>
Key text_key(const char* name, const char* what, const char* accepts, Field field) {
  Key key{name, "", what, accepts, "", TomlForm::text, {}, {}};
  key.set = [=](Config& c, const std::string& v) -> Status {
    field(c) = v;
    return {};
  };
  key.get = [=](const Config& c) { return field(const_cast<Config&>(c)); };
  return key;
}

/// A word that stands for an enumerator, a number or itself.
template <typename T, typename Field>
Key choice_key(const char* name, const char* what, Field field,
               const std::vector<std::pair<std::string, T>>& choices) {
  Key key{name, "", what, "", "", TomlForm::text, {}, {}};
  const std::string bounds = "one of " + listed(choices, [](const auto& c) { return c.first; });
  key.accepts = "O" + bounds.substr(1);
  key.set = [=](Config& c, const std::string& v) -> Status {
    for (const auto& [text, value] : choices) {
      if (text != v) continue;
      field(c) = value;
      return {};
    }
    return not_expected(v, bounds);
  };
  key.get = [=](const Config& c) {
    for (const auto& [text, value] : choices) {
      if (value == field(const_cast<Config&>(c))) return text;
    }
    return std::string("?");
  };
  return key;
}
template <typename Field>
Key word_key(const char* name, const char* what, Field field,
             const std::vector<std::string>& words) {
  std::vector<std::pair<std::string, std::string>> choices;
  for (const std::string& word : words) choices.emplace_back(word, word);
  return choice_key<std::string>(name, what, field, choices);
}

}  // namespace kv
