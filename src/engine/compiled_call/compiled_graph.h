// A traced function compiled to one program, which gets its arguments at each call. A call records nothing and walks no
// graph.
//
// Arguments are bound according to where their memory is (Note [Bound memory]). Arguments whose storage the trace
// changed are updated in place. Results alias arguments and each other exactly as they did in the trace (Returned).
//
// The random keys of a compiled graph, drawn anew in every call.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/compiled_call/bound_argument.h"
#include "engine/compiled_call/recorded_call.h"
#include "engine/compiled_call/trace.h"
#include "engine/memory/host_memory.h"
#include "engine/session/launch.h"
#include "graph/scalar_value.h"

namespace tpjrt::engine {

// The tensors that a compiled call returns, over storages of the program's results or over the arguments' own.
//
// Results that share a storage in the trace share one in each call. A result that is an argument in the trace is that
// argument.
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

// Draws that share a key in the trace share one in each call, so that an activation checkpoint repeats its draws.
class RandomKeys {
 public:
  // `numbers`: the trace's scalars. Keys come from the default generator of `device`, or of `computing` for results on
  // our own device.
  RandomKeys(const std::vector<graph::ScalarValue>& scalars, c10::Device device, c10::DeviceIndex computing);

  bool empty() const { return keys_.empty(); }
  void draw(std::vector<graph::ScalarValue>& scalars) const;

 private:
  struct Key {               // two of the scalars
    uint32_t number, first;  // equals the key at `first`
  };
  std::vector<Key> keys_;
  c10::Device device_;
  c10::DeviceIndex computing_;
};

class CompiledGraph {
 public:
  // Compiles the trace. Must not be called under graph_lock(). Each call draws random numbers from the default
  // generator of `random_device`. `also`: values computed only for their runtime assertions and not returned.
  CompiledGraph(Session& session, const Trace& trace, const std::vector<TracedResult>& results,
                c10::Device random_device, const std::vector<at::Tensor>& also = {});

  bool matches(const std::vector<Given>& given) const;
  // Runs the program on `given`, which must match the trace. Results on the CPU are complete on return, results on the
  // device may still be in flight. Releases the GIL. Thread-safe. `may_record`: see Note [Recorded calls].
  void call(const std::vector<Given>& given, std::vector<at::Tensor>& results, bool may_record = false);

  const std::vector<uint32_t>& mutated() const { return mutated_; }  // indices of the updated arguments

 private:
  // Finds where each argument of the program comes from and where its results go (compiled_graph.cpp). `new_values`:
  // for each argument of the call the result that is its new value, or -1.
  void bind_leaves(const graph::Walk& walk, const Trace& trace, const std::vector<int64_t>& new_values, bool in_place);

  void ready(CallState& call);
  // Records the call behind the pending work of its arguments. Returns false if it has to run as a program, also because
  // that work is too long already.
  bool record(CallState& call, std::vector<at::Tensor>& results);
  void bind(CallState& call);
  // Computes how this call's results agree in a world. Throws if a result that goes to the CPU differs between ranks.
  void analyze_replication(CallState& call);
  // Registers the runtime assertions of the program's results (Note [Runtime assertions]). Called once the program was
  // started.
  void check(CallState& call);
  // Raises the failed assertions of this call and of its arguments on behalf of results on the CPU, which can't raise
  // when they are read. Called when the program is done.
  void raise_failed(const std::vector<ChecksPtr>& values, const std::shared_ptr<RunChecks>& run);
  void update(CallState& call);
  void release(bool went_well);

  Session& session_;
  std::vector<ArgumentSpec> forms_;
  std::vector<uint32_t> mutated_;
  std::shared_ptr<Program> program_;
  std::vector<graph::ScalarValue> scalars_;
  bool waits_ = false;               // CPU tensors are written or asserted about: the call waits for the program
  std::optional<c10::Device> cuda_;  // the CUDA device of some argument or result
  c10::DeviceIndex device_ = 0;      // runs the program

  std::mutex lock_;                                      // guards all members below
  std::vector<std::unique_ptr<BoundArgument>> bound_;    // in the program's order
  std::vector<std::unique_ptr<BoundArgument>> written_;  // arguments that the program doesn't take
  std::vector<BoundArgument*> readied_, updated_;        // subsets of both
  std::vector<BoundArgument*> holding_;                  // arguments to release, during a call
  std::optional<Returned> returned_;                     // supplied results follow the bound arguments
  std::vector<BoundFlattenedState> flattened_states_;    // then come flattened states, then scalars
  std::optional<RandomKeys> keys_;
  std::optional<RecordedCall> recorded_;  // of arguments in the order of bound_; nothing: it always runs as a program
  ScalarArguments packed_;
  Launch launch_;
  int calls_ = 0;  // up to 2
  std::optional<Sources> sources_;
  size_t num_leaves_ = 0;
  std::vector<uint32_t> outside_;  // the values that go to the CPU
  // Assertions that a call's values and its program's results depend on, and the call's own. Empty or null: none.
  std::vector<ChecksPtr> values_, checks_;
  std::shared_ptr<RunChecks> run_;
  // Used in a world (Note [Replication analysis]).
  std::optional<ReplicationAnalysis> replication_analysis_;
  std::vector<uint32_t> leaf_of_bound_;          // for each of bound_, its index among the walk's leaves
  std::vector<Returned::OnCpu> on_cpu_;          // results on the CPU, and updated arguments there
  std::vector<int64_t> places_;                  // for each value, its index among the program's results
  std::vector<Replication> given_, replicated_;  // for leaves and for the program's results, in the last call
};

}  // namespace tpjrt::engine
