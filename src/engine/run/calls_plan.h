// The invariant part of interpreted runs of a graph: the order, the operands' places, and the last read of each value.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/executable/program.h"
#include "engine/kernel/kernel_call.h"
#include "graph/fingerprint/walk.h"

namespace tpjrt::engine {

// Immutable. Values are numbered: first the leaves of the walk, then the results of its calls, in order.
struct CallsPlan {
  // `device`: PyTorch's device whose kernels run.
  CallsPlan(const graph::Walk& walk, c10::Device device);
  // Returns true if the plan belongs to this graph and no kernel has refused a call since it was made.
  bool serves(const graph::Walk& walk) const;
  // The number of plans made so far.
  static uint64_t made();

  struct Operand {
    uint32_t value;
    bool last;     // the last read
    bool written;  // the call writes to it
  };
  struct Call {
    KernelCall* call;
    uint32_t operands;  // count
    uint32_t results;
    bool looks;        // check for signals before it
    bool overwritten;  // new memory that is filled before it is read
    bool aliases;      // a view that only PyTorch's kernels read: it stays in its base's memory
  };
  const c10::Device device;
  std::vector<Call> calls;
  std::vector<Operand> operands;                                      // of all calls, in order
  std::vector<char> read;                                             // by value: 1 if it is read or returned
  std::vector<uint32_t> results;                                      // values
  std::vector<std::shared_ptr<const pjrt::BufferType>> result_types;  // as buffers
  size_t safe = 0;                                                    // no call from this one on can fail
  std::shared_ptr<Program> program;  // stands for the graph; the session's lock guards `interpreted`

 private:
  void mark_overwritten();

  uint64_t hash_, refused_;
};

// Returns the call of this signature on PyTorch's CPU or CUDA `device`, the one device of such calls in a process. Like
// the signature, it is never freed. `scalars`: those of any such call. Under the session's lock.
KernelCall& kernel_call(const graph::Signature& signature, c10::Device device,
                        c10::ArrayRef<graph::ScalarValue> scalars);

}  // namespace tpjrt::engine
