// What a tensor is made of, and element types as PJRT has them.
#pragma once

#include <torch_pjrt/program.h>

#include <memory>
#include <mutex>
#include <vector>

#include "pjrt/buffer.h"

namespace torch_pjrt {

// On the host, in memory that `owner` keeps or the caller does; or in a device's buffer.
struct Tensor::Data {
  DType dtype = DType::kFloat32;
  Shape shape;
  size_t nbytes = 0;
  const void* host = nullptr;
  std::shared_ptr<const void> owner;
  std::shared_ptr<tpjrt::pjrt::Buffer> buffer;
  mutable std::once_flag fetched;
  mutable std::vector<std::byte> copy;  // of a device's memory that isn't the host's
};

}  // namespace torch_pjrt

namespace tpjrt::runner {

using torch_pjrt::DType;
using torch_pjrt::Shape;
using torch_pjrt::Tensor;

PJRT_Buffer_Type buffer_type(DType dtype);
// "float32[2, 3]"
std::string told(DType dtype, const Shape& shape);
Tensor on_host(DType dtype, Shape shape, const void* data, std::shared_ptr<const void> owner);
Tensor on_device(DType dtype, const Shape& shape, std::shared_ptr<pjrt::Buffer> buffer);

// Runs it, and throws what the lower rooms throw as torch_pjrt::Error, with `where` before it.
[[noreturn]] void rethrow(const std::string& where);
auto translated(const auto& where, const auto& work) {
  try {
    return work();
  } catch (...) {
    rethrow(where());
  }
}

}  // namespace tpjrt::runner
