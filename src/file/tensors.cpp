// Readers of .npy and safetensors files (file/tensors.h).
#include "file/tensors.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <limits>

#include "file/json.h"
#include "file/mapping.h"

namespace tpjrt::file {

namespace {

constexpr size_t kLine = 64;  // bytes of a cache line

struct Row {
  DType dtype;
  size_t width;
  std::string_view name, safetensors, npy;
};

constexpr std::array kRows{
    Row{DType::kBool, 1, "bool", "BOOL", "|b1"},
    Row{DType::kInt8, 1, "int8", "I8", "|i1"},
    Row{DType::kInt16, 2, "int16", "I16", "<i2"},
    Row{DType::kInt32, 4, "int32", "I32", "<i4"},
    Row{DType::kInt64, 8, "int64", "I64", "<i8"},
    Row{DType::kUInt8, 1, "uint8", "U8", "|u1"},
    Row{DType::kUInt16, 2, "uint16", "U16", "<u2"},
    Row{DType::kUInt32, 4, "uint32", "U32", "<u4"},
    Row{DType::kUInt64, 8, "uint64", "U64", "<u8"},
    Row{DType::kFloat16, 2, "float16", "F16", "<f2"},
    Row{DType::kBFloat16, 2, "bfloat16", "BF16", ""},
    Row{DType::kFloat32, 4, "float32", "F32", "<f4"},
    Row{DType::kFloat64, 8, "float64", "F64", "<f8"},
    Row{DType::kComplex64, 8, "complex64", "C64", "<c8"},
    Row{DType::kFloat8E4M3FN, 1, "float8_e4m3fn", "F8_E4M3", ""},
    Row{DType::kFloat8E5M2, 1, "float8_e5m2", "F8_E5M2", ""},
    Row{DType::kFloat8E4M3FNUZ, 1, "float8_e4m3fnuz", "F8_E4M3FNUZ", ""},
    Row{DType::kFloat8E5M2FNUZ, 1, "float8_e5m2fnuz", "F8_E5M2FNUZ", ""},
    Row{DType::kFloat8E8M0FNU, 1, "float8_e8m0fnu", "F8_E8M0", ""},
};

const Row& row(DType dtype) { return kRows.at(static_cast<size_t>(dtype)); }

std::optional<DType> found(std::string_view Row::* spelling, std::string_view text) {
  for (const Row& row : kRows) {
    if (!text.empty() && row.*spelling == text) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace

std::optional<DType> dtype_named(std::string_view name) { return found(&Row::name, name); }
std::optional<DType> dtype_of_safetensors(std::string_view code) { return found(&Row::safetensors, code); }
std::string_view safetensors_code(DType dtype) { return row(dtype).safetensors; }
std::optional<DType> dtype_of_npy(std::string_view code) { return found(&Row::npy, code); }
std::string_view npy_code(DType dtype) { return row(dtype).npy; }

}  // namespace tpjrt::file

namespace torch_pjrt {

std::string_view name(DType dtype) { return tpjrt::file::row(dtype).name; }
size_t width(DType dtype) { return tpjrt::file::row(dtype).width; }

}  // namespace torch_pjrt

namespace tpjrt::file {

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

namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);

// Returns the text after "'key':" in the header.
std::string_view after(std::string_view header, std::string_view key) {
  const size_t at = header.find("'" + std::string(key) + "':");
  if (at == std::string_view::npos) return {};
  std::string_view rest = header.substr(at + key.size() + 3);
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  return rest;
}

}  // namespace

Stored read_npy(Bytes bytes, const std::string& path) {
  const auto fail = [&](const std::string& reason) -> void {
    throw Error("'" + path + "' can't be read as .npy: " + reason + ". numpy.save writes one");
  };
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.size() < 12 || !text.starts_with(kMagic)) fail("it doesn't begin as one");
  const auto version = static_cast<unsigned char>(text[6]);
  size_t size = 0, start = 10;
  if (version == 1) {
    uint16_t narrow = 0;
    std::memcpy(&narrow, text.data() + 8, 2);
    size = narrow;
  } else {
    uint32_t wide = 0;
    std::memcpy(&wide, text.data() + 8, 4);
    size = wide;
    start = 12;
  }
  if (size > text.size() - start) fail("its header is beyond its end");
  const std::string_view header = text.substr(start, size);
  const std::string_view descr = after(header, "descr");
  const size_t close = descr.size() > 1 ? descr.find('\'', 1) : std::string_view::npos;
  const auto dtype = close == std::string_view::npos ? std::nullopt : dtype_of_npy(descr.substr(1, close - 1));
  if (!dtype) fail("its dtype is none of ours, or is big-endian");
  if (!after(header, "fortran_order").starts_with("False")) fail("it is in Fortran's order (numpy.ascontiguousarray)");
  Stored tensor{*dtype, {}, {}};
  std::string_view shape = after(header, "shape");
  if (!shape.starts_with('(')) fail("it has no shape");
  for (shape.remove_prefix(1); !shape.empty() && !shape.starts_with(')');) {
    int64_t dim = 0;
    const auto [rest, error] = std::from_chars(shape.data(), shape.data() + shape.size(), dim);
    if (error != std::errc()) fail("its shape is none");
    tensor.shape.push_back(dim);
    shape.remove_prefix(static_cast<size_t>(rest - shape.data()));
    while (shape.starts_with(',') || shape.starts_with(' ')) shape.remove_prefix(1);
  }
  const auto count = size_of(tensor.dtype, tensor.shape);
  if (!count || *count > text.size() - start - size) fail("it is truncated");
  tensor.bytes = bytes.subspan(start + size, *count);
  return tensor;
}

void write_npy(const std::string& path, const Stored& tensor) {
  std::string code(npy_code(tensor.dtype));
  if (code.empty()) code = torch_pjrt::width(tensor.dtype) == 1 ? "|u1" : "<u2";
  std::string header = "{'descr': '" + code + "', 'fortran_order': False, 'shape': (";
  for (const int64_t dim : tensor.shape) header += std::to_string(dim) + ", ";
  if (tensor.shape.size() > 1) header.resize(header.size() - 2);
  header += "), }";
  header.resize((header.size() + 11 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  const auto size = static_cast<uint16_t>(header.size());
  Replacement file(path);
  file.write(kMagic);
  file.write(std::string_view("\x01\x00", 2));
  file.write(std::as_bytes(std::span(&size, 1)));
  file.write(header);
  file.write(tensor.bytes);
  file.commit();
}

}  // namespace tpjrt::file
