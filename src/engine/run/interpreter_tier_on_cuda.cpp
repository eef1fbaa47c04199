// Interprets graphs with PyTorch's CUDA kernels (Note [Interpreter tier on CUDA]).
#include <ATen/Context.h>

#include <utility>

#include "engine/memory/device_data.h"
#include "engine/memory/host_memory.h"
#include "engine/run/alone.h"
#include "engine/run/cuda_run.h"
#include "engine/run/interpret.h"
#include "engine/run/lazy_engine.h"
#include "engine/session/out_of_memory.h"

namespace tpjrt::engine {

LazyEngine::Interpreted LazyEngine::interpret_on_cuda(const graph::Walk& walk, const CallsPlan& plan) {
  const auto device = walk.nodes.back()->signature->device;
  at::globalContext().lazyInitDevice(c10::kCUDA);
  CudaRun cuda(session_.client(), static_cast<size_t>(device), plan.device);
  CallChecks checks;
  const auto computed = [&](const pjrt::Buffer& buffer, const auto& tensor) {
    try {
      return tensor();
    } catch (const pjrt::Error&) {
      session_.await(buffer);  // throws the error of its program
      throw;
    }
  };
  const Interpreting with{
      [&](const graph::NodePtr& leaf) { return computed(*data_of(*leaf).buffer, [&] { return cuda.tensor(leaf); }); },
      [&](const graph::NodePtr& leaf) { return cuda.take(leaf); },
      [&](const graph::Node& node, uint32_t call, c10::ArrayRef<at::Tensor> operands) {
        c10::SmallVector<graph::Value, 8> leaves;
        for (const at::Tensor& memory : operands) leaves.emplace_back(cuda.lend(of_memory(memory)), 0);
        const auto tensor = [&](const graph::NodePtr& leaf) {
          const std::shared_ptr<pjrt::Buffer>& buffer = data_of(*leaf).buffer;
          return computed(*buffer, [&] { return cuda.result(leaf->leaf_type, buffer); });
        };
        return at_results(node, run_alone(node, call, leaves, checks, Until::kStarted), tensor);
      },
      [&] { return checks.run && checks.run->any_failed(); }};
  std::vector<std::shared_ptr<DeviceData>> results;
  try {
    std::vector<at::Tensor> values = engine::interpret(walk, plan, with);
    for (size_t i = 0; i < values.size(); ++i) {
      if (C10_UNLIKELY(checks_memory())) assert_has_layout(*graph::dense(plan.program->result_types[i]), values[i]);
      results.push_back(cuda.keep(std::move(values[i]), plan.result_types[i]));
    }
  } catch (const c10::OutOfMemoryError& error) {
    if (!cuda.took()) return {.lacks_memory = true};
    TORCH_CHECK_WITH(OutOfMemoryError, false, error.what_without_backtrace(), "\nIn ", walk.nodes.size(),
                     " calls by PyTorch's kernels. ", LargestResult::of(walk)->description(),
                     " What they write in place has no value any more.");
  }
  settle(walk, *plan.program, checks, results);
  return {};
}

}  // namespace tpjrt::engine
