// The random keys of a compiled graph: new ones in every call.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "graph/number.h"

namespace tpjrt::engine {

// What drew with one key in the trace draws with one key in each call: an activation checkpoint draws again what it drew.
class RandomKeys {
 public:
  // `numbers`: the trace's. Keys come from the default generator of `device`, or, for results on our own device, of
  // `computing`.
  RandomKeys(const std::vector<graph::Number>& numbers, c10::Device device, c10::DeviceIndex computing);

  bool empty() const { return keys_.empty(); }
  void draw(std::vector<graph::Number>& numbers) const;

 private:
  struct Key {               // two of the numbers
    uint32_t number, first;  // the same as the key at `first`
  };
  std::vector<Key> keys_;
  c10::Device device_;
  c10::DeviceIndex computing_;
};

}  // namespace tpjrt::engine
