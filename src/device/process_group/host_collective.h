// One call of a collective that a backend of the host's tensors runs for tensors of the device, of the host, or both.
//
// The call moves its tensors to the host, agrees with the other ranks about what they pass, and moves results back. A
// call with tensors of the device is counted, reported and refused like any op on the host (device/host/host.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "device/process_group/late_ranks.h"
#include "device/services/finished_work.h"

namespace tpjrt::device {

// Whether a call computes with its tensors (adds, compares) or only moves them.
enum class Does { kReduces, kMoves };

// How a call uses tensors. kCopy: for work that overwrites what it reads, or reads until wait(), when other programs may
// have taken the tensors' memory.
enum class Use { kRead, kCopy, kWrite, kUpdate };

// Flattens tensors, because gloo would split the first dimension: the ranks' parts are consecutive, whatever the
// sizes.
Tensors flat(const Tensors& hosts);
// Returns the number of elements of each.
std::vector<int64_t> sizes_of(const Tensors& tensors);
// Returns the dtype and the number of elements, as in "float32[4]".
std::string described(const at::Tensor& tensor);

// One call. Its writes are no in-place ops to autograd, as with any backend.
class HostCollective {
 public:
  // `group` outlives the call.
  HostCollective(std::string op, Does does, HostGroup& group, c10d::ReduceOp reduction = {});

  // Throws in strict mode and in traces if a tensor of the device takes part.
  void take(const at::Tensor& tensor);

  // Raises on all ranks if they disagree about the call: `how`, and the number and dtype of the elements of each of
  // `tensors`, and of those in the `lists` that some ranks have. Then raises for a dtype that gloo can't reduce.
  void agree(c10d::Backend& host, std::string how, const Tensors& tensors, const Lists& lists = {});
  void agree(c10d::Backend& host, std::string how, const Lists& lists, const Tensors& tensors) {
    agree(host, std::move(how), tensors, lists);
  }
  void agree(c10d::Backend& host, const std::string& how, Tensors outputs, const Tensors& inputs) {
    outputs.insert(outputs.end(), inputs.begin(), inputs.end());
    agree(host, how, outputs);
  }
  // Raises on all ranks if one takes other numbers of elements than it is sent. `to` and `from`: this rank's, by rank.
  void agree_about_parts(c10d::Backend& host, c10::ScalarType dtype, const std::vector<int64_t>& to,
                         const std::vector<int64_t>& from);

  // Returns the tensors' memory on the host, in the form that gloo takes.
  Tensors on_host(Use use, const Tensors& tensors);
  Lists on_host(Use use, const Lists& lists);

  void wait(const WorkPtr& work) { await(*work, op_, *group_); }
  // Waits, and moves the written tensors back to the device.
  WorkPtr finish(const WorkPtr& work);
  Tensors take_back();

  const std::string& op() const { return op_; }
  const HostGroup& group() const { return *group_; }

 private:
  at::Tensor values_of(const at::Tensor& tensor, bool copied) const;
  at::Tensor given(const at::Tensor& host);

  std::string op_;
  Does does_;
  HostGroup* group_;
  c10d::ReduceOp reduction_;
  std::string refusal_;
  bool is_of_device_ = false;  // whether a tensor of the device takes part
  uint64_t sent_bytes_ = 0;
  std::vector<std::pair<at::Tensor, at::Tensor>> written_;  // pairs of a call's tensor and its memory on the host
};

// Work with one other rank: `peer` of the group, negative for any. Its errors name the rank. A received tensor is on
// the device after wait(), because the sender may wait for this rank first.
class WorkWithRank final : public c10d::Work {
 public:
  WorkWithRank(c10d::OpType type, HostCollective collective, int peer, WorkPtr work)
      : Work(-1, type), collective_(std::move(collective)), peer_(peer), work_(std::move(work)) {}

  bool isCompleted() override { return work_->isCompleted(); }
  bool isSuccess() const override { return work_->isSuccess(); }
  int sourceRank() const override { return work_->sourceRank(); }
  void synchronize() override { wait(kNoTimeout); }
  void abort() override { work_->abort(); }
  bool wait(std::chrono::milliseconds timeout) override;

 private:
  HostCollective collective_;
  int peer_;
  WorkPtr work_;
  std::once_flag taken_back_;
};

// Runs `call`, whose errors then name the ranks that wait for each other.
template <class Call>
auto with_names(const std::string& op, const HostGroup& group, int peer, const Call& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    throw_with_rank(op, group, peer, error);
  }
}

}  // namespace tpjrt::device
