// .npy: a header that is a Python dict, and the data.
#include "file/npy.h"

#include <charconv>
#include <cstring>

#include "file/error.h"

namespace tpjrt::file {
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
