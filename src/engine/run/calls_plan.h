// What is the same in each run of one graph by calls: the order, where operands lie, and where each is read for the last time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/program/program.h"
#include "engine/run/kernel/kernel_call.h"
#include "graph/tape/walk.h"

namespace tpjrt::engine {

// Immutable. Values are numbered: the leaves of the walk, then the results of its calls, in order.
struct CallsPlan {
  // `device`: PyTorch's, whose kernels run.
  CallsPlan(const graph::Walk& walk, c10::Device device);
  // Is it this graph's, and is what PyTorch's kernels refused the same as when it was made?
  bool serves(const graph::Walk& walk) const;
  // How many were made so far.
  static uint64_t made();

  struct Operand {
    uint32_t value;
    bool last;     // nobody reads it afterwards
    bool written;  // by the call
  };
  struct Call {
    KernelCall* call;
    uint32_t operands;  // how many
    uint32_t results;
    bool looks;        // for signals, before it
    bool overwritten;  // memory that was never written, and is filled before anybody reads it
    bool aliases;      // a view that only PyTorch's kernels read: it stays in its base's memory
  };
  const c10::Device device;
  std::vector<Call> calls;
  std::vector<Operand> operands;                                      // of all calls, in order
  std::vector<char> read;                                             // by value: does anybody read it?
  std::vector<uint32_t> results;                                      // values
  std::vector<std::shared_ptr<const pjrt::BufferType>> result_types;  // as buffers
  size_t safe = 0;                                                    // the call from which on nothing can fail
  std::shared_ptr<Program> program;  // stands for the graph; `by_calls` is written under the session's lock

 private:
  void mark_overwritten();

  uint64_t hash_, refused_;
};

}  // namespace tpjrt::engine
