// Tensors that are not to be written: those that were there before a trace which would write to them once, while it is
// made, and never in its runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <unordered_set>

#include "graph/node.h"

namespace tpjrt::device {

// What has a value now. What still waits to be computed is left out: it is mostly memory that the trace has just made.
class Seal {
 public:
  Seal();
  bool covers(const at::Tensor& tensor) const;

 private:
  uintptr_t newest_;  // addresses are given out in order, and never again (allocator.h)
  std::unordered_set<const graph::Cell*> pending_;
};

// Of this thread; null: none.
const std::shared_ptr<Seal>& seal();
void set_seal(std::shared_ptr<Seal> seal);

// Asks whoever sealed it, under no lock (device/services/foreign_trace.h).
void ask_before_write(const at::Tensor& written, const char* op);
inline void before_write(const at::Tensor& written, const char* op) {
  if (C10_UNLIKELY(seal() != nullptr)) ask_before_write(written, op);
}

}  // namespace tpjrt::device
