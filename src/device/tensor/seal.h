// Tensors that must not be written: those that existed before a trace. The trace would write to them once, while it
// is made, and never in its runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <unordered_set>

#include "graph/node.h"

namespace tpjrt::device {

// Covers tensors that have a value now. Pending ones are left out: mostly they are memory that the trace has just
// made.
class Seal {
 public:
  Seal();
  bool covers(const at::Tensor& tensor) const;

 private:
  uintptr_t newest_;  // addresses ascend and are never reused (allocator.h)
  std::unordered_set<const graph::Cell*> pending_;
};

// This thread's seal; null: none.
const std::shared_ptr<Seal>& seal();
void set_seal(std::shared_ptr<Seal> seal);

// Asks the framework that sealed the tensor, under no lock (device/services/foreign_trace.h).
void ask_before_write(const at::Tensor& written, const char* op);
inline void before_write(const at::Tensor& written, const char* op) {
  if (C10_UNLIKELY(seal() != nullptr)) ask_before_write(written, op);
}

}  // namespace tpjrt::device
