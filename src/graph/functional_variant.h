// Finds the functional op whose rule lowers an op that mutates, writes to out= or works on lists.
//
// The search uses schemas: ATen has a functional variant for nearly every mutable overload, found by its name and equal
// arguments. A _foreach_ op is the op of the same name applied to each element.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

namespace tpjrt::graph {

std::string full_name(const c10::OperatorHandle& op);  // "aten::add.Tensor"

struct OpVariant {
  c10::OperatorHandle op;
  // For each of the variant's arguments the original's argument; -1: its default.
  std::vector<int64_t> arguments;
};

// Returns the functional op: its results are the original's fresh results, then the new values of the mutated
// arguments, in order. Nothing for an op that mutates nothing or has no variant.
std::optional<OpVariant> functional_variant(const c10::OperatorHandle& op);
// Returns the overload of a functional op that takes the same arguments and then tensors, to which it writes all
// results. Nothing if no such overload has its own CPU kernel.
std::optional<c10::OperatorHandle> out_variant_on_cpu(const c10::OperatorHandle& op);
// Returns the overload of a functional op that writes its result over its first argument. Nothing if there is none for
// the CPU.
std::optional<c10::OperatorHandle> in_place_variant_on_cpu(const c10::OperatorHandle& op);
// Returns the op on one element for a functional _foreach_ op.
std::optional<OpVariant> element_variant(const c10::OperatorHandle& op);

}  // namespace tpjrt::graph
