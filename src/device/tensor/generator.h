// Random numbers: a generator is a seed and a counter, and every random node takes the next key from it.
//
// A key is (seed, counter), an input of the compiled program, so drawing again never recompiles. A seed gives the
// same numbers for the same sequence of calls, whenever they are synced. The streams are not the CPU generator's. A
// compiled function of CPU tensors takes its keys from the CPU generator, so saving and restoring that generator
// (activation checkpoints do) repeats the numbers.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <atomic>
#include <utility>

namespace tpjrt::device {

class PjrtGenerator final : public c10::GeneratorImpl {
 public:
  explicit PjrtGenerator(c10::DeviceIndex device);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  std::pair<uint64_t, uint64_t> next_key() { return {seed_, offset_.fetch_add(1)}; }

 private:
  PjrtGenerator* clone_impl() const override;
  uint64_t seed_ = c10::default_rng_seed_val;
  std::atomic<uint64_t> offset_{0};
};

const at::Generator& default_generator(c10::DeviceIndex device);
// Returns the next key of the generator given to the op, else of the device's default one.
std::pair<uint64_t, uint64_t> next_key(const std::optional<at::Generator>& generator, c10::DeviceIndex device);
// Returns the next key of the default generator of one of PyTorch's own devices.
std::pair<uint64_t, uint64_t> next_key_of(c10::Device device);

}  // namespace tpjrt::device
