// Reading and writing safetensors; the header says where each tensor's bytes are.
#include "file/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "file/json.h"

namespace tpjrt::file {
namespace {

constexpr size_t kLine = 64;

}  // namespace

std::optional<size_t> size_of(DType dtype, const std::vector<int64_t>& shape) {
  size_t size = torch_pjrt::width(dtype);
  for (const int64_t dim : shape) {
    if (dim < 0) return std::nullopt;
    const auto count = static_cast<size_t>(dim);
    if (count != 0 && size > std::numeric_limits<size_t>::max() / 2 / count) return std::nullopt;
    size *= count;
  }
  return size;
}

Tensors read_safetensors(Bytes bytes, const std::string& path) {
  const auto fail = [&](const std::string& reason) -> void {
    throw Error("'" + path + "' is no safetensors file, or is damaged: " + reason);
  };
  uint64_t header = 0;
  if (bytes.size() < sizeof header) fail("it is too short");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header > bytes.size() - sizeof header) fail("its header is beyond its end");
  const Bytes data = bytes.subspan(sizeof header + header);
  Tensors tensors;
  try {
    const Json json = Json::parse({reinterpret_cast<const char*>(bytes.data()) + sizeof header, header});
    for (const auto& [name, entry] : json.object("its header")) {
      if (name == "__metadata__") continue;
      const auto dtype = dtype_of_safetensors(entry.at("dtype").string("a dtype"));
      if (!dtype) fail(name + " has an unknown dtype");
      Stored tensor{*dtype, {}, {}};
      for (const Json& dim : entry.at("shape").list("a shape")) tensor.shape.push_back(dim.integer("a size"));
      const auto& offsets = entry.at("data_offsets").list("data_offsets");
      if (offsets.size() != 2) fail(name + " has no two offsets");
      const int64_t first = offsets[0].integer("an offset"), last = offsets[1].integer("an offset");
      const auto size = size_of(tensor.dtype, tensor.shape);
      if (first < 0 || last < first || static_cast<size_t>(last) > data.size() || !size ||
          static_cast<size_t>(last - first) != *size) {
        fail(name + " has another size than its shape says, or is beyond the end");
      }
      tensor.bytes = data.subspan(static_cast<size_t>(first), static_cast<size_t>(last - first));
      tensors.emplace(name, std::move(tensor));
    }
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with("'")) throw;
    fail(error.what());
  }
  return tensors;
}

void write_safetensors(const std::string& path, const Tensors& tensors) {
  std::vector<const Tensors::value_type*> order;
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    const auto rank = [](const Stored& t) {
      return t.bytes.size() % kLine == 0 ? size_t{0} : kLine - torch_pjrt::width(t.dtype);
    };
    return rank(a->second) < rank(b->second);
  });
  Json::Object header;
  size_t at = 0;
  for (const auto* entry : order) {
    const auto& [name, tensor] = *entry;
    Json::List shape;
    for (const int64_t dim : tensor.shape) shape.emplace_back(dim);
    const auto end = static_cast<int64_t>(at + tensor.bytes.size());
    header.emplace_back(name, Json(Json::Object{
                                  {"dtype", Json(std::string(safetensors_code(tensor.dtype)))},
                                  {"shape", Json(std::move(shape))},
                                  {"data_offsets", Json(Json::List{Json(static_cast<int64_t>(at)), Json(end)})},
                              }));
    at += tensor.bytes.size();
  }
  std::string text = Json(std::move(header)).text();
  text.resize((text.size() + 8 + kLine - 1) / kLine * kLine - 8, ' ');
  Replacement file(path);
  const auto size = static_cast<uint64_t>(text.size());
  file.write(std::as_bytes(std::span(&size, 1)));
  file.write(text);
  for (const auto* entry : order) file.write(entry->second.bytes);
  file.commit();
}

}  // namespace tpjrt::file
