// Sizes, slicing and joining of planes. Layouts: proto/plane.h.
#include "proto/plane.h"

#include <algorithm>

namespace kv {
namespace {

// Appends rows [first, end) of a code run with `run_rows` rows to per-head code and scale streams.
struct CodeStreams {
  std::vector<std::vector<uint8_t>> codes, scales;  // streams by head
};

void take_codes(const Plane& p, const uint8_t* run, uint64_t run_rows, uint64_t first, uint64_t end,
                CodeStreams& out) {
  uint64_t cb = code_bytes(p.dim, p.bits);
  const uint8_t* scales = run + p.heads * run_rows * cb;
  for (uint32_t h = 0; h < p.heads; ++h) {
    const uint8_t* c = run + (h * run_rows) * cb;
    out.codes[h].insert(out.codes[h].end(), c + first * cb, c + end * cb);
    const uint8_t* s = scales + h * run_rows * 2;
    out.scales[h].insert(out.scales[h].end(), s + first * 2, s + end * 2);
  }
}

// Builds one plane out of row pieces, merging adjacent runs of one form.
class PlaneBuilder {
 public:
  explicit PlaneBuilder(const Plane& like) : out_(like) {
    out_.runs.clear();
    out_.bytes = {};
    out_.bits = 0;
    reset_streams();
  }
  void add(const Plane& p, uint32_t first, uint32_t end) {
    uint64_t row = p.first_row, offset = 0;
    for (const RowRun& run : p.runs) {
      uint64_t a = std::max<uint64_t>(row, first), b = std::min<uint64_t>(row + run.rows, end);
      if (a < b) add_run(p, run, p.bytes.data() + offset, a - row, b - row);
      row += run.rows;
      offset += run_bytes(p, run);
    }
  }
  Plane finish(uint32_t first_row) {
    flush_codes();
    out_.first_row = first_row;
    out_.bytes = Bytes::owning(std::move(bytes_));
    return std::move(out_);
  }

 private:
  void add_run(const Plane& p, const RowRun& run, const uint8_t* data, uint64_t a, uint64_t b) {
    if (run.form == RunForm::stream) {
      return add_stream(run, data, static_cast<uint32_t>(a), static_cast<uint32_t>(b));
    }
    if (out_.runs.empty() || out_.runs.back().form != run.form) {
      flush_codes();
      out_.runs.push_back({run.form, 0});
    }
    out_.runs.back().rows += static_cast<uint32_t>(b - a);
    if (run.form == RunForm::codes) {
      out_.bits = p.bits;
      take_codes(p, data, run.rows, a, b, streams_);
      pending_ = true;
    } else {
      uint64_t row_bytes = run_bytes(p, RunForm::exact, 1);
      bytes_.insert(bytes_.end(), data + a * row_bytes, data + b * row_bytes);
    }
  }
  // A whole stream, of which rows [a, b) of the run are taken. What was cut from one comes together
  // again.
  void add_stream(const RowRun& run, const uint8_t* data, uint32_t a, uint32_t b) {
    flush_codes();
    RowRun* last = out_.runs.empty() ? nullptr : &out_.runs.back();
    const bool same = last != nullptr && last->form == RunForm::stream &&
                      last->bytes == run.bytes && last->of == run.of &&
                      last->skip + last->rows == run.skip + a &&
                      std::equal(data, data + run.bytes, bytes_.end() - run.bytes);
    if (same) {
      last->rows += b - a;
      return;
    }
    out_.runs.push_back({RunForm::stream, b - a, run.bytes, run.skip + a, run.of});
    bytes_.insert(bytes_.end(), data, data + run.bytes);
  }
  void flush_codes() {
    if (!pending_) return;
    for (auto& c : streams_.codes) bytes_.insert(bytes_.end(), c.begin(), c.end());
    for (auto& s : streams_.scales) bytes_.insert(bytes_.end(), s.begin(), s.end());
    reset_streams();
  }
  void reset_streams() {
    streams_.codes.assign(out_.heads, {});
    streams_.scales.assign(out_.heads, {});
    pending_ = false;
  }
  Plane out_;
  std::vector<uint8_t> bytes_;
  CodeStreams streams_;
  bool pending_ = false;
};

}  // namespace

uint32_t Plane::rows() const {
  uint32_t n = 0;
  for (const auto& run : runs) n += run.rows;
  return n;
}

const char* to_string(RunForm form) {
  return form == RunForm::exact ? "exact" : form == RunForm::codes ? "codes" : "stream";
}

bool has_coded_runs(const Plane& plane) {
  return std::ranges::any_of(plane.runs,
                             [](const RowRun& run) { return run.form != RunForm::exact; });
}

uint8_t coding_word(const Plane& plane) {
  const bool stream = std::ranges::any_of(
      plane.runs, [](const RowRun& run) { return run.form == RunForm::stream; });
  return stream ? kTransformWord : plane.bits;
}

uint64_t code_bytes(uint32_t dim, uint8_t bits) { return (uint64_t{dim} * bits + 7) / 8; }

uint64_t run_bytes(const Plane& plane, RunForm form, uint64_t rows) {
  uint64_t vectors = rows * plane.heads;
  if (form == RunForm::exact) return vectors * plane.dim * dtype_bytes(plane.dtype);
  return vectors * (code_bytes(plane.dim, plane.bits) + 2);
}

uint64_t run_bytes(const Plane& plane, const RowRun& run) {
  return run.form == RunForm::stream ? run.bytes : run_bytes(plane, run.form, run.rows);
}

uint64_t plane_bytes(const Plane& plane) {
  uint64_t bytes = 0;
  for (const auto& run : plane.runs) bytes += run_bytes(plane, run);
  return bytes;
}

Result<Plane> slice_rows(const Plane& plane, uint32_t first, uint32_t end) {
  if (first > end || first < plane.first_row || end > plane.end_row()) {
    return invalid_argument("slice [" + std::to_string(first) + ", " + std::to_string(end) +
                            ") outside the plane's rows [" + std::to_string(plane.first_row) +
                            ", " + std::to_string(plane.end_row()) + ")");
  }
  if (plane.bytes.size() != plane_bytes(plane)) {
    return invalid_argument("slice: expected a plane of " + std::to_string(plane_bytes(plane)) +
                            " bytes, given " + std::to_string(plane.bytes.size()));
  }
  PlaneBuilder builder(plane);
  builder.add(plane, first, end);
  return builder.finish(first);
}

Result<Plane> join_rows(const std::vector<Plane>& planes) {
  if (planes.empty()) return invalid_argument("join of no planes");
  const Plane& a = planes.front();
  PlaneBuilder builder(a);
  uint32_t next = a.first_row;
  uint8_t bits = 0;  // bits of all code runs; 0 until one is seen
  for (size_t i = 0; i < planes.size(); ++i) {
    const Plane& p = planes[i];
    bool same = p.layer == a.layer && p.part == a.part && p.side == a.side && p.heads == a.heads &&
                p.dim == a.dim && p.dtype == a.dtype &&
                (p.bits == bits || p.bits == 0 || bits == 0);
    if (!same || p.first_row != next || p.bytes.size() != plane_bytes(p)) {
      return invalid_argument("join: plane " + std::to_string(i) + " does not follow the first");
    }
    builder.add(p, p.first_row, p.end_row());
    if (p.bits != 0) bits = p.bits;
    next = p.end_row();
  }
  return builder.finish(a.first_row);
}

const char* to_string(ObjectKind kind) {
  switch (kind) {
    case ObjectKind::block:
      return "block";
    case ObjectKind::tail:
      return "tail";
    case ObjectKind::supplement:
      return "supplement";
    case ObjectKind::snapshot:
      return "snapshot";
  }
  return "unknown";
}

uint64_t Object::payload_bytes() const {
  uint64_t bytes = 0;
  for (const auto& p : planes) bytes += p.bytes.size();
  for (const auto& s : states) bytes += s.bytes.size();
  return bytes;
}

}  // namespace kv
