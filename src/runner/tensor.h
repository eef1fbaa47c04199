// The implementation of tensors, and PJRT's element types.
#pragma once

#include <torch_pjrt/program.h>

#include <memory>
#include <mutex>
#include <vector>

#include "pjrt/buffer.h"

namespace torch_pjrt {

// A tensor on the host, in memory of `owner` or the caller, or a device's buffer.
struct Tensor::Data {
  DType dtype = DType::kFloat32;
  Shape shape;
  size_t nbytes = 0;
  const void* host = nullptr;
  std::shared_ptr<const void> owner;
  std::shared_ptr<tpjrt::pjrt::Buffer> buffer;
  mutable std::once_flag fetched;
  mutable std::vector<std::byte> copy;  // host copy, if device memory isn't the host's
};

}  // namespace torch_pjrt

namespace tpjrt::runner {

using torch_pjrt::DType;
using torch_pjrt::Shape;
using torch_pjrt::Tensor;

PJRT_Buffer_Type buffer_type(DType dtype);
// Formats a type: "float32[2, 3]".
std::string type_text(DType dtype, const Shape& shape);
Tensor on_host(DType dtype, Shape shape, const void* data, std::shared_ptr<const void> owner);
Tensor on_device(DType dtype, const Shape& shape, std::shared_ptr<pjrt::Buffer> buffer);

// Runs `work`, and rethrows errors of lower rooms as torch_pjrt::Error, prefixed with `where`.
[[noreturn]] void rethrow(const std::string& where);
auto translated(const auto& where, const auto& work) {
  try {
    return work();
  } catch (...) {
    rethrow(where());
  }
}

}  // namespace tpjrt::runner
