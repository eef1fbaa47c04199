// The result of a collective that is complete when it returns.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <utility>
#include <vector>

namespace tpjrt::device {

// Argument and result types of c10d's collectives.
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;
using Lists = std::vector<Tensors>;

// Returns completed work with these results.
inline WorkPtr finished_work(Tensors results) {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  future->markCompleted(c10::IValue(std::move(results)), std::vector<c10::ivalue::Future::WeakStorage>());
  return c10d::Work::create_from_future(future);
}

}  // namespace tpjrt::device
