// The format: u64 length of a JSON object, that object, then the tensors' bytes.
#include "tools/cachectl_safetensors.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

namespace kv::cachectl {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMostHead = 100ull << 20;
constexpr size_t kAlign = 8;  // of the first tensor, as the format asks
constexpr const char* kTexts = "__metadata__";

uint64_t dtype_size(const std::string& dtype) {
  if (dtype == "U8") return 1;
  return dtype == "F32" ? 4 : dtype == "F16" || dtype == "BF16" ? 2 : 0;
}

// Appends the tensor that `value` describes. Returns: corruption.
Status add_tensor(const std::string& name, const Json& value, const Bytes& data, Safetensors& out) {
  const auto wrong = [&name](const char* what) {
    return corruption("tensor " + name.substr(0, 80) + ": " + what);
  };
  if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string() ||
      !value.contains("shape") || !value["shape"].is_array() || !value.contains("data_offsets") ||
      !value["data_offsets"].is_array() || value["data_offsets"].size() != 2) {
    return wrong("expected dtype, shape and data_offsets");
  }
  Tensor tensor;
  tensor.name = name;
  tensor.dtype = value["dtype"];
  uint64_t bytes = dtype_size(tensor.dtype);
  if (bytes == 0) return wrong("a dtype that no entry has");
  for (const Json& n : value["shape"]) {
    if (!n.is_number_unsigned()) return wrong("its shape is no list of numbers");
    tensor.shape.push_back(n);
    if (n != 0 && bytes > UINT64_MAX / n.get<uint64_t>()) return wrong("its shape is too large");
    bytes *= n.get<uint64_t>();
  }
  const Json& offsets = value["data_offsets"];
  if (!offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned()) {
    return wrong("its offsets are no numbers");
  }
  const uint64_t begin = offsets[0], end = offsets[1];
  if (begin > end || end > data.size() || end - begin != bytes) {
    return wrong("its offsets don't fit its shape or the file");
  }
  tensor.bytes = data.slice(begin, bytes);
  out.tensors.push_back(std::move(tensor));
  return {};
}

}  // namespace

const Tensor* Safetensors::find(const std::string& name) const {
  auto found = std::find_if(tensors.begin(), tensors.end(),
                            [&name](const Tensor& t) { return t.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

Status write_safetensors(const std::string& path, const Safetensors& content) {
  Json head = Json::object();
  head[kTexts] = content.texts;
  uint64_t at = 0;
  for (const Tensor& t : content.tensors) {
    head[t.name] = {
        {"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {at, at + t.bytes.size()}}};
    at += t.bytes.size();
  }
  std::string text = head.dump(-1, ' ', false, Json::error_handler_t::replace);
  while (text.size() % kAlign != 0) text += ' ';
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  std::FILE* file = fd < 0 ? nullptr : ::fdopen(fd, "wb");
  if (file == nullptr) {
    return Status(StatusCode::io_error, path + ": " + std::strerror(errno));
  }
  const uint64_t size = text.size();
  std::fwrite(&size, sizeof(size), 1, file);
  std::fwrite(text.data(), 1, text.size(), file);
  for (const Tensor& t : content.tensors) std::fwrite(t.bytes.data(), 1, t.bytes.size(), file);
  const bool failed = std::ferror(file) != 0;
  if (std::fclose(file) == 0 && !failed) return {};
  ::unlink(path.c_str());
  return Status(StatusCode::io_error, path + " could not be written whole");
}

Result<Safetensors> read_safetensors(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Status(StatusCode::not_found, path + " can't be opened");
  std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(in)), {});
  if (in.bad()) return Status(StatusCode::io_error, path + " can't be read");
  uint64_t size = 0;
  if (bytes.size() < sizeof(size)) return corruption(path + " is no safetensors file");
  std::memcpy(&size, bytes.data(), sizeof(size));
  if (size > kMostHead || size > bytes.size() - sizeof(size)) {
    return corruption(path + " is no safetensors file");
  }
  const auto* head = reinterpret_cast<const char*>(bytes.data()) + sizeof(size);
  const Json json = Json::parse(head, head + size, nullptr, false);
  if (!json.is_object()) return corruption(path + " is no safetensors file");
  const size_t begin = sizeof(size) + size;
  const Bytes whole = Bytes::owning(std::move(bytes));
  const Bytes data = whole.slice(begin, whole.size() - begin);
  Safetensors out;
  for (const auto& item : json.items()) {
    if (item.key() != kTexts) {
      KV_RETURN_IF_ERROR(add_tensor(item.key(), item.value(), data, out));
      continue;
    }
    for (const auto& text : item.value().items()) {
      if (!text.value().is_string()) return corruption("__metadata__ has what is no text");
      out.texts[text.key()] = text.value();
    }
  }
  return out;
}

}  // namespace kv::cachectl
