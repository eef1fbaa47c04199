// Makes, resizes and re-points tensors. These are metadata only; nothing is recorded until a value is written.
#include "device/tensor/factory.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "device/services/engine.h"
#include "device/services/modes.h"
#include "device/tensor/access.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {
namespace {

c10::Device resolve_device(std::optional<at::Device> device) {
  c10::Device chosen = device.value_or(c10::Device(kPjrt));
  TORCH_CHECK(chosen.type() == kPjrt, "expected a pjrt device, got ", chosen);
  const auto* guard = c10::impl::getDeviceGuardImpl(kPjrt);
  if (!chosen.has_index()) return {kPjrt, guard->getDevice().index()};
  return {kPjrt, device_index(chosen.index())};
}

void check_options(c10::ScalarType dtype, std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(!layout || *layout == c10::kStrided, "pjrt: layout ", *layout,
                              " is not supported, the device holds strided tensors only");
  TORCH_CHECK(!pin_memory || !*pin_memory, "Only dense CPU tensors can be pinned");
  TORCH_CHECK_NOT_IMPLEMENTED(is_supported(dtype), "pjrt: dtype ", dtype,
                              " has no counterpart in StableHLO; use a float, integer, bool or complex dtype");
}

// Throws for memory that no value can ever fill, when it is asked for. In a trace, the run of the program throws
// instead.
void check_capacity(size_t nbytes, c10::DeviceIndex device) {
  constexpr size_t kNoneHasLess = size_t{1} << 30;  // smaller sizes aren't checked, because the check starts the client
  if (C10_UNLIKELY(nbytes > kNoneHasLess) && !outlining() && !tracing()) engine().check_capacity(nbytes, device);
}

c10::Storage new_storage(int64_t nbytes, c10::DeviceIndex device) {
  check_capacity(static_cast<size_t>(nbytes), device);
  return c10::Storage(c10::make_intrusive<LazyStorage>(static_cast<size_t>(nbytes), device));
}

// torch.use_deterministic_algorithms: memory that was never written is filled, as on the CPU.
bool fills_new_memory() {
  return at::globalContext().deterministicAlgorithms() && at::globalContext().deterministicFillUninitializedMemory() &&
         !outlining();
}

at::Tensor new_tensor(c10::intrusive_ptr<c10::TensorImpl> impl) {
  at::Tensor tensor(std::move(impl));
  if (C10_UNLIKELY(fills_new_memory())) at::native::fill_empty_deterministic_(tensor);
  return tensor;
}

// Keeps the first bytes; new ones are zeros.
void grow(LazyStorage* storage, size_t nbytes) {
  if (storage->nbytes() >= nbytes) return;
  check_capacity(nbytes, storage->device().index());
  const size_t before = storage->nbytes();
  storage->set_nbytes(nbytes);
  std::lock_guard lock(graph::graph_lock());
  if (!storage->slot.value() || before == 0) {
    storage->slot.bind({});
    return;
  }
  // The old value is written as bytes into new memory.
  graph::Value old = storage->slot.value();
  storage->slot.bind({});
  const auto itemsize = c10::elementSize(old.type()->dtype);
  const c10::ScalarType dtype = nbytes % itemsize == 0 ? old.type()->dtype : c10::kByte;
  write_prefix(storage, std::move(old), dtype);
}

}  // namespace

bool is_supported(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::kBool:
    case c10::kByte:
    case c10::kChar:
    case c10::kShort:
    case c10::kInt:
    case c10::kLong:
    case c10::kUInt16:
    case c10::kUInt32:
    case c10::kUInt64:
    case c10::kHalf:
    case c10::kBFloat16:
    case c10::kFloat:
    case c10::kDouble:
    case c10::kComplexFloat:
    case c10::kComplexDouble:
    case c10::kFloat8_e4m3fn:
    case c10::kFloat8_e4m3fnuz:
    case c10::kFloat8_e5m2:
    case c10::kFloat8_e5m2fnuz:
    case c10::kFloat8_e8m0fnu: return true;
    default: return false;
  }
}

at::Tensor empty_memory_format(c10::IntArrayRef size, std::optional<at::ScalarType> dtype_opt,
                               std::optional<at::Layout> layout, std::optional<at::Device> device_opt,
                               std::optional<bool> pin_memory, std::optional<at::MemoryFormat> memory_format) {
  const auto dtype = c10::dtype_or_default(dtype_opt);
  check_options(dtype, layout, pin_memory);
  at::detail::check_size_nonnegative(size);
  const c10::Device device = resolve_device(device_opt);
  const size_t nbytes = at::detail::computeStorageNbytesContiguous(size, c10::elementSize(dtype));
  auto impl = c10::make_intrusive<c10::TensorImpl>(new_storage(static_cast<int64_t>(nbytes), device.index()),
                                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                   c10::scalarTypeToTypeMeta(dtype));
  if (size.size() != 1 || size[0] != 0) impl->set_sizes_contiguous(size);
  if (memory_format && *memory_format != at::MemoryFormat::Contiguous) impl->empty_tensor_restride(*memory_format);
  return new_tensor(std::move(impl));
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype_opt,
                         std::optional<at::Layout> layout, std::optional<at::Device> device_opt,
                         std::optional<bool> pin_memory) {
  const auto dtype = c10::dtype_or_default(dtype_opt);
  check_options(dtype, layout, pin_memory);
  at::detail::check_size_nonnegative(size);
  TORCH_CHECK(size.size() == stride.size(), "dimensionality of sizes (", size.size(),
              ") must match dimensionality of strides (", stride.size(), ")");
  const c10::Device device = resolve_device(device_opt);
  const size_t nbytes = at::detail::computeStorageNbytes(size, stride, c10::elementSize(dtype));
  auto impl = c10::make_intrusive<c10::TensorImpl>(new_storage(static_cast<int64_t>(nbytes), device.index()),
                                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                   c10::scalarTypeToTypeMeta(dtype));
  impl->set_sizes_and_strides(size, stride);
  return new_tensor(std::move(impl));
}

at::Tensor _efficientzerotensor(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                                std::optional<at::Layout> layout, std::optional<at::Device> device,
                                std::optional<bool> pin_memory) {
  return empty_memory_format(size, dtype, layout, device, pin_memory, std::nullopt).zero_();
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  at::detail::check_size_nonnegative(size);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  if (self.sizes() != size) {
    LazyStorage* storage = storage_of(self);
    TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
    const size_t itemsize = self.itemsize();
    const size_t before = storage->nbytes();
    grow(storage,
         at::detail::computeStorageNbytesContiguous(size, itemsize, static_cast<size_t>(self.storage_offset())));
    impl->set_sizes_contiguous(size);
    if (C10_UNLIKELY(fills_new_memory())) at::native::fill_resize_deterministic_(self, static_cast<int64_t>(before));
  }
  if (format && *format != at::MemoryFormat::Preserve) impl->empty_tensor_restride(*format);
  return self;
}

void resize_storage(const c10::Storage& storage, size_t nbytes) {
  LazyStorage* lazy = storage_of(storage);
  if (nbytes >= lazy->nbytes()) {
    grow(lazy, nbytes);
    return;
  }
  graph::Value old;
  {
    std::lock_guard lock(graph::graph_lock());
    old = lazy->slot.value();
    lazy->slot.bind({});
    lazy->set_nbytes(nbytes);
    if (old && nbytes > 0) keep_prefix(lazy, old);
  }
}

at::Tensor& set_source_storage_offset(at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef size,
                                      c10::IntArrayRef stride) {
  TORCH_CHECK(source.device().type() == kPjrt, "Attempted to set the storage of a tensor on device \"", self.device(),
              "\" to a storage on different device \"", source.device(),
              "\".  This is no longer allowed; the devices must match.");
  LazyStorage* storage = storage_of(source);
  at::detail::check_size_nonnegative(size);
  TORCH_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
  c10::SmallVector<int64_t, 6> strides(stride.begin(), stride.end());
  if (strides.empty() && !size.empty()) {  // no strides: row-major
    strides.resize(size.size());
    int64_t step = 1;
    for (size_t i = size.size(); i-- > 0;) {
      strides[i] = step;
      step *= std::max<int64_t>(size[i], 1);
    }
  }
  TORCH_CHECK(strides.size() == size.size(), "unequal size length (", size.size(), ") and stride length (",
              strides.size(), ")");
  grow(storage, at::detail::computeStorageNbytes(size, strides, self.itemsize(), static_cast<size_t>(offset)));
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_sizes_and_strides(size, strides, offset);
  return self;
}

at::Tensor& set_source_storage(at::Tensor& self, at::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_source_storage_offset(self, std::move(source), 0, {count}, {});
}

at::Tensor& set_source_tensor(at::Tensor& self, const at::Tensor& source) {
  // Either tensor may be on another device, because the call is dispatched to the one that isn't. The words are
  // PyTorch's for a storage.
  TORCH_CHECK(self.device() == source.device(), "Attempted to set the storage of a tensor on device \"", self.device(),
              "\" to a storage on different device \"", source.device(),
              "\".  This is no longer allowed; the devices must match");
  return set_source_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_(at::Tensor& self) {
  return set_source_storage_offset(self, new_storage(0, self.device().index()), 0, {0}, {});
}

}  // namespace tpjrt::device
