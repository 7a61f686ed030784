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
    const IntegerTables::Range range = tables.range(coding.table[c]);
    const uint32_t bits = coding.low_bits[c];
    const int16_t* __restrict from = values.data() + c * lane_rows(rows);
    uint8_t* __restrict high = s.bytes.data() + c * 2 * rows;
    uint8_t* __restrict low = high + rows;
    auto fits = [&](int top) { return (top >= range.first) & (top <= range.last); };
    bool all = true;
    for (uint32_t r = 0; r < rows; ++r) {
      const int top = from[r] >> bits;
      all &= fits(top);
      high[r] = static_cast<uint8_t>(fits(top) ? top - kEscape : 0);
    }
    const int mask = (1 << bits) - 1;
    for (uint32_t r = 0; bits > 0 && r < rows; ++r) {
      low[r] = static_cast<uint8_t>((fits(from[r] >> bits) ? from[r] & mask : 0) - kEscape);
    }
    for (uint32_t r = 0; !all && r < rows; ++r) {
      if (!fits(from[r] >> bits)) put_escape(s.escapes, from[r]);
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
      uint32_t x = states[r % kLanes];
      const bool gives = x >= count << 20;  // nobody can foretell it: no branch
      at[-1] = static_cast<uint16_t>(x);
      at -= gives;
      x = gives ? x >> 16 : x;
      const auto quotient = static_cast<uint32_t>(x * inverse >> 44);
      states[r % kLanes] = (quotient << 12) + (x - quotient * count) + start;
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
  Coder coder{std::vector<uint32_t>(kTableTotal),
              std::vector<Symbol>(256),
              {first, first + static_cast<int>(counts.size()) - 1}};
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
  std::vector<uint16_t> words(symbols.bytes.size() + 1);  // a symbol takes one at most
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

// Puts low bits below, and escaped values in the place of escapes.
bool finish(int16_t* values, const int16_t* low, uint32_t bits, uint32_t rows,
            std::span<const uint8_t>& escapes) {
  int16_t escaped = 0;
  for (uint32_t r = 0; r < rows; ++r) {
    escaped = static_cast<int16_t>(escaped | (values[r] == kEscape ? -1 : 0));
  }
  if (escaped == 0) {
    for (uint32_t r = 0; bits > 0 && r < rows; ++r) {
      values[r] = static_cast<int16_t>((values[r] << bits) + low[r]);
    }
    return true;
  }
  for (uint32_t r = 0; r < rows; ++r) {
    if (values[r] != kEscape) {
      values[r] = static_cast<int16_t>((values[r] << bits) + (bits > 0 ? low[r] : 0));
    } else if (!take_escape(escapes, values[r])) {
      return false;
    }
  }
  return true;
}

}  // namespace

Status IntegerReader::damaged() const {
  return corruption("transform stream: component " + std::to_string(component_));
}

Status IntegerReader::open(std::span<const uint8_t> stream) {
  const size_t states = std::min(rows_, kLanes) * sizeof(uint32_t);
  if (rows_ == 0 || rows_ > kMaxStreamRows || stream.size() < 4 + states) {
    return corruption("transform stream: too short, or not of 1 to 4096 rows");
  }
  uint32_t count = 0;
  std::memcpy(&count, stream.data(), 4);
  std::fill_n(states_, kLanes, kFirstState);
  std::memcpy(states_, stream.data() + 4, states);
  stream = stream.subspan(4 + states);
  if (count > stream.size() / 2) return corruption("transform stream: fewer words than it says");
  words_.resize(count + size_t{rows_} + kLanes);
  if (count > 0) std::memcpy(words_.data(), stream.data(), 2 * size_t{count});
  words_end_ = words_.data() + count;
  escapes_ = stream.subspan(2 * size_t{count});
  low_.resize(lane_rows(rows_));
  run_.words = words_.data();
  run_.states = states_;
  begin();
  return {};
}

// The run of the component in hand, none of which is read yet.
void IntegerReader::begin() {
  run_.at = run_.end = 0;
  if (component_ == coding_.table.size()) return;
  run_.table = in_low_ ? tables_.low_slots(coding_.low_bits[component_])
                       : tables_.slots(coding_.table[component_]);
  run_.out = in_low_ ? low_.data() : values_ + component_ * lane_rows(rows_);
  run_.end = rows_ / kLanes * kLanes;
}

// Reads the rest of the run in hand, and begins the next one. False: damage.
bool IntegerReader::advance() {
  if (run_.words > words_end_) return false;
  if (run_.at == 0) {
    const size_t taken =
        kernels_.decode_integers(states_, run_.words, static_cast<size_t>(words_end_ - run_.words),
                                 run_.table, rows_, run_.out);
    if (taken == kNoWords) return false;
    run_.words += taken;
  }
  for (size_t r = run_.at; run_.at > 0 && r < rows_; ++r) {
    if (!step_state(states_[r % kLanes], run_.words, words_end_, run_.table, run_.out[r])) {
      return false;
    }
  }
  const uint32_t bits = coding_.low_bits[component_];
  in_low_ = bits > 0 && !in_low_;
  if (!in_low_) {
    if (!finish(values_ + component_ * lane_rows(rows_), low_.data(), bits, rows_, escapes_)) {
      return false;
    }
    ++component_;
  }
  begin();
  return true;
}

Status IntegerReader::read_to(size_t end) {
  while (good_ && component_ < end) good_ = advance();
  return good_ ? Status() : damaged();
}

IntegerRun& IntegerReader::beside() {
  const bool rest = run_.at == run_.end && component_ < coding_.table.size();
  if (rest && good_ && !(good_ = advance())) run_.at = run_.end = 0;
  return run_;
}

Status IntegerReader::close() {
  KV_RETURN_IF_ERROR(read_to(coding_.table.size()));
  const bool back = std::ranges::all_of(states_, [](uint32_t s) { return s == kFirstState; });
  if (run_.words == words_end_ && back && escapes_.empty()) return {};
  return corruption("transform stream: it does not end where it began");
}

}  // namespace kv
