// Calls of functions that another compiler's front end lowered to StableHLO: nodes that hold text.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "engine/lower/call_lowering.h"

namespace tpjrt::engine {

// A function for operands of certain types. Its nodes share one signature, so that graphs which call it are one program.
class ForeignFunction {
 public:
  // `functions`: the text of private func.func ops, of which `name` is called; that text has no other name in common
  // with another's. `label`: what listings call the node. Operands and results are contiguous.
  ForeignFunction(const std::string& label, std::string name, std::string functions,
                  const std::vector<graph::TypePtr>& operands, std::vector<graph::TypePtr> results,
                  c10::DeviceIndex device);

  // Records a call. Not under graph_lock().
  std::vector<at::Tensor> call(const std::vector<at::Tensor>& operands) const;

 private:
  const graph::Signature* signature_;  // lives on: a program may outlive all else that knows the function
};

hlo::Values emit_foreign_call(ops::Emit& e, const graph::Signature& signature, const CallLowering& lowering,
                              const hlo::Values& operands);

}  // namespace tpjrt::engine
