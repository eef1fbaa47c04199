// The random keys of a compiled graph, drawn anew in every call.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "graph/scalar_value.h"

namespace tpjrt::engine {

// Draws that share a key in the trace share one in each call, so that an activation checkpoint repeats its draws.
class RandomKeys {
 public:
  // `numbers`: the trace's scalars. Keys come from the default generator of `device`, or of `computing` for results on
  // our own device.
  RandomKeys(const std::vector<graph::ScalarValue>& scalars, c10::Device device, c10::DeviceIndex computing);

  bool empty() const { return keys_.empty(); }
  void draw(std::vector<graph::ScalarValue>& scalars) const;

 private:
  struct Key {               // two of the scalars
    uint32_t number, first;  // equals the key at `first`
  };
  std::vector<Key> keys_;
  c10::Device device_;
  c10::DeviceIndex computing_;
};

}  // namespace tpjrt::engine
