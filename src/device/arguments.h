// A call's arguments, flattened: tensor operands, numbers, and the key that names the call's signature.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include "device/operator.h"
#include "graph/number.h"

namespace tpjrt::device {

struct Arguments {
  c10::SmallVector<uint64_t, 64> key;
  c10::SmallVector<const at::Tensor*, 8> operands;  // point into the stack
  c10::SmallVector<graph::Number, 4> numbers;       // the random key not included
  c10::DeviceIndex device = -1;
  bool recordable = true;  // false: an argument has a form that no node can state; the host runs the call

  uint64_t hash() const;
  // Makes the numbers' values part of the key, for calls whose lowering holds them.
  void add_numbers_to_key();
};

// `values` are the call's arguments on the stack. Arguments with a lazy conjugate or negative bit are resolved in place,
// and index tensors on the CPU are copied to the device. Throws for tensors of two devices and for other layouts.
void flatten(const Operator& op, c10::IValue* values, Arguments& out);

}  // namespace tpjrt::device
