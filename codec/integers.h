// Streams of integers of many components, as interleaved rANS codes them with static tables
// (codec/TRANSFORM.md, "Stream").
//
// A stream holds rows x components integers, component after component, and is decoded as a whole.
// Any bytes are safe input. Tables are immutable: any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codec/transform_kernels.h"
#include "proto/status.h"
#include "proto/transform.h"

namespace kv {

/// Rows of one component in memory: a whole number of steps.
constexpr size_t lane_rows(size_t rows) { return (rows + kLanes - 1) / kLanes * kLanes; }

/// The tables of a set as coders take them: kTableTotal entries each, 18 KiB with the encoder's.
class IntegerTables {
 public:
  struct Symbol {
    uint64_t inverse = 0;  ///< 2^44 / count, rounded up: x * inverse >> 44 is x / count below
    uint32_t count = 0, start = 0;  ///< count * 2^20, as count is below 4096
  };
  /// Tables that validate() accepts.
  explicit IntegerTables(std::span<const IntegerTable> tables);
  const uint32_t* slots(size_t table) const { return coders_[table].slots.data(); }
  /// By value + 128; the escape is -128.
  const Symbol* symbols(size_t table) const { return coders_[table].symbols.data(); }
  /// Tables of numbers of `bits` bits, all equally frequent.
  const uint32_t* low_slots(uint32_t bits) const { return slots(coders_.size() - bits); }
  const Symbol* low_symbols(uint32_t bits) const { return symbols(coders_.size() - bits); }

 private:
  struct Coder {
    std::vector<uint32_t> slots;
    std::vector<Symbol> symbols;
  };
  void add(int first, std::span<const uint16_t> counts, uint32_t escape);
  std::vector<Coder> coders_;  // the set's, then those of kMaxLowBits … 1 bits
};

/// How each component's integers are coded: (components) each.
struct ComponentCoding {
  std::span<const uint8_t> table, low_bits;
};

/// values (components, lane_rows(rows)); 1 to kMaxStreamRows rows.
std::vector<uint8_t> encode_integers(const IntegerTables& tables, const ComponentCoding& coding,
                                     std::span<const int16_t> values, uint32_t rows);
/// The inverse; what `values` holds after a component's `rows` is undefined. Returns: corruption.
Status decode_integers(const TransformKernels& kernels, const IntegerTables& tables,
                       const ComponentCoding& coding, std::span<const uint8_t> stream,
                       uint32_t rows, std::span<int16_t> values);

}  // namespace kv
