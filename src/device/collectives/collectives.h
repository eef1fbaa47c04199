// Collectives among the ranks of a world, recorded as ops (Note [World], graph/world.h), and reads in a world.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "graph/node.h"

namespace tpjrt::device::world {

// The ranks that take part in a collective together, for the whole world: groups of one size, one after the other,
// each in its order.
struct Groups {
  std::vector<int64_t> ranks;
  int64_t size = 1;
};

// Collectives. Each returns a new tensor. `groups`: the ranks that take part. May be called from any thread.

// `reduction`: "sum", "avg", "product", "min", "max", "band", "bor" or "bxor".
at::Tensor all_reduce(const at::Tensor& input, const std::string& reduction, const Groups& groups);
// Gathers or scatters along the first dimension: all_gather concatenates, reduce_scatter returns each rank's part of
// the reduction.
at::Tensor all_gather(const at::Tensor& input, const Groups& groups);
at::Tensor reduce_scatter(const at::Tensor& input, const std::string& reduction, const Groups& groups);
// Sends the i-th part of the first dimension to the group's i-th rank.
at::Tensor all_to_all(const at::Tensor& input, const Groups& groups);
// `source`: its index in its group.
at::Tensor broadcast(const at::Tensor& input, int64_t source, const Groups& groups);
// Returns a 0-d int64 tensor that is values[rank] on each rank.
at::Tensor per_rank(std::vector<int64_t> values);
// Returns the same values with the caller's promise that they are equal on all ranks, which a read verifies
// (Note [Replication analysis]).
at::Tensor promised_equal(const at::Tensor& input);

// Registers these as the functional collectives (_c10d_functional::*) of the device's tensors.
void take_functional_collectives();

// PREMUL_SUM, a sum with a factor, with which FSDP2 divides gradients (set_gradient_divide_factor). Neither gloo nor
// XLA has it.

// Returns `input` times the factor of a PREMUL_SUM, as a new tensor; `input` itself for other reductions. Throws for
// a dtype that NCCL refuses as well.
at::Tensor premultiplied(const at::Tensor& input, const c10d::ReduceOp& op);
// Returns the reduction of premultiplied operands.
c10d::ReduceOp after_factor(const c10d::ReduceOp& op);

// Reading in a world, where a tensor has a value for each rank and the host needs one (Note [Replication analysis],
// replication.h). Every function that copies a tensor's values to the host calls these, so a program sees one rank's
// values only if it names the rank (values_of_rank).

// Returns whether the ranks' values of a leaf are known to be equal. True outside of a world.
bool has_one_value(const graph::Value& leaf);
// Throws unless has_one_value. `what`: the reader, for the error.
void check_one_value(const graph::Value& leaf, const char* what);

}  // namespace tpjrt::device::world
