// What a collective that is over when it returns gives back.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <vector>

namespace tpjrt::device {

// Work that is done, with these results.
c10::intrusive_ptr<c10d::Work> finished_work(std::vector<at::Tensor> results);

}  // namespace tpjrt::device
