// What a trace of another framework (JAX's) has to say of torch code in the middle of it: about values that only its own
// program has, and about writes to what is sealed (device/tensor/seal.h). Installed by the Python room.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "graph/errors.h"

namespace tpjrt::device {

// Called under no lock; both take the GIL.
struct ForeignTrace {
  // What the error for a value that is needed says; empty where the placeholder is none of the framework's.
  std::string (*value_needed)(const void* placeholder, const char* cause);
  // Raises, or gives the thread the seal that holds by now.
  void (*before_write)(const at::Tensor& sealed, const char* op);
};
void install_foreign_trace(ForeignTrace trace);
const ForeignTrace& foreign_trace();

// The same error, or what the framework makes of it.
[[noreturn]] void raise_value_needed(const graph::DependsOnData& error, const char* cause);

}  // namespace tpjrt::device
