// Calls of PyTorch's own CPU kernels from within a program, by a handler of XLA's FFI.
//
// Note [Calls of the CPU's kernels]: some ops have no lowering to StableHLO, neither by a rule nor by a
// decomposition, LAPACK's family above all, and some rules leave their work to a library (Note [Claims]). On XLA:CPU
// such an op is one custom call that runs PyTorch's own kernel on the program's buffers, so it cuts no graph and copies
// nothing to the host. One handler runs them all. The call's text is an attribute of the custom call, so a program's
// text describes all that it does. A process that runs a program has emitted its text, and so has kept its calls here;
// equal texts mean equal calls. An exception of a recorded call's kernel is kept by number: the program goes on with
// NaN, and the exception itself is raised when results are read (Note [Runtime assertions]).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <xla/ffi/api/c_api.h>

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "graph/type.h"

namespace tpjrt::kernels {

struct KeptCall {
  std::vector<graph::TypePtr> arguments{}, results{};  // dense, with the layouts of the program's buffers
  // Maps tensors over the program's buffers to tensors of the results' sizes: those in `places` if the kernel can
  // write there, or others. Runs in the plugin's threads, several at once.
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& arguments,
                                        const std::vector<at::Tensor>& places)>
      run{};
  bool is_large = false;  // worth several threads (team.h)
  bool may_throw = true;  // its exceptions are kept by number; otherwise the run fails
};

// KeptCall::run for an ATen op that a rule calls.
struct OpCall {
  // An argument in the schema's order.
  struct Argument {
    std::optional<size_t> operand{};  // its number
    std::optional<size_t> place{};    // a result's memory: the op reads the sizes alone
    bool is_copied = false;           // to row-major memory
    c10::IValue constant{};           // if it is neither
  };
  c10::OperatorHandle op;
  std::optional<c10::OperatorHandle> writing{};  // the op's variant that writes to given tensors
  std::vector<Argument> arguments{};
  std::vector<size_t> wanted{};  // the op's results that are the call's

  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& operands,
                                     const std::vector<at::Tensor>& places) const;
};

// The custom call's target, and the attribute with the call's text. Its results are the call's. If it may throw, a
// 0-d s64 follows: 0, or the number of the exception thrown.
inline constexpr const char* kAtenTarget = "torch_pjrt.aten";
inline constexpr const char* kAtenText = "call";

// Keeps the call for the life of the process. All functions here are thread-safe.
void keep_call(const std::string& text, KeptCall call);

// Returns the exception with that number, or a generic one if it was dropped.
std::exception_ptr thrown(int64_t number);

}  // namespace tpjrt::kernels
