// Tensors that must not be written: those that existed before a trace, which would write to them once, while it is
// made, and never in its runs; and copies that stand for views.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <unordered_set>

#include "graph/node.h"
#include "graph/world.h"

namespace tpjrt::device {

// Covers tensors that have a value now. Pending ones are left out: mostly they are memory that the trace has just
// made.
class Seal {
 public:
  Seal();
  bool covers(const at::Tensor& tensor) const;

 private:
  uintptr_t newest_;  // addresses ascend and are never reused (factory.h)
  std::unordered_set<const graph::StorageSlot*> pending_;
};

// This thread's seal; null: none.
const std::shared_ptr<Seal>& seal();
void set_seal(std::shared_ptr<Seal> seal);

// Whether before_write() can have something to say.
inline bool may_be_sealed() { return seal() != nullptr || graph::in_world(); }
// Throws if the tensor stands for a view, and asks the framework that sealed it, under no lock
// (device/services/foreign_trace.h).
void ask_before_write(const at::Tensor& written, const char* op);
inline void before_write(const at::Tensor& written, const char* op) {
  if (C10_UNLIKELY(may_be_sealed())) ask_before_write(written, op);
}

}  // namespace tpjrt::device
