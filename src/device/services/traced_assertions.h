// Assertions of what a thread traces: what must hold of data, which only a run of the program has. A check that reads a value becomes
// one (Note [Requirements], engine/lower/program/requirements.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

namespace tpjrt::device {

// A scope is a part of a trace that computes its own assertions: the whole, or the body of a loop or of a composite.
void begin_assertions();
void end_assertions();  // forgets those that were not taken
bool asserts();         // Is there a scope?

// `violations`, integers or booleans, must be zero. `error`: the Python type that is raised otherwise, RuntimeError where it is none of
// ops::Raises. In the message {} stands for the first element that isn't zero, and {index} for its place.
void assert_zero(const at::Tensor& violations, const std::string& error, const std::string& message);
// A tensor that depends on all assertions of the scope, which then has none; undefined where it has none.
at::Tensor take_assertions();
// `result`, which then depends on what was taken.
at::Tensor depending(const at::Tensor& result, const at::Tensor& taken);

// What a branch on a traced condition goes on with, where its other side only raises: that has become an assertion. Installed by the
// Python room.
using TruthSource = std::optional<bool> (*)(const at::Tensor& condition);
void install_truth_source(TruthSource source);
std::optional<bool> assumed_truth(const at::Tensor& condition);

}  // namespace tpjrt::device
