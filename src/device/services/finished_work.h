// The result of a collective that is complete when it returns.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <utility>
#include <vector>

namespace tpjrt::device {

// Argument and result types of c10d's collectives.
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;
using Lists = std::vector<Tensors>;

// c10d's own work over a future can't be waited for with a timeout.
class FinishedWork final : public c10d::Work {
 public:
  explicit FinishedWork(Tensors results) : results_(std::move(results)) {}

  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  std::vector<at::Tensor> result() override { return results_; }
  void synchronize() override {}
  bool wait(std::chrono::milliseconds /*timeout*/) override { return true; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future->markCompleted(c10::IValue(results_), std::vector<c10::ivalue::Future::WeakStorage>());
    return future;
  }

 private:
  Tensors results_;
};

// Returns completed work with these results.
inline WorkPtr finished_work(Tensors results) { return c10::make_intrusive<FinishedWork>(std::move(results)); }

}  // namespace tpjrt::device
