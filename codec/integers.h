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
  /// The values that a table has are first … last.
  struct Range {
    int first = 0, last = 0;
  };
  Range range(size_t table) const { return coders_[table].range; }
  /// By value + 128; the escape is -128.
  const Symbol* symbols(size_t table) const { return coders_[table].symbols.data(); }
  /// Tables of numbers of `bits` bits, all equally frequent.
  const uint32_t* low_slots(uint32_t bits) const { return slots(coders_.size() - bits); }
  const Symbol* low_symbols(uint32_t bits) const { return symbols(coders_.size() - bits); }

 private:
  struct Coder {
    std::vector<uint32_t> slots;
    std::vector<Symbol> symbols;
    Range range;
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

/// Reads a stream: the inverse of encode_integers, some components at a time. One thread.
class IntegerReader {
 public:
  /// The arguments stay alive. values (components, lane_rows(rows)): what they hold after a
  /// component's `rows` stays as it is.
  IntegerReader(const TransformKernels& kernels, const IntegerTables& tables,
                const ComponentCoding& coding, uint32_t rows, int16_t* values)
      : kernels_(kernels), tables_(tables), coding_(coding), rows_(rows), values_(values) {}
  IntegerReader(const IntegerReader&) = delete;
  IntegerReader& operator=(const IntegerReader&) = delete;

  /// `rows` are 1 to kMaxStreamRows. Returns: corruption, as all of these.
  Status open(std::span<const uint8_t> stream);
  size_t read() const { return component_; }  ///< components that are there
  /// Has the components before `end`.
  Status read_to(size_t end);
  /// The run that a kernel decodes beside its own work; finished if there is none. Damage is told
  /// by the next read_to.
  IntegerRun& beside();
  /// After all components: that the stream ends here.
  Status close();

 private:
  void begin();
  bool advance();
  Status damaged() const;

  const TransformKernels& kernels_;
  const IntegerTables& tables_;
  const ComponentCoding coding_;
  const uint32_t rows_;
  int16_t* const values_;
  uint32_t states_[kLanes];
  std::vector<uint16_t> words_;          // those of the stream, and room for what runs read
  const uint16_t* words_end_ = nullptr;  // of the stream's
  std::span<const uint8_t> escapes_;
  size_t component_ = 0;
  bool in_low_ = false;  // its low bits are being read
  bool good_ = true;
  std::vector<int16_t> low_;
  IntegerRun run_;
};

}  // namespace kv
