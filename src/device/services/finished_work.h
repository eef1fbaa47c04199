// The result of a collective that is complete when it returns.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <vector>

namespace tpjrt::device {

// Argument and result types of c10d's collectives.
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;
using Lists = std::vector<Tensors>;

// Returns completed work with these results.
WorkPtr finished_work(Tensors results);

}  // namespace tpjrt::device
