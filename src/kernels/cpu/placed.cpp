// Redirects the first allocation of a given size to existing memory.
#include "kernels/cpu/placed.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <torch/library.h>

#include <utility>

namespace tpjrt::kernels {
namespace {

constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

struct Place {
  void* data = nullptr;
  size_t bytes = 0;
};
thread_local Place place;

class AtPlace final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0 || bytes != place.bytes) return c10::GetCPUAllocator()->allocate(bytes);
    const Place taken = std::exchange(place, {});
    return {taken.data, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

at::Tensor empty(c10::IntArrayRef sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                 std::optional<c10::Device> device, std::optional<bool> pinned,
                 std::optional<c10::MemoryFormat> memory_format) {
  static AtPlace at_place;
  const c10::impl::ExcludeDispatchKeyGuard below(kKey);
  const bool is_plain = c10::layout_or_default(layout) == c10::kStrided && c10::device_or_default(device).is_cpu() &&
                        !c10::pinned_memory_or_default(pinned);
  if (!is_plain) return at::empty(sizes, dtype, layout, device, pinned, memory_format);
  constexpr c10::DispatchKeySet keys(c10::DispatchKey::CPU);
  return at::detail::empty_generic(sizes, &at_place, keys, c10::dtype_or_default(dtype), memory_format);
}

// Returns whether the tensors, which have the same sizes, have the same layout.
bool lie_alike(const at::Tensor& a, const at::Tensor& b) {
  for (int64_t d = 0; d < a.dim(); ++d) {
    if (a.size(d) > 1 && a.stride(d) != b.stride(d)) return false;
  }
  return true;
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) { m.fallback(torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, m) { m.impl("empty.memory_format", TORCH_FN(empty)); }

}  // namespace

Placed::Placed(const at::Tensor& memory) : place_(memory), guard_(kKey) {
  place = {memory.mutable_data_ptr(), memory.nbytes()};
}

Placed::~Placed() { place = {}; }

void Placed::give(const at::Tensor& result) const {
  const at::Tensor to = place_;
  if (!result.is_same_size(to) || result.const_data_ptr() != to.const_data_ptr()) {
    to.copy_(result);
  } else if (!lie_alike(result, to)) {
    to.copy_(result.clone());
  }
}

}  // namespace tpjrt::kernels
