// Calls of PyTorch's own CPU kernels from within a program, by a handler of XLA's FFI.
//
// Note [Calls of the CPU's kernels]: what no rule and no decomposition says in StableHLO, LAPACK's family above all, is on
// XLA:CPU one custom call, which runs the kernel that PyTorch itself would run, on the program's buffers. So it cuts no graph
// and copies nothing to the host. The call's text is an attribute of the custom call, so that a program's text tells all that
// it does. Whoever runs a program has emitted its text in this process, and so kept its calls here; equal texts mean equal
// calls. What a kernel throws is kept by number: the program goes on with NaN, and the exception itself is raised when
// results are read (Note [Requirements]).
#pragma once

#include <ATen/core/Tensor.h>
#include <xla/ffi/api/c_api.h>

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "graph/type.h"

namespace tpjrt::kernels {

struct AtenCall {
  std::vector<graph::TypePtr> arguments, results;  // dense, as the program's buffers lie
  // From tensors over the program's buffers to tensors of the results' sizes: those in `places`, if the kernel can write there, or
  // others. In the plugin's threads, several at once.
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& arguments,
                                        const std::vector<at::Tensor>& places)>
      run;
};

// The custom call's target, and the attribute that has the call's text. Its results are the call's, and then a 0-d s64: 0, or
// the number of what was thrown.
inline constexpr const char* kAtenTarget = "torch_pjrt.aten";
inline constexpr const char* kAtenText = "call";

// For the life of the process. Thread-safe, as all here.
void keep_aten_call(const std::string& text, AtenCall call);

// What was thrown under that number; some text of it where that is long past.
std::exception_ptr thrown(int64_t number);

}  // namespace tpjrt::kernels
