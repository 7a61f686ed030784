// Parsing of GGUF version 3. Layout: ggml's docs/gguf.md.
#include "engine/gguf.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace kv {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kMaxValues = 4096;
constexpr uint64_t kMaxTensors = 65536;
constexpr uint64_t kMaxKeyBytes = 1024;
constexpr uint64_t kMaxStringBytes = 1u << 20;
constexpr uint64_t kMaxArrayItems = 4u << 20;
constexpr uint32_t kMaxDims = 4;
constexpr uint64_t kMaxDimSize = uint64_t{1} << 32;
constexpr uint64_t kMaxAlignment = 1u << 16;

// Metadata types.
enum : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kText, kArray, kU64, kI64, kF64 };

// ggml's names of tensor types, for refusals. Index: ggml's number.
const char* const kTypeNames[] = {
    "F32",     "F16",    "Q4_0",    "Q4_1",  "Q4_2",   "Q4_3",  "Q5_0",  "Q5_1",
    "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
    "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
    "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16"};

std::string type_name(uint32_t type) {
  if (type < std::size(kTypeNames)) return kTypeNames[type];
  return "number " + std::to_string(type);
}

// The values of a type that are packed together, and their bytes; none for unknown types.
struct Group {
  uint32_t values = 0, bytes = 0;
};
Group group_of(uint32_t type) {
  switch (static_cast<TensorType>(type)) {
    case TensorType::f32:
      return {1, 4};
    case TensorType::f16:
      return {1, 2};
    case TensorType::q4_1:
      return {32, 20};
    case TensorType::q5_0:
      return {32, 22};
    case TensorType::q8_0:
      return {32, 34};
    case TensorType::q4_k:
      return {256, 144};
    case TensorType::q6_k:
      return {256, 210};
  }
  return {};
}

template <typename T>
std::vector<T> items_of(std::span<const uint8_t> bytes) {
  std::vector<T> items(bytes.size() / sizeof(T));
  if (!items.empty()) std::memcpy(items.data(), bytes.data(), bytes.size());
  return items;
}

}  // namespace

const char* to_string(TensorType type) { return kTypeNames[static_cast<uint32_t>(type)]; }

uint64_t row_bytes(TensorType type, uint64_t columns) {
  Group group = group_of(static_cast<uint32_t>(type));
  return columns / group.values * group.bytes;
}

// Fills a GgufFile from its bytes; `in_` stays failed after the first short read.
class GgufParser {
 public:
  explicit GgufParser(Bytes bytes) : in_(bytes.span()) { file_.bytes_ = std::move(bytes); }

  Result<GgufFile> run() {
    if (in_.u32() != kMagic) return corruption("GGUF: no magic at the start");
    uint32_t version = in_.u32();
    if (version != 3)
      return unsupported("GGUF: version " + std::to_string(version) + ", expected 3");
    uint64_t tensors = in_.u64(), values = in_.u64();
    if (in_.failed()) return corruption("GGUF: truncated header");
    if (tensors > kMaxTensors) return over("tensors", tensors, kMaxTensors);
    if (values > kMaxValues) return over("metadata values", values, kMaxValues);
    for (uint64_t i = 0; i < values; ++i) KV_RETURN_IF_ERROR(read_value());
    for (uint64_t i = 0; i < tensors; ++i) KV_RETURN_IF_ERROR(read_tensor());
    KV_RETURN_IF_ERROR(place_tensors());
    return std::move(file_);
  }

 private:
  static Status over(const std::string& what, uint64_t given, uint64_t limit) {
    return corruption("GGUF: " + what + " " + std::to_string(given) + " over the limit " +
                      std::to_string(limit));
  }

  std::string_view string(uint64_t max_bytes) {
    uint64_t size = in_.u64();
    if (size > max_bytes) in_.fail();
    auto b = in_.failed() ? std::span<const uint8_t>{} : in_.raw(size);
    return {reinterpret_cast<const char*>(b.data()), b.size()};
  }

  // The bytes read since `start`.
  std::span<const uint8_t> since(size_t start) const {
    return file_.bytes_.span().subspan(start, in_.at() - start);
  }

  Status read_value() {
    const size_t start = in_.at();
    std::string_view key = string(kMaxKeyBytes);
    uint32_t type = in_.u32();
    GgufValue value;
    if (type == kArray) {
      KV_RETURN_IF_ERROR(read_array(key, value));
    } else {
      KV_RETURN_IF_ERROR(read_scalar(key, type, value));
    }
    if (in_.failed()) return corruption("GGUF: metadata truncated or a length over its limit");
    if (!file_.values_.emplace(key, std::move(value)).second) {
      return corruption("GGUF: metadata key '" + std::string(key) + "' twice");
    }
    file_.entries_.emplace(key, since(start));
    return {};
  }

  Status read_scalar(std::string_view key, uint32_t type, GgufValue& value) {
    auto as_signed = [](auto v) { return static_cast<int64_t>(v); };
    switch (type) {
      case kU8:
        value = uint64_t{in_.u8()};
        return {};
      case kI8:
        value = as_signed(static_cast<int8_t>(in_.u8()));
        return {};
      case kU16:
        value = uint64_t{in_.u16()};
        return {};
      case kI16:
        value = as_signed(static_cast<int16_t>(in_.u16()));
        return {};
      case kU32:
        value = uint64_t{in_.u32()};
        return {};
      case kI32:
        value = as_signed(in_.i32());
        return {};
      case kF32:
        value = double{in_.f32()};
        return {};
      case kBool:
        value = in_.u8() != 0;
        return {};
      case kText:
        value = string(kMaxStringBytes);
        return {};
      case kU64:
        value = in_.u64();
        return {};
      case kI64:
        value = as_signed(in_.u64());
        return {};
      case kF64:
        value = std::bit_cast<double>(in_.u64());
        return {};
      default:
        break;
    }
    return corruption("GGUF: metadata '" + std::string(key) + "': unknown type " +
                      std::to_string(type));
  }

  // Arrays of strings, int32 and float are kept; others are only skipped over.
  Status read_array(std::string_view key, GgufValue& value) {
    static constexpr uint32_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    uint32_t type = in_.u32();
    uint64_t count = in_.u64();
    if (in_.failed() || count > kMaxArrayItems) return over("array items", count, kMaxArrayItems);
    if (type == kText) {
      if (count > in_.left() / 8) return corruption("GGUF: truncated array of strings");
      std::vector<std::string_view> items(count);
      for (auto& item : items) item = string(kMaxStringBytes);
      value = std::move(items);
      return {};
    }
    if (type > kF64 || type == kArray) {
      return corruption("GGUF: metadata '" + std::string(key) + "': unknown array type " +
                        std::to_string(type));
    }
    auto bytes = in_.raw(count * kSizes[type]);
    if (in_.failed()) return {};
    if (type == kI32 || type == kU32) value = items_of<int32_t>(bytes);
    if (type == kF32) value = items_of<float>(bytes);
    return {};
  }

  Status read_tensor() {
    GgufTensor t;
    const size_t start = in_.at();
    t.name = string(kMaxKeyBytes);
    uint32_t dims = in_.u32();
    std::string name = "GGUF: tensor '" + std::string(t.name) + "': ";
    if (in_.failed() || dims == 0 || dims > kMaxDims) {
      return corruption(name + "truncated, or dimensions outside 1.." + std::to_string(kMaxDims));
    }
    uint64_t rows = 1;
    for (uint32_t i = 0; i < dims; ++i) {
      t.dims.push_back(in_.u64());
      if (t.dims[i] == 0 || t.dims[i] > kMaxDimSize)
        return corruption(name + "a dimension of " + std::to_string(t.dims[i]));
      if (i > 0 && __builtin_mul_overflow(rows, t.dims[i], &rows))
        return corruption(name + "too large");
    }
    uint32_t type = in_.u32();
    t.info = since(start);
    uint64_t offset = in_.u64();
    if (in_.failed()) return corruption(name + "truncated");
    uint32_t group = group_of(type).values;
    if (group == 0) {
      return unsupported(name + "type " + type_name(type) +
                         " (known: F32, F16, Q4_1, Q5_0, Q8_0, Q4_K, Q6_K)");
    }
    t.type = static_cast<TensorType>(type);
    if (t.dims[0] % group != 0) {
      return corruption(name + "row of " + std::to_string(t.dims[0]) +
                        " values, expected a multiple of " + std::to_string(group));
    }
    uint64_t size = 0;
    if (__builtin_mul_overflow(rows, row_bytes(t.type, t.dims[0]), &size))
      return corruption(name + "too large");
    places_.push_back({offset, size});
    if (!file_.by_name_.emplace(t.name, file_.tensors_.size()).second)
      return corruption(name + "twice");
    file_.tensors_.push_back(std::move(t));
    return {};
  }

  // Tensor data begins at the next multiple of the alignment; offsets count from there.
  Status place_tensors() {
    uint64_t alignment = 32;
    if (file_.has("general.alignment")) {
      KV_ASSIGN_OR_RETURN(alignment, file_.integer("general.alignment"));
    }
    if (alignment == 0 || alignment > kMaxAlignment || (alignment & (alignment - 1)) != 0) {
      return corruption("GGUF: general.alignment " + std::to_string(alignment) +
                        ", expected a power of two up to " + std::to_string(kMaxAlignment));
    }
    uint64_t start = (in_.at() + alignment - 1) / alignment * alignment;
    uint64_t total = file_.bytes_.size();
    for (size_t i = 0; i < places_.size(); ++i) {
      auto [offset, size] = places_[i];
      if (start > total || offset > total - start || size > total - start - offset ||
          offset % alignment != 0) {
        return corruption("GGUF: tensor '" + std::string(file_.tensors_[i].name) +
                          "': data outside the file or not aligned");
      }
      file_.tensors_[i].data = file_.bytes_.span().subspan(start + offset, size);
    }
    return {};
  }

  struct Place {
    uint64_t offset, size;
  };
  GgufFile file_;
  ByteReader in_;
  std::vector<Place> places_;
};

Result<GgufFile> GgufFile::parse(Bytes bytes) { return GgufParser(std::move(bytes)).run(); }

Result<GgufFile> GgufFile::open(const std::string& path) {
  auto failed = [&path](const char* what) {
    return Status(StatusCode::io_error,
                  std::string(what) + " " + path + ": " + std::strerror(errno));
  };
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failed("open");
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) {
    ::close(fd);
    return corruption("GGUF: " + path + " is empty or no regular file");
  }
  auto size = static_cast<size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    ::close(fd);
    return Status(StatusCode::resource_exhausted,
                  path + ": no memory for its " + std::to_string(size) + " bytes");
  }
  std::shared_ptr<const void> owner(data, [size](void* p) { ::munmap(p, size); });
  ::madvise(data, size, MADV_HUGEPAGE);  // advice: what it answers changes nothing
  size_t done = 0;
  ssize_t n = 1;
  while (done < size && n > 0) {
    n = ::read(fd, static_cast<uint8_t*>(data) + done, size - done);
    if (n > 0) done += static_cast<size_t>(n);
    if (n < 0 && errno == EINTR) n = 1;
  }
  Status read = n < 0 ? failed("read") : Status();
  ::close(fd);
  KV_RETURN_IF_ERROR(read);
  ::mprotect(data, size, PROT_READ);
  KV_ASSIGN_OR_RETURN(auto file,
                      parse(Bytes(std::move(owner), static_cast<const uint8_t*>(data), done)));
  file.own_memory_ = true;
  return file;
}

void GgufFile::drop_data() {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  uintptr_t first = UINTPTR_MAX, end = 0;
  for (GgufTensor& t : tensors_) {
    first = std::min(first, reinterpret_cast<uintptr_t>(t.data.data()));
    end = std::max(end, reinterpret_cast<uintptr_t>(t.data.data() + t.data.size()));
    t.data = {};
  }
  first = (first + page - 1) / page * page;
  if (own_memory_ && first < end) {  // the last page is the file's to its end
    ::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
  }
}

namespace {

Status wrong_type(std::string_view key, const char* expected) {
  return corruption("GGUF: metadata '" + std::string(key) + "' missing or no " + expected);
}

}  // namespace

Result<uint64_t> GgufFile::integer(std::string_view key) const {
  auto it = values_.find(key);
  if (it != values_.end()) {
    if (auto* u = std::get_if<uint64_t>(&it->second)) return *u;
    if (auto* s = std::get_if<int64_t>(&it->second); s && *s >= 0) return static_cast<uint64_t>(*s);
    if (auto* b = std::get_if<bool>(&it->second)) return static_cast<uint64_t>(*b);
  }
  return wrong_type(key, "non-negative integer");
}

Result<double> GgufFile::number(std::string_view key) const {
  auto it = values_.find(key);
  if (it == values_.end() || !std::holds_alternative<double>(it->second)) {
    return wrong_type(key, "float");
  }
  return std::get<double>(it->second);
}

Result<std::string_view> GgufFile::text(std::string_view key) const {
  auto it = values_.find(key);
  if (it == values_.end() || !std::holds_alternative<std::string_view>(it->second)) {
    return wrong_type(key, "string");
  }
  return std::get<std::string_view>(it->second);
}

Result<std::span<const std::string_view>> GgufFile::texts(std::string_view key) const {
  auto it = values_.find(key);
  if (it != values_.end()) {
    if (auto* v = std::get_if<std::vector<std::string_view>>(&it->second)) {
      return std::span<const std::string_view>(*v);
    }
  }
  return wrong_type(key, "array of strings");
}

Result<std::span<const int32_t>> GgufFile::integers(std::string_view key) const {
  auto it = values_.find(key);
  if (it != values_.end()) {
    if (auto* v = std::get_if<std::vector<int32_t>>(&it->second))
      return std::span<const int32_t>(*v);
  }
  return wrong_type(key, "array of 32-bit integers");
}

Result<std::span<const float>> GgufFile::floats(std::string_view key) const {
  auto it = values_.find(key);
  if (it != values_.end()) {
    if (auto* v = std::get_if<std::vector<float>>(&it->second)) return std::span<const float>(*v);
  }
  return wrong_type(key, "array of 32-bit floats");
}

std::vector<std::string_view> GgufFile::keys() const {
  std::vector<std::string_view> out;
  for (const auto& [key, value] : values_) out.push_back(key);
  return out;
}

std::span<const uint8_t> GgufFile::entry(std::string_view key) const {
  auto it = entries_.find(key);
  return it == entries_.end() ? std::span<const uint8_t>{} : it->second;
}

const GgufTensor* GgufFile::tensor(std::string_view name) const {
  auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

}  // namespace kv
