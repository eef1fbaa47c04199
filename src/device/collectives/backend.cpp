// c10d's collectives, which write the result of an op to their outputs.
#include "device/collectives/backend.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <utility>

#include "device/collectives/collectives.h"
#include "device/services/finished_work.h"
#include "device/tensor/storage.h"

namespace tpjrt::device::world {

namespace {

using c10d::Backend;

std::string name_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return "sum";
    case c10d::ReduceOp::AVG: return "avg";
    case c10d::ReduceOp::PRODUCT: return "product";
    case c10d::ReduceOp::MIN: return "min";
    case c10d::ReduceOp::MAX: return "max";
    case c10d::ReduceOp::BAND: return "band";
    case c10d::ReduceOp::BOR: return "bor";
    case c10d::ReduceOp::BXOR: return "bxor";
    case c10d::ReduceOp::PREMUL_SUM: return "sum";  // of operands that are premultiplied
    default: TORCH_CHECK_VALUE(false, "no such reduction: ", static_cast<int>(op.op_));
  }
}

[[noreturn]] void refuse_point_to_point() {
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "send and recv, and so pipeline stages, name single ranks, and a world in one process "
                              "runs one program for all of "
                              "them. Start a process for each rank with torchrun, or shard by DTensor");
}

// Writes of a collective are no in-place ops to autograd, as with any backend.
class WorldBackend final : public Backend {
 public:
  explicit WorldBackend(std::vector<int64_t> ranks)
      : Backend(0, static_cast<int>(ranks.size())), ranks_(std::move(ranks)) {}

  void complete(Groups groups) { groups_ = std::move(groups); }
  const Groups& groups() const {
    TORCH_CHECK_NOT_IMPLEMENTED(!groups_.ranks.empty(), "a collective of ranks ", c10::IntArrayRef(ranks_),
                                " alone: all ranks run one program here (of a world in one "
                                "process, or of a captured step), so the other ranks have to be in groups of ",
                                ranks_.size(),
                                ", too. Make them with torch.distributed.new_group, "
                                "or all at once with init_device_mesh");
    return groups_;
  }
  const std::string getBackendName() const override { return "pjrt"; }
  bool supportsCoalescing() const override { return false; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return 0; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override {
    return update(tensors, [&](const at::Tensor& x) { return world::broadcast(x, opts.rootRank, groups()); });
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    return update(tensors, [&](const at::Tensor& x) { return reduced(x, opts.reduceOp); });
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override {
    return allreduce(tensors, opts);
  }
  WorkPtr allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& /*opts*/) override {
    const at::AutoDispatchBelowADInplaceOrView below;
    Tensors written;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const at::Tensor all = world::all_gather(inputs[i].unsqueeze(0), groups());
      for (size_t r = 0; r < outputs[i].size(); ++r) {
        written.push_back(outputs[i][r].copy_(all.select(0, static_cast<int64_t>(r))));
      }
    }
    return finished_work(std::move(written));
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& /*opts*/) override {
    return gather_into({output}, {input});
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& /*opts*/) override {
    return gather_into(outputs, inputs);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override {
    return scatter_into({output}, {input}, opts);
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override {
    return scatter_into(outputs, inputs, opts);
  }
  // The lists of `outputs` are ranks'.
  WorkPtr allgather_coalesced(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    for (size_t i = 0; i < inputs.size(); ++i) {
      Lists to(1);
      for (const Tensors& of_rank : outputs) to[0].push_back(of_rank.at(i));
      Tensors from{inputs[i]};
      allgather(to, from, opts);
    }
    return finished_work(inputs);
  }
  WorkPtr reduce_scatter(Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& opts) override {
    const at::AutoDispatchBelowADInplaceOrView below;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const at::Tensor parts = at::stack(inputs[i]);
      outputs[i].copy_(scattered(parts, opts.reduceOp).squeeze(0));
    }
    return finished_work(outputs);
  }
  // All ranks run this call, each with a list; the source's list counts.
  WorkPtr scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& opts) override {
    const at::AutoDispatchBelowADInplaceOrView below;
    std::vector<int64_t> places(groups().ranks.size());
    for (size_t i = 0; i < places.size(); ++i) {
      places[static_cast<size_t>(groups().ranks[i])] = static_cast<int64_t>(i) % groups().size;
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      const at::Tensor sent = world::broadcast(at::stack(inputs.at(i)), opts.rootRank, groups());
      outputs[i].copy_(sent.index_select(0, per_rank(places).reshape({1})).squeeze(0));
    }
    return finished_work(outputs);
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& /*opts*/) override {
    check_equal_parts(output_sizes);
    check_equal_parts(input_sizes);
    const at::AutoDispatchBelowADInplaceOrView below;
    output.copy_(world::all_to_all(input, groups()).view(output.sizes()));
    return finished_work({output});
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& /*opts*/) override {
    const at::AutoDispatchBelowADInplaceOrView below;
    for (const at::Tensor& input : inputs) {
      TORCH_CHECK_VALUE(input.sizes() == inputs[0].sizes(),
                        "all_to_all: a world in one process takes tensors of one size, got ", input.sizes(), " beside ",
                        inputs[0].sizes());
    }
    const at::Tensor exchanged = world::all_to_all(at::stack(inputs), groups());
    for (size_t i = 0; i < outputs.size(); ++i) outputs[i].copy_(exchanged.select(0, static_cast<int64_t>(i)));
    return finished_work(outputs);
  }
  // All ranks run one program, so every rank has come as far as this one.
  WorkPtr barrier(const c10d::BarrierOptions& /*opts*/) override { return finished_work({}); }
  WorkPtr send(Tensors& /*tensors*/, int /*to*/, int /*tag*/) override { refuse_point_to_point(); }
  WorkPtr recv(Tensors& /*tensors*/, int /*from*/, int /*tag*/) override { refuse_point_to_point(); }
  WorkPtr recvAnysource(Tensors& /*tensors*/, int /*tag*/) override { refuse_point_to_point(); }
  // Only the root's result is specified, but all ranks have it.
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    return update(tensors, [&](const at::Tensor& x) { return reduced(x, opts.reduceOp); });
  }
  WorkPtr gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override {
    check_root(opts);
    return allgather(outputs, inputs, {});
  }
  // Virtual since torch 2.15.
  virtual WorkPtr gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& opts) {
    check_root(opts);
    return gather_into({output}, {input});
  }
  void setTimeout(std::chrono::milliseconds /*timeout*/) override {}  // nobody waits

 private:
  static void check_root(const c10d::GatherOptions& opts) {
    TORCH_CHECK_NOT_IMPLEMENTED(opts.rootRank == 0, "gather to rank ", opts.rootRank,
                                ": the one process of a world is rank 0, which has no results then. Gather to "
                                "rank 0, or call torch.distributed.all_gather");
  }
  at::Tensor reduced(const at::Tensor& x, const c10d::ReduceOp& op) const {
    return world::all_reduce(premultiplied(x, op), name_of(op), groups());
  }
  at::Tensor scattered(const at::Tensor& x, const c10d::ReduceOp& op) const {
    return world::reduce_scatter(premultiplied(x, op), name_of(op), groups());
  }
  template <class Collective>
  WorkPtr update(Tensors& tensors, const Collective& collective) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return written(tensors, tensors, collective);
  }
  WorkPtr gather_into(const Tensors& outputs, const Tensors& inputs) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return written(outputs, inputs, [&](const at::Tensor& x) { return world::all_gather(x.reshape(-1), groups()); });
  }
  WorkPtr scatter_into(const Tensors& outputs, const Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return written(outputs, inputs, [&](const at::Tensor& x) { return scattered(x.reshape(-1), opts.reduceOp); });
  }
  // Records all results before the first output changes, so an error leaves the outputs unchanged.
  template <class Collective>
  static WorkPtr written(const Tensors& outputs, const Tensors& inputs, const Collective& collective) {
    Tensors results;
    for (size_t i = 0; i < outputs.size(); ++i) results.push_back(collective(inputs[i]).view(outputs[i].sizes()));
    for (size_t i = 0; i < outputs.size(); ++i) outputs[i].copy_(results[i]);
    return finished_work(outputs);
  }

  std::vector<int64_t> ranks_;  // the ranks of rank 0's group
  Groups groups_;               // empty: the groups of other ranks are not known
};

}  // namespace

c10::intrusive_ptr<Backend> make_backend(std::vector<int64_t> ranks) {
  return c10::make_intrusive<WorldBackend>(std::move(ranks));
}

void complete_backend(Backend& backend, const std::vector<std::vector<int64_t>>& groups) {
  Groups flat;
  flat.size = static_cast<int64_t>(groups.at(0).size());
  for (const auto& group : groups) flat.ranks.insert(flat.ranks.end(), group.begin(), group.end());
  dynamic_cast<WorldBackend&>(backend).complete(std::move(flat));
}

Groups groups_of(c10d::ProcessGroup& group) {
  const auto backend = group.getBackend(kPjrt);
  const auto* ours = dynamic_cast<const WorldBackend*>(backend.get());
  TORCH_CHECK(ours, "group '", group.getGroupName(), "' is of backend '", backend->getBackendName(),
              "', whose ranks are processes; in a world in one process, make groups of backend 'pjrt'");
  return ours->groups();
}

Groups groups_of(const std::string& group_name) { return groups_of(*c10d::resolve_process_group(group_name)); }

void check_equal_parts(const std::vector<int64_t>& sizes) {
  for (const int64_t size : sizes) {
    TORCH_CHECK_NOT_IMPLEMENTED(size == sizes[0], "all_to_all: parts of different sizes (", c10::IntArrayRef(sizes),
                                "); a world in one process runs one program for all ranks, whose shapes are the same. "
                                "Pad the parts to one size, or start a process for each rank with torchrun");
  }
}

}  // namespace tpjrt::device::world
