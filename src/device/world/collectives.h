// Collectives among the ranks of a world, recorded as ops (Note [World], graph/world/world.h).
//
// Each gives a new tensor. `group`: who takes part. All may be used from any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tpjrt::device::world {

// Which ranks take part in a collective together, all of the world: groups of one size, one after the other, each in its order.
struct Groups {
  std::vector<int64_t> ranks;
  int64_t size = 1;
};

// `reduction`: "sum", "avg", "product", "min", "max", "band", "bor" or "bxor".
at::Tensor all_reduce(const at::Tensor& input, const std::string& reduction, const Groups& groups);
// Along the first dimension: concatenated, and of a sum each rank's part.
at::Tensor all_gather(const at::Tensor& input, const Groups& groups);
at::Tensor reduce_scatter(const at::Tensor& input, const std::string& reduction, const Groups& groups);
// The i-th part of the first dimension goes to the group's i-th rank.
at::Tensor all_to_all(const at::Tensor& input, const Groups& groups);
// `source`: its place in its group.
at::Tensor broadcast(const at::Tensor& input, int64_t source, const Groups& groups);
// A 0-d int64 tensor that is values[rank] on each rank.
at::Tensor per_rank(std::vector<int64_t> values);
// The same values, of which somebody says that they are equal on all ranks: whoever reads them compares (Note [Agreement]).
at::Tensor promised_equal(const at::Tensor& input);

// From now on the functional collectives (_c10d_functional::*) of the device's tensors are these.
void take_functional_collectives();

}  // namespace tpjrt::device::world
