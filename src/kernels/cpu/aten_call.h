// Calls of PyTorch's own CPU kernels from within a program, by a handler of XLA's FFI.
//
// Note [Calls of the CPU's kernels]: some ops have no lowering to StableHLO, neither by a rule nor by a
// decomposition, LAPACK's family above all. On XLA:CPU such an op is one custom call that runs PyTorch's own kernel
// on the program's buffers, so it cuts no graph and copies nothing to the host. The call's text is an attribute of
// the custom call, so a program's text describes all that it does. A process that runs a program has emitted its
// text, and so has kept its calls here; equal texts mean equal calls. An exception of a kernel is kept by number: the
// program goes on with NaN, and the exception itself is raised when results are read (Note [Runtime assertions]).
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
  std::vector<graph::TypePtr> arguments, results;  // dense, with the layouts of the program's buffers
  // Maps tensors over the program's buffers to tensors of the results' sizes: those in `places` if the kernel can
  // write there, or others. Runs in the plugin's threads, several at once.
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& arguments,
                                        const std::vector<at::Tensor>& places)>
      run;
};

// The custom call's target, and the attribute with the call's text. Its results are the call's, followed by a 0-d
// s64: 0, or the number of the exception thrown.
inline constexpr const char* kAtenTarget = "torch_pjrt.aten";
inline constexpr const char* kAtenText = "call";

// Keeps the call for the life of the process. All functions here are thread-safe.
void keep_aten_call(const std::string& text, AtenCall call);

// Returns the exception with that number, or a generic one if it was dropped.
std::exception_ptr thrown(int64_t number);

}  // namespace tpjrt::kernels
