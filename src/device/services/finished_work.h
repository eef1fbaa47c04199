// What a collective that is over when it returns gives back.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <vector>

namespace tpjrt::device {

// What c10d's collectives take and give.
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;
using Lists = std::vector<Tensors>;

// Work that is done, with these results.
WorkPtr finished_work(Tensors results);

}  // namespace tpjrt::device
