// Assertions about data in a thread's trace, because only a run of the program has the data. A check that reads a
// value becomes one (Note [Runtime assertions], engine/lower/module/assertions.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

namespace tpjrt::device {

// A scope is a part of a trace that computes its own assertions: the whole, or the body of a loop or of a composite.
void begin_assertions();
void end_assertions();  // forgets assertions that were not taken
bool asserts();         // whether there is a scope

// Asserts that `violations`, integers or booleans, are zero. `error`: the Python type that is raised otherwise;
// RuntimeError if ops::Raises has no such type. In the message {} stands for the first element that isn't zero, and
// {index} for its index.
void assert_zero(const at::Tensor& violations, const std::string& error, const std::string& message);
// Returns a tensor that depends on all assertions of the scope, and clears them; undefined if there are none.
at::Tensor take_assertions();
// Returns `result` with a dependency on the assertions taken.
at::Tensor depending(const at::Tensor& result, const at::Tensor& taken);

// Returns the side with which a branch on a traced condition continues, if its other side only raises and has become
// an assertion. Installed by the Python room.
using TruthSource = std::optional<bool> (*)(const at::Tensor& condition);
void install_truth_source(TruthSource source);
std::optional<bool> assumed_truth(const at::Tensor& condition);

}  // namespace tpjrt::device
