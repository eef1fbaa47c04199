// A traced function: one program whose arguments are given at each call. Calling it records nothing and walks nothing.
//
// Arguments are bound by where their memory lies (Note [Bound memory]). An argument whose storage the trace changed is
// updated where it lies. Results alias arguments and each other exactly as they did in the trace (Returned).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/call/bound_argument.h"
#include "engine/call/random_keys.h"
#include "engine/call/returned.h"
#include "engine/call/trace.h"
#include "engine/memory/bound_pack.h"
#include "engine/session/launch.h"

namespace tpjrt::engine {

class CompiledGraph {
 public:
  // Compiles. Not under graph_lock(). Each call draws random numbers from the default generator of `random_device`.
  // `also`: what is computed, for the sake of what it requires, and given to nobody.
  CompiledGraph(Session& session, const Trace& trace, const std::vector<TracedResult>& results,
                c10::Device random_device, const std::vector<at::Tensor>& also = {});

  bool matches(const std::vector<Given>& given) const;
  // Runs the program; `given` matches. Results on the CPU are there on return, those on the device may be on the way.
  // Lets go of the GIL. Thread-safe.
  void call(const std::vector<Given>& given, std::vector<at::Tensor>& results);

  const std::vector<uint32_t>& mutated() const { return mutated_; }  // which arguments

 private:
  // Finds out where each argument of the program comes from, and where its results go (compile_trace.cpp). `new_values`:
  // of each argument of the call, the result that is its new value, or -1.
  void bind_leaves(const graph::Walk& walk, const Trace& trace, const std::vector<int64_t>& new_values);

  void ready(CallState& call);
  void bind(CallState& call);
  // Of a world: how this call's results agree. Throws where a result that goes to the CPU may not.
  void agree(CallState& call);
  // Requirements of the program's results (Note [Requirements]), once it was started.
  void check(CallState& call);
  // Raises what the call has found, and what it was given, for results on the CPU, which can't do so when they are read. The program is
  // done.
  void raise_unmet(const std::vector<ChecksPtr>& values, const std::shared_ptr<RunChecks>& run);
  void update(CallState& call);
  void release(bool went_well);

  Session& session_;
  std::vector<ArgumentForm> forms_;
  std::vector<uint32_t> mutated_;
  std::shared_ptr<Program> program_;
  std::vector<graph::Number> numbers_;
  bool waits_ = false;               // the CPU's tensors are written, or asserted: the call ends when the program does
  std::optional<c10::Device> cuda_;  // some argument or result lies there
  c10::DeviceIndex device_ = 0;      // that computes

  std::mutex lock_;                                      // all below
  std::vector<std::unique_ptr<BoundArgument>> bound_;    // in the program's order
  std::vector<std::unique_ptr<BoundArgument>> written_;  // that the program doesn't take
  std::vector<BoundArgument*> readied_, updated_;        // of them
  std::vector<BoundArgument*> holding_;                  // those to be released, during a call
  std::optional<Returned> returned_;                     // what it supplies comes after the bound arguments
  std::vector<BoundPack> packs_;                         // then these, and the numbers
  std::optional<RandomKeys> keys_;
  NumberArguments packed_;
  Launch launch_;
  int calls_ = 0;  // up to 2
  std::optional<Sources> sources_;
  size_t num_leaves_ = 0;
  std::vector<uint32_t> outside_;  // which values go to the CPU
  // What a call's values and its program's results rest on, and what it requires itself; empty or null: nothing.
  std::vector<ChecksPtr> values_, checks_;
  std::shared_ptr<RunChecks> run_;
  // Of a world (Note [Agreement]):
  std::optional<AgreementFlow> flow_;
  std::vector<uint32_t> leaf_of_bound_;    // of each of bound_, its place among the walk's leaves
  std::vector<Returned::OnCpu> on_cpu_;    // those results, and arguments that are updated
  std::vector<int64_t> places_;            // of each value, which of the program's results it is
  std::vector<Agreement> given_, agreed_;  // of the leaves and of the program's results, in the last call
};

}  // namespace tpjrt::engine
