// From an op that mutates, writes to out= or works on lists, to the functional op whose rule lowers it.
//
// Decided from schemas: ATen has a functional partner for nearly every mutable overload, found by its name and by having
// the same arguments; a _foreach_ op is its namesake applied to each element.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

namespace tpjrt::graph {

std::string full_name(const c10::OperatorHandle& op);  // "aten::add.Tensor"

struct Partner {
  c10::OperatorHandle op;
  // For each of the partner's arguments the argument of the original that it is; -1: its default.
  std::vector<int64_t> arguments;
};

// The functional op: its results are the original's fresh results, then the new values of the mutated arguments, in
// order. None for an op that mutates nothing, or that has no partner.
std::optional<Partner> functional_partner(const c10::OperatorHandle& op);
// The overload of a functional op that writes its results, all of them, to tensors that it is given: of the same arguments, and
// then those. None if there is none that has a kernel of its own for the CPU.
std::optional<c10::OperatorHandle> out_partner_on_cpu(const c10::OperatorHandle& op);
// The overload of a functional op that writes its result over its first argument. None if there is none for the CPU.
std::optional<c10::OperatorHandle> in_place_partner_on_cpu(const c10::OperatorHandle& op);
// For a functional _foreach_ op: the op on one element.
std::optional<Partner> element_partner(const c10::OperatorHandle& op);

}  // namespace tpjrt::graph
