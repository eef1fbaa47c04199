// The tensors that a compiled call returns, over storages of the program's results or over the arguments' own.
//
// Results that share a storage in the trace share one in each call. A result that is an argument in the trace is that
// argument.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/compiled_call/bound_argument.h"
#include "engine/compiled_call/trace.h"
#include "engine/memory/supplied_result.h"

namespace tpjrt::engine {

class Returned {
 public:
  // Appends the values of the storages to `values`, the program's results. Call it under graph_lock().
  Returned(const std::vector<TracedResult>& results, const std::vector<TracedArgument>& arguments,
           std::vector<graph::Value>& values);

  // Chooses the results whose memory the caller supplies (Note [Supplied results]). Returns their indices in `values`.
  std::vector<uint32_t> choose_supplied(const std::vector<graph::Value>& values);
  size_t num_supplied() const { return supplied_.size(); }
  // Sets the program's result for each value. Called once.
  void place(const std::vector<int64_t>& places);

  // Returns the value of each storage of results, by those that the constructor appended to.
  std::vector<graph::Value> of_storages(const std::vector<graph::Value>& values) const;

  // Returns true if some result is on the CPU.
  bool any_on_cpu() const;
  // A result of the program that goes to the CPU.
  struct OnCpu {
    uint32_t result;   // index among the program's results
    std::string name;  // shown to users
  };
  std::vector<OnCpu> on_cpu() const;
  std::optional<c10::Device> cuda() const;

  // Appends the program's arguments for supplied results.
  void bind(CallState& call);
  // Appends the tensors to `results` after the program has run.
  void give(CallState& call, std::vector<at::Tensor>& results);
  // Appends the tensors over storages with these values, which are on the device.
  void give_recorded(const CallState& call, const std::vector<graph::Value>& values, std::vector<at::Tensor>& results);
  // Drops everything after a call that failed.
  void let_go();

 private:
  struct Tensor {
    bool is_argument = false;  // or a view of one
    uint32_t index = 0;        // of the argument, or index into storages_
    c10::ScalarType dtype = c10::kFloat;
    graph::Sizes sizes, strides;
    int64_t offset = 0;  // in elements of dtype, from the argument's own offset
    bool whole = false;  // the argument itself
    int64_t twin = -1;   // the earlier result that is this very tensor; autograd must see the identity, or it copies

    // Makes of a view of the argument's dense copy (Trace::add_tensor) the same view of the argument, which has other
    // strides. Returns false if that is none: it is a reshape, which copies.
    bool follow(const TracedArgument& argument);
  };
  struct Storage {
    uint32_t result = 0;  // of the program
    graph::TypePtr form = nullptr;
    c10::Device device = c10::kCPU;
    int64_t supplied = -1;  // index into supplied_
  };
  c10::Storage give(CallState& call, const Storage& storage);
  void give(const CallState& call, const std::vector<c10::Storage>& storages, std::vector<at::Tensor>& results) const;

  std::vector<Tensor> tensors_;
  std::vector<Storage> storages_;
  std::vector<SuppliedResult> supplied_;
};

}  // namespace tpjrt::engine
