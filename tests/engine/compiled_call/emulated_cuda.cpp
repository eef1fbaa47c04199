// CUDA for a PyTorch built without it: memory is the host's, and kernels are the CPU's, except where CUDA's results
// differ. Streams and events do nothing; calls of them are logged to the file $EMULATED_CUDA_LOG, with
// $EMULATED_CUDA_FREES also the freed memory. The kernel of the op $EMULATED_CUDA_REFUSES throws. There are
// $EMULATED_CUDA_DEVICES devices; the default stream of number n is 0x10 + n. A tensor of more than
// $EMULATED_CUDA_MEMORY bytes raises out-of-memory.
#include <ATen/EmptyTensor.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/GeneratorForPrivateuseone.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace {

void note(const char* what, int64_t stream) {
  const char* log = std::getenv("EMULATED_CUDA_LOG");
  if (!log) return;
  FILE* file = std::fopen(log, "a");
  if (!file) std::abort();
  std::fprintf(file, "%s %lx\n", what, static_cast<long>(stream));
  std::fclose(file);
}

constexpr int kMostDevices = 4;

c10::DeviceIndex devices() {
  const char* count = std::getenv("EMULATED_CUDA_DEVICES");
  return static_cast<c10::DeviceIndex>(count ? std::atoi(count) : 1);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static inline thread_local c10::DeviceIndex device = 0;
  static inline thread_local std::array<c10::StreamId, kMostDevices> streams{0x10, 0x11, 0x12, 0x13};
  // The current stream of the device that launches kernels.
  static c10::StreamId current() { return streams[static_cast<size_t>(device)]; }

  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device next) const override {
    return {c10::kCUDA, std::exchange(device, next.index())};
  }
  c10::Device getDevice() const override { return {c10::kCUDA, device}; }
  void setDevice(c10::Device next) const override { device = next.index(); }
  void uncheckedSetDevice(c10::Device next) const noexcept override { device = next.index(); }
  c10::DeviceIndex deviceCount() const noexcept override { return devices(); }

  static c10::Stream stream(c10::Device of, c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, of, id); }
  c10::Stream getStream(c10::Device of) const override { return stream(of, streams[static_cast<size_t>(of.index())]); }
  c10::Stream getDefaultStream(c10::Device of) const override { return stream(of, 0x10 + of.index()); }
  c10::Stream exchangeStream(c10::Stream next) const override {
    return stream(next.device(), std::exchange(streams[static_cast<size_t>(next.device_index())], next.id()));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return reinterpret_cast<void*>(stream.id()); }
  bool queryStream(const c10::Stream&) const override { return true; }
  bool isStreamCapturing(const c10::Stream& stream) const { return stream.id() == 0x30; }  // not in torch 2.11
  void synchronizeStream(const c10::Stream& stream) const override { note("synchronize", stream.id()); }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    note("record", stream.id());
    *event = reinterpret_cast<void*>(stream.id());
  }
  void block(void*, const c10::Stream& stream) const override { note("block", stream.id()); }
  bool queryEvent(void*) const override { return std::getenv("EMULATED_CUDA_BUSY") == nullptr; }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t nbytes) override {
    void* data = nullptr;
    const char* most = std::getenv("EMULATED_CUDA_MEMORY");
    TORCH_CHECK_WITH(OutOfMemoryError, !most || nbytes <= std::strtoull(most, nullptr, 10),
                     "CUDA out of memory. Tried to allocate ", nbytes, " bytes.");
    if (nbytes > 0 && posix_memalign(&data, 64, nbytes) != 0) throw std::bad_alloc();
    return {data, data, &give_back, c10::Device(c10::kCUDA, Guard::device)};
  }
  static void give_back(void* data) {
    if (data && std::getenv("EMULATED_CUDA_FREES")) note("free", Guard::current());
    std::free(data);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t nbytes) const override { default_copy_data(to, from, nbytes); }
};
Memory memory;
REGISTER_ALLOCATOR(c10::kCUDA, &memory)

struct Generator final : c10::GeneratorImpl {
  Generator() : c10::GeneratorImpl({c10::kCUDA, 0}, c10::DispatchKeySet(c10::DispatchKey::CUDA)) {}
  uint64_t seed_ = 1, offset_ = 0;
  void set_current_seed(uint64_t seed) override { seed_ = seed, offset_ = 0; }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override { return seed_; }
  void set_state(const c10::TensorImpl&) override { TORCH_CHECK(false, "not emulated"); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { TORCH_CHECK(false, "not emulated"); }
  Generator* clone_impl() const override { TORCH_CHECK(false, "not emulated"); }
};

struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return devices(); }
  c10::DeviceIndex getCurrentDevice() const override { return Guard::device; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static at::Generator generator = at::make_generator<Generator>();
    return generator;
  }
};
using at::CUDAHooksRegistry, at::RegistererCUDAHooksRegistry;
REGISTER_CUDA_HOOKS(CUDAHooks)

constexpr c10::DispatchKeySet kCuda(c10::DispatchKey::CUDA);

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, &memory, kCuda, c10::dtype_or_default(dtype), format);
}
at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &memory, kCuda, c10::dtype_or_default(dtype));
}

at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(c10::kCPU));
}
at::Tensor& copy_(at::Tensor& self, const at::Tensor& from, bool) {
  note("copy", Guard::current());
  on_host(self).copy_(on_host(from));
  return self;
}
at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool) {
  on_host(to).copy_(on_host(self));
  return to;
}
at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  if (to.sizes() != self.sizes()) to.resize_(self.sizes());
  return copy_from(self, to, false);
}
const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  const int64_t nbytes = static_cast<int64_t>(self.itemsize()) * c10::multiply_integers(size);
  if (static_cast<int64_t>(self.storage().nbytes()) < nbytes) {
    self.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(memory.allocate(static_cast<size_t>(nbytes)));
    self.storage().unsafeGetStorageImpl()->set_nbytes(static_cast<size_t>(nbytes));
  }
  self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return self;
}

// Returns the operands' device: like CUDA's, a kernel computes on its current stream.
std::optional<c10::Device> device_of(const torch::jit::Stack& stack) {
  for (const c10::IValue& value : stack) {
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().is_cuda()) return value.toTensor().device();
  }
  return std::nullopt;
}

// For values beyond float8_e4m3fn the CPU's kernel gives NaN on processors with AMX, CUDA's the largest number.
bool is_emulated(const c10::OperatorName& op) { return !op.name.starts_with("aten::_scaled_mm"); }

void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::OptionalDeviceGuard guard(device_of(*stack));
  TORCH_CHECK_NOT_IMPLEMENTED(is_emulated(op.operator_name()), op.schema().name(), " isn't emulated");
  note("kernel", Guard::current());
  const char* refused = std::getenv("EMULATED_CUDA_REFUSES");
  TORCH_CHECK_NOT_IMPLEMENTED(!refused || op.schema().name() != refused, op.schema().name(), " isn't emulated");
  try {
    at::native::cpu_fallback(op, stack);
  } catch (const std::exception&) {  // on a GPU an error about operands' data would end all of its work
    note("assertion", Guard::current());
    throw;
  }
}

// Chooses CUDA's own attention kernels as on a GPU. They have only Meta kernels here, which suffice for fake tensors.
int64_t choose_attention(const at::Tensor& query, const at::Tensor&, const at::Tensor&,
                         const std::optional<at::Tensor>& mask, double, bool, std::optional<double>, bool grouped) {
  const bool is_half = query.scalar_type() == c10::kHalf || query.scalar_type() == c10::kBFloat16;
  if (is_half && !mask) return static_cast<int64_t>(at::SDPBackend::flash_attention);
  return static_cast<int64_t>(grouped ? at::SDPBackend::math : at::SDPBackend::efficient_attention);
}
const bool chooses = (at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose_attention), true);

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("copy_", &copy_);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("resize_", &resize_);
}
TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>()); }

}  // namespace
