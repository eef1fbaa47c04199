// Large results of compiled functions, in memory of PyTorch's.
//
// Note [Supplied results]: a plugin for the CPU takes a result's memory in a thread of its own, so from an arena of the C
// library's allocator that this thread has, and each of its threads keeps what was freed there: a training step's peak
// was 1.3 times what Inductor takes. So the memory of a large result on the CPU is PyTorch's, as of any CPU tensor, and
// the program is given it: as one more argument, which nothing reads, donated for the result.
#pragma once

#include <c10/core/Storage.h>

#include <cstddef>
#include <memory>

#include "graph/type.h"
#include "pjrt/client.h"

namespace tpjrt::engine {

// Used by one call at a time.
class SuppliedResult {
 public:
  static constexpr size_t kFewestBytes = 1 << 20;  // an argument more costs some microseconds

  explicit SuppliedResult(graph::TypePtr form);

  // Takes memory; throws where there is none. What the program takes.
  PJRT_Buffer* bind(pjrt::Client& client, size_t device_index);
  // The program has run, and gave this: the result.
  c10::Storage take(std::shared_ptr<pjrt::Buffer> output);
  void let_go();

 private:
  graph::TypePtr form_;
  std::shared_ptr<const pjrt::BufferType> type_;
  at::DataPtr memory_;                    // during a call
  std::shared_ptr<pjrt::Buffer> buffer_;  // over it
};

}  // namespace tpjrt::engine
