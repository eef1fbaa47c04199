// Hooks for a trace of another framework (JAX's) around torch code: for values that only its own program has, and for
// writes to sealed tensors (device/tensor/seal.h). Installed by the Python room.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "graph/errors.h"

namespace tpjrt::device {

// Called under no lock; both take the GIL.
struct ForeignTrace {
  // Returns the text of the error for a value that is needed; empty if the placeholder is not the framework's.
  std::string (*value_needed)(const void* placeholder, const char* cause);
  // Throws, or updates the thread's seal.
  void (*before_write)(const at::Tensor& sealed, const char* op);
};
void install_foreign_trace(ForeignTrace trace);
const ForeignTrace& foreign_trace();

// Throws the error, or the framework's replacement of it.
[[noreturn]] void raise_value_needed(const graph::DependsOnData& error, const char* cause);

}  // namespace tpjrt::device
