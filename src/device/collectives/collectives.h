// Collectives among the ranks of a world, recorded as ops (Note [World], graph/world/world.h).
//
// Each returns a new tensor. `groups`: the ranks that take part. All functions may be called from any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tpjrt::device::world {

// The ranks that take part in a collective together, for the whole world: groups of one size, one after the other,
// each in its order.
struct Groups {
  std::vector<int64_t> ranks;
  int64_t size = 1;
};

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

}  // namespace tpjrt::device::world
