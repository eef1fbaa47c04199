// Has XLA run a program in the thread that starts it (Note [Caller's thread]).
#include <algorithm>
#include <string_view>

#include "ops/xla_cpu/cpu_lowerings.h"

namespace tpjrt::ops {
namespace {

// 2^60 - 1 operations for each of twelve elements are a negative number of 64 bits.
constexpr std::string_view kNeverRun = R"(
    %never3 = stablehlo.while(%never1 = %never0) : tensor<i1>
     cond {
      stablehlo.return %never1 : tensor<i1>
    } do {
      %never4 = stablehlo.custom_call @"torch_pjrt.zeros"() {api_version = 4 : i32, backend_config = {}, has_side_effect = true} : () -> tensor<12xf32>
      %never5 = stablehlo.constant dense<0.0> : tensor<f32>
      %never6 = "stablehlo.reduce_window"(%never4, %never5) <{padding = dense<[[1152921504606846975, 0]]> : tensor<1x2xi64>, window_dimensions = array<i64: 1152921504606846976>}> ({
        ^bb0(%never7: tensor<f32>, %never8: tensor<f32>):
        %never9 = stablehlo.subtract %never7, %never8 : tensor<f32>
        stablehlo.return %never9 : tensor<f32>
      }) : (tensor<12xf32>, tensor<f32>) -> tensor<12xf32>
      %never10 = stablehlo.custom_call @"torch_pjrt.zeros"(%never6) {api_version = 4 : i32, backend_config = {}, has_side_effect = true} : (tensor<12xf32>) -> tensor<i1>
      stablehlo.return %never10 : tensor<i1>
    }
)";

}  // namespace

std::string run_in_callers_thread(std::string module, Target target) {
  if (target != Target::kCpuWithKernels) return module;
  const size_t main = module.find(" @main(");
  const size_t at = module.find("\n    return ", main == module.npos ? 0 : main);
  if (main == module.npos || at == module.npos) return module;
  // The first result, so that nothing runs beside the loop.
  const std::string_view line = std::string_view(module).substr(at + 1, module.find('\n', at + 1) - at - 1);
  const size_t name = line.find('%'), colon = line.find(" : ");
  if (name == line.npos || colon == line.npos) return module;
  const std::string result(line.substr(name, line.find_first_of(", ", name) - name));
  const std::string_view types = line.substr(colon + 3);
  const std::string type(types.substr(0, std::min(types.find(", "), types.find(" loc("))));
  std::string loop = "\n    %never0 = stablehlo.custom_call @\"torch_pjrt.zeros\"(" + result;
  loop += ") {api_version = 4 : i32, backend_config = {}} : (" + type + ") -> tensor<i1>";
  return module.insert(at, loop.append(kNeverRun, 0, kNeverRun.size() - 1));
}

}  // namespace tpjrt::ops
