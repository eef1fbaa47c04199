// A traced function compiled to one program, which gets its arguments at each call. A call records nothing and walks no
// graph.
//
// Arguments are bound according to where their memory is (Note [Bound memory]). Arguments whose storage the trace
// changed are updated in place. Results alias arguments and each other exactly as they did in the trace (Returned).
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
#include "engine/compiled_call/bound_flattened_state.h"
#include "engine/compiled_call/random_keys.h"
#include "engine/compiled_call/recorded_call.h"
#include "engine/compiled_call/returned.h"
#include "engine/compiled_call/trace.h"
#include "engine/session/launch.h"
#include "graph/scalar_value.h"

namespace tpjrt::engine {

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
  int until_trim_ = 0;  // calls; 0: freed memory is not returned any more
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
