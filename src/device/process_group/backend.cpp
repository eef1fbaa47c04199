// Each collective, with the work that is started before it and with it.
#include "device/process_group/backend.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include "device/collectives/backend.h"
#include "device/process_group/host_backend.h"
#include "device/services/engine.h"
#include "device/services/finished_work.h"
#include "device/services/modes.h"
#include "device/tensor/storage.h"

namespace tpjrt::device::processes {
namespace {

using c10d::Backend;

bool are_alike(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor& tensor) { return tensor.sizes() == tensors[0].sizes(); });
}

void start(const Tensors& tensors, const char* cause) {
  std::vector<graph::StorageSlot*> slots;
  for (const at::Tensor& tensor : tensors) slots.push_back(&storage_of(tensor)->slot);
  engine().sync(slots, cause);
}

// The values that a collective overwrites while it runs. Restores them unless the new ones are kept.
class Written {
 public:
  explicit Written(const Tensors& tensors) : tensors_(tensors) {
    const std::lock_guard lock(graph::graph_lock());
    for (const at::Tensor& tensor : tensors) before_.push_back(storage_of(tensor)->slot.value());
  }
  ~Written() {
    if (is_kept_) return;
    const std::lock_guard lock(graph::graph_lock());
    for (size_t i = 0; i < before_.size(); ++i) {
      graph::StorageSlot& slot = storage_of(tensors_[i])->slot;
      graph::Value now = slot.value();
      slot.bind(std::exchange(before_[i], std::move(now)));  // freed after the lock, with before_
    }
  }
  Written(const Written&) = delete;
  Written& operator=(const Written&) = delete;
  void keep() { is_kept_ = true; }

 private:
  const Tensors& tensors_;
  std::vector<graph::Value> before_;
  bool is_kept_ = false;
};

// The collectives are those of a world whose ranks are this group's. While a step is captured they are ops of it, and
// the world consists of all processes, in groups of this one's kind.
class BackendOfProcesses final : public Backend {
 public:
  BackendOfProcesses(const std::vector<int64_t>& ranks, const c10::intrusive_ptr<Backend>& host,
                     std::shared_ptr<Attendance> attendance)
      : Backend(host->getRank(), host->getSize()),
        across_(world::make_backend(ranks)),
        captured_(world::make_backend(ranks)),
        host_(make_host_backend(host, attendance)),
        attendance_(std::move(attendance)) {
    world::complete_backend(*across_, {ranks});
    setGroupUid(host->getGroupUid());
    setGroupDesc(host->getGroupDesc());
  }

  const std::string getBackendName() const override { return "pjrt"; }
  bool supportsCoalescing() const override { return false; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return host_->getBackendOptions(); }
  void setSequenceNumberForGroup() override { host_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return host_->getSequenceNumberForGroup(); }
  void setTimeout(std::chrono::milliseconds timeout) override { host_->setTimeout(timeout); }
  const c10::intrusive_ptr<Backend>& host() const { return host_; }
  void complete(const std::vector<std::vector<int64_t>>& groups) { world::complete_backend(*captured_, groups); }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override {
    return update("c10d::broadcast", tensors, [&](Backend& ranks, Tensors& all) { ranks.broadcast(all, opts); });
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    return update("c10d::allreduce", tensors, [&](Backend& ranks, Tensors& all) { ranks.allreduce(all, opts); });
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override {
    return update("c10d::allreduce_coalesced", tensors,
                  [&](Backend& ranks, Tensors& all) { ranks.allreduce_coalesced(all, opts); });
  }
  WorkPtr allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    if (inputs.size() != 1 || !are_alike(outputs.at(0))) return host_->allgather(outputs, inputs, opts);
    return exchange("c10d::allgather", outputs[0], inputs, [&](Backend& ranks, Tensors& to, Tensors& from) {
      Lists all{to};
      ranks.allgather(all, from, opts);
    });
  }
  WorkPtr allgather_coalesced(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    return host_->allgather_coalesced(outputs, inputs, opts);
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override {
    return exchange("c10d::_allgather_base", {output}, {input},
                    [&](Backend& ranks, Tensors& to, Tensors& from) { ranks._allgather_base(to[0], from[0], opts); });
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override {
    return exchange(
        "c10d::allgather_into_tensor_coalesced", outputs, inputs,
        [&](Backend& ranks, Tensors& to, Tensors& from) { ranks.allgather_into_tensor_coalesced(to, from, opts); });
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override {
    return exchange("c10d::_reduce_scatter_base", {output}, {input}, [&](Backend& ranks, Tensors& to, Tensors& from) {
      ranks._reduce_scatter_base(to[0], from[0], opts);
    });
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override {
    return exchange(
        "c10d::reduce_scatter_tensor_coalesced", outputs, inputs,
        [&](Backend& ranks, Tensors& to, Tensors& from) { ranks.reduce_scatter_tensor_coalesced(to, from, opts); });
  }
  WorkPtr reduce_scatter(Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& opts) override {
    if (outputs.size() != 1 || !are_alike(inputs.at(0))) return host_->reduce_scatter(outputs, inputs, opts);
    return exchange("c10d::reduce_scatter", outputs, inputs[0], [&](Backend& ranks, Tensors& to, Tensors& from) {
      Lists all{from};
      ranks.reduce_scatter(to, all, opts);
    });
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& opts) override {
    // Sizes may differ between parts on one rank and be equal on another, so if sizes are given, all ranks use the
    // host.
    if (!output_sizes.empty() || !input_sizes.empty()) {
      return host_->alltoall_base(output, input, output_sizes, input_sizes, opts);
    }
    return exchange("c10d::alltoall_base", {output}, {input}, [&](Backend& ranks, Tensors& to, Tensors& from) {
      ranks.alltoall_base(to[0], from[0], output_sizes, input_sizes, opts);
    });
  }
  // The lists' sizes may differ by rank.
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override {
    return host_->alltoall(outputs, inputs, opts);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override { return host_->reduce(tensors, opts); }
  WorkPtr gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override {
    return host_->gather(outputs, inputs, opts);
  }
  virtual WorkPtr gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& opts) {
    return device::gather_single(*host_, output, input, opts);
  }
  WorkPtr scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& opts) override {
    return host_->scatter(outputs, inputs, opts);
  }
  WorkPtr send(Tensors& tensors, int to, int tag) override { return host_->send(tensors, to, tag); }
  WorkPtr recv(Tensors& tensors, int from, int tag) override { return host_->recv(tensors, from, tag); }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override { return host_->recvAnysource(tensors, tag); }
  WorkPtr barrier(const c10d::BarrierOptions& opts) override { return host_->barrier(opts); }
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool all_ranks) override {
    host_->monitoredBarrier(opts, all_ranks);
  }

 private:
  // Runs a `collective` that overwrites its operands.
  template <class Collective>
  WorkPtr update(const char* name, const Tensors& tensors, const Collective& collective) {
    check(tensors);
    const at::AutoDispatchBelowADInplaceOrView below;
    if (tracing()) {
      Tensors all = tensors;
      collective(*captured_, all);
      return finished_work(tensors);
    }
    Tensors all = alone(tensors);
    start(all, "operands of a collective");
    carry_out(name, all, [&] { collective(*across_, all); });
    return given(tensors, all);
  }
  template <class Collective>
  WorkPtr exchange(const char* name, const Tensors& outputs, const Tensors& inputs, const Collective& collective) {
    check(inputs);
    const at::AutoDispatchBelowADInplaceOrView below;
    if (tracing()) {
      Tensors from = inputs, to = outputs;
      collective(*captured_, to, from);
      return finished_work(outputs);
    }
    Tensors from = alone(inputs), to;
    for (const at::Tensor& output : outputs) {
      to.push_back(is_alone(output) ? output : at::empty(output.sizes(), output.options()));
    }
    start(from, "operands of a collective");
    start(to, "operands of a collective");
    carry_out(name, to, [&] { collective(*across_, to, from); });
    return given(outputs, to);
  }
  // Runs the whole collective, or restores the outputs: a pending collective would wait for other ranks in a later,
  // unrelated read.
  template <class Collective>
  void carry_out(const char* name, const Tensors& writes, const Collective& collective) {
    Written written(writes);
    const WaitForRanks wait(attendance_.get(), name);
    collective();
    start(writes, "collective");
    written.keep();
  }

  static void check(const Tensors& tensors) {
    for (const at::Tensor& tensor : tensors) {
      TORCH_CHECK(is_pjrt(tensor), "a collective of backend 'pjrt' takes tensors on 'pjrt', and got one on '",
                  tensor.device(), "'");
    }
  }

  // Returns whether the tensor is all of its memory, in order. A view's position differs by rank, as a shard in
  // FSDP2's gathered buffer, which would make the programs differ.
  static bool is_alone(const at::Tensor& tensor) {
    return tensor.is_contiguous() && tensor.storage_offset() == 0 && tensor.nbytes() == tensor.storage().nbytes() &&
           !tensor.is_conj() && !tensor.is_neg();
  }
  static Tensors alone(const Tensors& tensors) {
    Tensors all;
    for (const at::Tensor& tensor : tensors) {
      all.push_back(is_alone(tensor) ? tensor : tensor.clone(at::MemoryFormat::Contiguous));
    }
    return all;
  }
  static WorkPtr given(const Tensors& tensors, const Tensors& all) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!tensors[i].is_same(all[i])) tensors[i].copy_(all[i]);
    }
    return finished_work(tensors);
  }

  c10::intrusive_ptr<Backend> across_, captured_, host_;
  std::shared_ptr<Attendance> attendance_;
};

}  // namespace

c10::intrusive_ptr<Backend> make_backend(const std::vector<int64_t>& ranks, c10::intrusive_ptr<Backend> host,
                                         std::shared_ptr<Attendance> attendance) {
  return c10::make_intrusive<BackendOfProcesses>(ranks, host, std::move(attendance));
}

void complete_backend(Backend& backend, const std::vector<std::vector<int64_t>>& groups) {
  dynamic_cast<BackendOfProcesses&>(backend).complete(groups);
}

c10::intrusive_ptr<Backend> host_of(const c10::intrusive_ptr<Backend>& backend) {
  const auto* ours = dynamic_cast<const BackendOfProcesses*>(backend.get());
  return device::host_of(ours ? ours->host() : backend);
}

}  // namespace tpjrt::device::processes
