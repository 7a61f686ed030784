// Interleaved rANS: the encoder, and the decoder around the kernels. See integers.h.
#include "codec/integers.h"

#include <algorithm>
#include <cstring>

namespace kv {
namespace {

constexpr int kEscape = -128;
constexpr uint32_t kFirstState = 1u << 16;

uint32_t escape_code(int value) {  // small for small magnitudes
  return static_cast<uint32_t>(value) << 1 ^ static_cast<uint32_t>(value >> 31);
}
int escape_value(uint32_t code) {
  return static_cast<int>(code >> 1) ^ -static_cast<int>(code & 1);
}

void put_escape(std::vector<uint8_t>& out, int value) {
  uint32_t code = escape_code(value);
  for (; code >= 128; code >>= 7) out.push_back(static_cast<uint8_t>(code | 128));
  out.push_back(static_cast<uint8_t>(code));
}

// False: no number of at most three bytes, or none of 16 bits.
bool take_escape(std::span<const uint8_t>& from, int16_t& value) {
  uint32_t code = 0;
  for (uint32_t i = 0; i < 3 && i < from.size(); ++i) {
    code |= uint32_t{from[i] & 127u} << (7 * i);
    if (from[i] >= 128) continue;
    from = from.subspan(i + 1);
    value = static_cast<int16_t>(escape_value(code));
    return code <= 0xFFFF;
  }
  return false;
}

// Symbols as bytes (value + 128), (components, 2, rows): those of the tables, those of low bits.
struct Symbols {
  std::vector<uint8_t> bytes, escapes;
};

Symbols split(const IntegerTables& tables, const ComponentCoding& coding,
              std::span<const int16_t> values, uint32_t rows) {
  Symbols s;
  s.bytes.resize(coding.table.size() * 2 * rows);
  for (size_t c = 0; c < coding.table.size(); ++c) {
    const IntegerTables::Symbol* known = tables.symbols(coding.table[c]);
    const uint32_t bits = coding.low_bits[c];
    const int16_t* from = values.data() + c * lane_rows(rows);
    uint8_t *high = s.bytes.data() + c * 2 * rows, *low = high + rows;
    for (uint32_t r = 0; r < rows; ++r) {
      const int top = from[r] >> bits;
      const bool fits =
          top >= -kMostTableValue && top <= kMostTableValue && known[top - kEscape].count > 0;
      if (!fits) put_escape(s.escapes, from[r]);
      high[r] = static_cast<uint8_t>(fits ? top - kEscape : 0);
      low[r] = static_cast<uint8_t>((fits ? from[r] & ((1 << bits) - 1) : 0) - kEscape);
    }
  }
  return s;
}

// Writes words backwards from `at`.
struct Writer {
  uint32_t states[kLanes];
  uint16_t* at;

  void put_row(const uint8_t* bytes, uint32_t rows, const IntegerTables::Symbol* symbols) {
    for (uint32_t r = rows; r-- > 0;) {
      const auto [inverse, count, start] = symbols[bytes[r]];
      uint32_t& x = states[r % kLanes];
      if (x >= count << 20) {
        *--at = static_cast<uint16_t>(x);
        x >>= 16;
      }
      const auto quotient = static_cast<uint32_t>(x * inverse >> 44);
      x = (quotient << 12) + (x - quotient * count) + start;
    }
  }
};

}  // namespace

IntegerTables::IntegerTables(std::span<const IntegerTable> tables) {
  for (const IntegerTable& t : tables) {
    uint32_t rest = kTableTotal;
    for (uint16_t count : t.counts) rest -= count;
    add(t.first, t.counts, rest);
  }
  for (uint32_t bits = kMaxLowBits; bits > 0; --bits) {
    add(0, std::vector<uint16_t>(size_t{1} << bits, static_cast<uint16_t>(kTableTotal >> bits)), 0);
  }
}

void IntegerTables::add(int first, std::span<const uint16_t> counts, uint32_t escape) {
  Coder coder{std::vector<uint32_t>(kTableTotal), std::vector<Symbol>(256)};
  uint32_t start = 0;
  auto put = [&](int value, uint32_t count) {
    if (count == 0) return;
    coder.symbols[value - kEscape] = {((uint64_t{1} << 44) + count - 1) / count, count, start};
    for (uint32_t i = 0; i < count; ++i) coder.slots[start + i] = slot_entry(count, i, value);
    start += count;
  };
  for (size_t i = 0; i < counts.size(); ++i) put(first + static_cast<int>(i), counts[i]);
  put(kEscape, escape);
  coders_.push_back(std::move(coder));
}

std::vector<uint8_t> encode_integers(const IntegerTables& tables, const ComponentCoding& coding,
                                     std::span<const int16_t> values, uint32_t rows) {
  const Symbols symbols = split(tables, coding, values, rows);
  std::vector<uint16_t> words(symbols.bytes.size());  // a symbol takes one at most
  Writer writer;
  std::fill_n(writer.states, kLanes, kFirstState);
  writer.at = words.data() + words.size();
  for (size_t c = coding.table.size(); c-- > 0;) {
    const uint8_t* high = symbols.bytes.data() + c * 2 * rows;
    const uint32_t bits = coding.low_bits[c];
    if (bits > 0) writer.put_row(high + rows, rows, tables.low_symbols(bits));
    writer.put_row(high, rows, tables.symbols(coding.table[c]));
  }
  const auto count = static_cast<uint32_t>(words.data() + words.size() - writer.at);
  const size_t states = std::min(rows, kLanes) * sizeof(uint32_t);
  std::vector<uint8_t> out(4 + states + 2 * size_t{count});
  std::memcpy(out.data(), &count, 4);
  std::memcpy(out.data() + 4, writer.states, states);
  if (count > 0) std::memcpy(out.data() + 4 + states, writer.at, 2 * size_t{count});
  out.insert(out.end(), symbols.escapes.begin(), symbols.escapes.end());
  return out;
}

namespace {

// The parts of a stream.
struct Parts {
  uint32_t states[kLanes];
  std::vector<uint16_t> words;
  std::span<const uint8_t> escapes;
};

Status take_apart(std::span<const uint8_t> stream, uint32_t rows, Parts& parts) {
  const size_t states = std::min(rows, kLanes) * sizeof(uint32_t);
  if (rows == 0 || rows > kMaxStreamRows || stream.size() < 4 + states) {
    return corruption("transform stream: too short, or not of 1 to 4096 rows");
  }
  uint32_t count = 0;
  std::memcpy(&count, stream.data(), 4);
  std::fill_n(parts.states, kLanes, kFirstState);
  std::memcpy(parts.states, stream.data() + 4, states);
  stream = stream.subspan(4 + states);
  if (count > stream.size() / 2) return corruption("transform stream: fewer words than it says");
  parts.words.resize(count);
  if (count > 0) std::memcpy(parts.words.data(), stream.data(), 2 * size_t{count});
  parts.escapes = stream.subspan(2 * size_t{count});
  return {};
}

// Puts low bits below, and escaped values in the place of escapes.
bool finish(int16_t* values, const int16_t* low, uint32_t bits, uint32_t rows,
            std::span<const uint8_t>& escapes) {
  int least = 0;
  for (uint32_t r = 0; r < rows; ++r) least = std::min<int>(least, values[r]);
  const bool escaped = least == kEscape;
  for (uint32_t r = 0; r < rows; ++r) {
    if (escaped && values[r] == kEscape) {
      if (!take_escape(escapes, values[r])) return false;
    } else if (bits > 0) {
      values[r] = static_cast<int16_t>((values[r] << bits) + low[r]);
    } else if (!escaped) {
      break;
    }
  }
  return true;
}

}  // namespace

Status decode_integers(const TransformKernels& kernels, const IntegerTables& tables,
                       const ComponentCoding& coding, std::span<const uint8_t> stream,
                       uint32_t rows, std::span<int16_t> values) {
  Parts parts;
  KV_RETURN_IF_ERROR(take_apart(stream, rows, parts));
  const uint16_t *at = parts.words.data(), *end = at + parts.words.size();
  std::vector<int16_t> low(lane_rows(rows));
  auto take = [&](const uint32_t* slots, int16_t* out) {
    const size_t taken =
        kernels.decode_integers(parts.states, at, static_cast<size_t>(end - at), slots, rows, out);
    at += taken == kNoWords ? 0 : taken;
    return taken != kNoWords;
  };
  for (size_t c = 0; c < coding.table.size(); ++c) {
    int16_t* out = values.data() + c * lane_rows(rows);
    const uint32_t bits = coding.low_bits[c];
    const bool good = take(tables.slots(coding.table[c]), out) &&
                      (bits == 0 || take(tables.low_slots(bits), low.data())) &&
                      finish(out, low.data(), bits, rows, parts.escapes);
    if (!good) return corruption("transform stream: component " + std::to_string(c));
  }
  const bool back = std::ranges::all_of(parts.states, [](uint32_t s) { return s == kFirstState; });
  if (at == end && back && parts.escapes.empty()) return {};
  return corruption("transform stream: it does not end where it began");
}

}  // namespace kv
