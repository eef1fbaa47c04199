// A result on the CPU whose memory PyTorch allocates.
//
// Note [Supplied results]: a CPU plugin allocates results in its own threads, and the C library's allocator keeps an
// arena for each thread with the memory that was freed there. A training step's peak was 1.3 times Inductor's. So
// PyTorch allocates the memory of a large CPU result, as for any CPU tensor. The program gets it as an additional
// argument that it never reads and that is donated for the result.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <memory>

#include "graph/type.h"
#include "pjrt/client.h"

namespace tpjrt::engine {

// Used by one call at a time.
class SuppliedResult {
 public:
  static constexpr size_t kFewestBytes = 1 << 20;  // an additional argument costs microseconds

  explicit SuppliedResult(graph::TypePtr form);

  // Allocates the memory and returns the argument for the program. Throws if there is too little memory.
  const pjrt::Buffer* bind(pjrt::Client& client, size_t device_index);
  // Returns the result after the program has run; `output` is what the program returned.
  c10::Storage take(std::shared_ptr<pjrt::Buffer> output);
  void let_go();

 private:
  graph::TypePtr form_;
  std::shared_ptr<const pjrt::BufferType> type_;
  at::DataPtr memory_;                    // set during a call
  std::shared_ptr<pjrt::Buffer> buffer_;  // over memory_
};

}  // namespace tpjrt::engine
