// The device's random generators and their saved state.
#include "device/tensor/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Utils.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstring>
#include <map>
#include <mutex>

#include "device/tensor/storage.h"

namespace tpjrt::device {

PjrtGenerator::PjrtGenerator(c10::DeviceIndex device)
    : c10::GeneratorImpl(c10::Device(kPjrt, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

void PjrtGenerator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}
void PjrtGenerator::set_offset(uint64_t offset) { offset_ = offset; }
uint64_t PjrtGenerator::get_offset() const { return offset_; }
uint64_t PjrtGenerator::current_seed() const { return seed_; }

uint64_t PjrtGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

// Returns seed and offset, 16 bytes in a CPU byte tensor. Like the CPU generator's state it is made below the
// dispatcher, so a mode that makes tensors without memory (FakeTensorMode) doesn't affect it.
c10::intrusive_ptr<c10::TensorImpl> PjrtGenerator::get_state() const {
  at::Tensor state =
      at::detail::empty_cpu({16}, c10::kByte, c10::kStrided, c10::kCPU, false, c10::MemoryFormat::Contiguous);
  const uint64_t words[2] = {seed_, offset_};
  std::memcpy(state.mutable_data_ptr(), words, sizeof(words));
  return state.getIntrusivePtr();
}

void PjrtGenerator::set_state(const c10::TensorImpl& state) {
  TORCH_CHECK(state.device().is_cpu() && state.dtype() == caffe2::TypeMeta::Make<uint8_t>() && state.numel() == 16,
              "pjrt: a generator's state is a CPU uint8 tensor of 16 elements (seed, offset), got ", state.numel(),
              " elements of ", state.dtype().name(), " on ", state.device());
  const void* data = state.data();
  TORCH_CHECK(data, "pjrt: a generator's state has values, got a tensor without memory, such as a fake one");
  uint64_t words[2];
  std::memcpy(words, data, sizeof(words));
  seed_ = words[0];
  offset_ = words[1];
}

PjrtGenerator* PjrtGenerator::clone_impl() const {
  auto* copy = new PjrtGenerator(device().index());
  copy->seed_ = seed_;
  copy->offset_ = offset_.load();
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static auto* lock = new std::mutex;
  static auto* generators = new std::map<c10::DeviceIndex, at::Generator>;
  if (device < 0) device = c10::impl::getDeviceGuardImpl(kPjrt)->getDevice().index();
  std::lock_guard guard(*lock);
  auto [it, fresh] = generators->try_emplace(device);
  if (fresh) it->second = at::make_generator<PjrtGenerator>(device);
  return it->second;
}

std::pair<uint64_t, uint64_t> next_key(const std::optional<at::Generator>& generator, c10::DeviceIndex device) {
  const at::Generator& chosen = generator.has_value() && generator->defined() ? *generator : default_generator(device);
  TORCH_CHECK(chosen.device().type() == kPjrt, "Expected a 'pjrt' device type for generator but found '",
              chosen.device().type(), "'");
  return static_cast<PjrtGenerator*>(chosen.unsafeGetGeneratorImpl())->next_key();
}

std::pair<uint64_t, uint64_t> next_key_of(c10::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  std::lock_guard lock(generator.mutex());
  if (device.is_cpu()) return {generator.get<at::CPUGeneratorImpl>()->random64(), 0};
  const uint64_t offset = generator.get_offset();
  generator.set_offset(offset + 4);  // CUDA's offsets are multiples of four
  return {generator.current_seed(), offset};
}

}  // namespace tpjrt::device
