// XLA's buffers as tensors.
#include "kernels/cpu/tensors.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <utility>
#include <vector>

namespace tpjrt::kernels {

namespace {

namespace ffi = xla::ffi;

c10::ScalarType dtype_of(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::PRED: return c10::kBool;
    case ffi::DataType::U8: return c10::kByte;
    case ffi::DataType::S8: return c10::kChar;
    case ffi::DataType::S16: return c10::kShort;
    case ffi::DataType::S32: return c10::kInt;
    case ffi::DataType::S64: return c10::kLong;
    case ffi::DataType::F8E4M3FN: return c10::kFloat8_e4m3fn;
    case ffi::DataType::F16: return c10::kHalf;
    case ffi::DataType::BF16: return c10::kBFloat16;
    case ffi::DataType::F32: return c10::kFloat;
    case ffi::DataType::F64: return c10::kDouble;
    case ffi::DataType::C64: return c10::kComplexFloat;
    case ffi::DataType::C128: return c10::kComplexDouble;
    default: TORCH_CHECK(false, "a kernel of the CPU's was given a buffer of XLA's type ", static_cast<int>(type));
  }
}

}  // namespace

at::Tensor tensor_over(const ffi::AnyBuffer& buffer) {
  const auto dims = buffer.dimensions();
  const c10::IntArrayRef sizes(dims.begin(), dims.size());
  return at::from_blob(buffer.untyped_data(), sizes, at::TensorOptions(dtype_of(buffer.element_type())));
}

at::Tensor channels_last(const at::Tensor& images) {
  const c10::IntArrayRef sizes = images.sizes();
  std::vector<int64_t> strides(sizes.size());
  int64_t step = 1;
  const auto next = [&](size_t d) {
    strides[d] = step;
    step *= sizes[d];
  };
  next(1);
  for (size_t d = sizes.size() - 1; d > 1; --d) next(d);
  next(0);
  return images.as_strided(sizes, strides);
}

Tensors tensors_of(const ffi::RemainingArgs& args, const ffi::RemainingRets& rets) {
  Tensors tensors;
  for (size_t i = 0; i < args.size(); ++i) tensors.operands.push_back(tensor_over(*args.get<ffi::AnyBuffer>(i)));
  for (size_t i = 0; i < rets.size(); ++i) tensors.results.push_back(tensor_over(**rets.get<ffi::AnyBuffer>(i)));
  return tensors;
}

// Redirects the first allocation of a given size to existing memory.

namespace {

struct Place {
  void* data = nullptr;
  size_t bytes = 0;
};
thread_local Place place;
thread_local void* lent = nullptr;  // the place's memory, once it is taken

class AtPlace final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0 || bytes != place.bytes) return below_->allocate(bytes);
    lent = std::exchange(place, {}).data;
    return {lent, lent, [](void*) {}, c10::Device(c10::kCPU)};
  }
  // oneDNN's scratch memory comes from raw_allocate, which calls allocate.
  c10::DeleterFnPtr raw_deleter() const override {
    static const c10::DeleterFnPtr inner = below_->raw_deleter();
    return [](void* data) {
      if (data != lent) inner(data);
    };
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { below_->copy_data(to, from, bytes); }

 private:
  c10::Allocator* below_ = c10::GetCPUAllocator();
};

// Returns whether the tensors, which have the same sizes, have the same layout.
bool have_same_layout(const at::Tensor& a, const at::Tensor& b) {
  for (int64_t d = 0; d < a.dim(); ++d) {
    if (a.size(d) > 1 && a.stride(d) != b.stride(d)) return false;
  }
  return true;
}

}  // namespace

OutputForwarding::OutputForwarding(const at::Tensor& memory) : place_(memory) {
  static const bool is_set = (c10::SetCPUAllocator(new AtPlace), true);
  static_cast<void>(is_set);
  place = {memory.mutable_data_ptr(), memory.nbytes()};
}

OutputForwarding::~OutputForwarding() {
  place = {};
  lent = nullptr;
}

void OutputForwarding::give(const at::Tensor& result) const {
  const at::Tensor to = place_;
  if (!result.is_same_size(to) || result.const_data_ptr() != to.const_data_ptr()) {
    to.copy_(result);
  } else if (!have_same_layout(result, to)) {
    to.copy_(result.clone());
  }
}

}  // namespace tpjrt::kernels
