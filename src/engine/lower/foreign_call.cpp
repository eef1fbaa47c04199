// Records and emits calls of foreign functions.
#include "engine/lower/foreign_call.h"

#include <c10/util/Exception.h>

#include "device/services/location.h"
#include "device/tensor/storage.h"
#include "engine/lower/control_flow.h"

namespace tpjrt::engine {

using graph::Signature;

ForeignFunction::ForeignFunction(const std::string& label, std::string name, std::string functions,
                                 const std::vector<graph::TypePtr>& operands, std::vector<graph::TypePtr> results,
                                 c10::DeviceIndex device) {
  auto signature = std::make_unique<Signature>();
  auto lowering = std::make_shared<CallLowering>();
  lowering->function = std::move(name);
  lowering->functions = std::move(functions);
  signature->name = label;
  for (size_t i = 0; i < operands.size(); ++i) signature->add_operand("x" + std::to_string(i), operands[i]);
  signature->results = std::move(results);
  signature->device = device;
  const device::Location where = device::user_location();
  signature->file = where.file;
  signature->line = where.line;
  signature->lowering = std::move(lowering);
  signature_ = signature.release();
}

std::vector<at::Tensor> ForeignFunction::call(const std::vector<at::Tensor>& operands) const {
  TORCH_CHECK(operands.size() == signature_->operands.size(), signature_->name, " takes ", signature_->operands.size(),
              " tensors, got ", operands.size());
  c10::SmallVector<graph::Value, 8> values;
  for (size_t i = 0; i < operands.size(); ++i) {
    const graph::TensorType& expected = *signature_->operands[i];
    TORCH_CHECK(operands[i].scalar_type() == expected.dtype && operands[i].sizes() == expected.sizes, signature_->name,
                ": argument ", i, " is ", operands[i].scalar_type(), operands[i].sizes(), ", expected ", expected.dtype,
                c10::IntArrayRef(expected.sizes));
    values.push_back(contiguous_value(operands[i]));
  }
  c10::SmallVector<graph::ScalarValue, 1> scalars;
  std::lock_guard lock(graph::graph_lock());
  return device::make_node_tensors(signature_, values, scalars);
}

hlo::Values emit_foreign_call(ops::Emit& e, const Signature& signature, const CallLowering& lowering,
                              const hlo::Values& operands) {
  std::vector<hlo::Type> results;
  for (const graph::TypePtr type : signature.results) results.push_back(e.type_of(*type));
  return e.call(lowering.function, lowering.functions, operands, results);
}

}  // namespace tpjrt::engine
