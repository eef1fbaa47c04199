// Draws the random keys of a call.
#include "engine/compiled_call/random_keys.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "device/tensor/generator.h"
#include "engine/memory/host_memory.h"

namespace tpjrt::engine {

RandomKeys::RandomKeys(const std::vector<graph::ScalarValue>& scalars, c10::Device device, c10::DeviceIndex computing)
    : device_(device), computing_(computing) {
  std::map<std::pair<uint64_t, uint64_t>, uint32_t> seen;  // by seed and offset
  for (uint32_t i = 0; i + 1 < scalars.size(); ++i) {
    if (scalars[i].kind != graph::ScalarValue::Kind::kKey) continue;
    const auto first = seen.emplace(std::pair(scalars[i].bits, scalars[i + 1].bits), i).first->second;
    keys_.push_back({i++, first});
  }
}

void RandomKeys::draw(std::vector<graph::ScalarValue>& scalars) const {
  for (const Key& key : keys_) {
    if (key.first != key.number) {
      std::copy_n(scalars.begin() + key.first, 2, scalars.begin() + key.number);
      continue;
    }
    const auto [seed, offset] =
        is_outside(device_) ? device::next_key_of(device_) : device::next_key(std::nullopt, computing_);
    scalars[key.number] = graph::ScalarValue::key(seed);
    scalars[key.number + 1] = graph::ScalarValue::key(offset);
  }
}

}  // namespace tpjrt::engine
