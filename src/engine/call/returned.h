// What a compiled call returns: tensors over storages of the program's results, or over the arguments' own.
//
// Results that share a storage in the trace share one in each call, and what the trace gave of an argument is the argument.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/call/bound_argument.h"
#include "engine/call/trace.h"
#include "engine/memory/supplied_result.h"

namespace tpjrt::engine {

class Returned {
 public:
  // Adds to `values`, the program's results, what the storages are. Under graph_lock().
  Returned(const std::vector<TracedResult>& results, const std::vector<TracedArgument>& arguments,
           std::vector<graph::Value>& values);

  // Chooses those whose memory the caller gives (Note [Supplied results]); gives their places in `values`.
  std::vector<uint32_t> choose_supplied(const std::vector<graph::Value>& values);
  size_t num_supplied() const { return supplied_.size(); }
  // `places`: where the program gives each value. Once.
  void place(const std::vector<int64_t>& places);

  // Does some result lie there?
  bool any_on_cpu() const;
  // Which of the program's results go there.
  struct OnCpu {
    uint32_t result;   // of the program's
    std::string name;  // what a user calls it
  };
  std::vector<OnCpu> on_cpu() const;
  std::optional<c10::Device> cuda() const;

  // The program's arguments for what is supplied.
  void bind(CallState& call);
  // The program has run: adds to `results`.
  void give(CallState& call, std::vector<at::Tensor>& results);
  // After a call that failed.
  void let_go();

 private:
  struct Tensor {
    bool is_argument = false;  // or a view of one
    uint32_t index = 0;        // of the argument, or into storages_
    c10::ScalarType dtype = c10::kFloat;
    graph::Sizes sizes, strides;
    int64_t offset = 0;  // in elements of dtype, from the argument's own offset
    bool whole = false;  // the argument itself
    int64_t twin = -1;   // the earlier result that is this very tensor, which autograd must see: it then copies
  };
  struct Storage {
    uint32_t result = 0;  // of the program
    graph::TypePtr form = nullptr;
    c10::Device device = c10::kCPU;
    int64_t supplied = -1;  // into supplied_
  };
  c10::Storage give(CallState& call, const Storage& storage);

  std::vector<Tensor> tensors_;
  std::vector<Storage> storages_;
  std::vector<SuppliedResult> supplied_;
};

}  // namespace tpjrt::engine
