// Calls of functions that another compiler's frontend lowered to StableHLO: nodes that hold text.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "engine/lower/call_lowering.h"

namespace tpjrt::engine {

// A function for operands of certain types. Its nodes share one signature, so that graphs which call it share a
// program.
class ForeignFunction {
 public:
  // `functions`: the text of private func.func ops, including `name`, which is called. No other function's text may
  // define the names in it. `label`: the node's name in listings. Operands and results are contiguous.
  ForeignFunction(const std::string& label, std::string name, std::string functions,
                  const std::vector<graph::TypePtr>& operands, std::vector<graph::TypePtr> results,
                  c10::DeviceIndex device);

  // Records a call. Must not be called under graph_lock().
  std::vector<at::Tensor> call(const std::vector<at::Tensor>& operands) const;

 private:
  const graph::Signature* signature_;  // never freed: a program may outlive everything else that refers to it
};

hlo::Values emit_foreign_call(ops::Emit& e, const graph::Signature& signature, const CallLowering& lowering,
                              const hlo::Values& operands);

}  // namespace tpjrt::engine
