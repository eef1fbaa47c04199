// The collectives, each with the tensors that it reads and writes.
//
// DDP's timings of a step, for the logger of devices that register a timer. They are the times of the calls on the
// host, because a tensor of the device is computed when its collective reads it.
#include "device/process_group/host_backend.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/resize_as_sparse.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "device/collectives/collectives.h"
#include "device/process_group/host_collective.h"
#include "device/process_group/late_ranks.h"
#include "device/services/finished_work.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {

namespace {

using c10d::Backend;
using Sizes = std::vector<int64_t>;

// The messages of a rank to itself, for which gloo has no connection. The n-th that is sent with a tag is received as
// the n-th.
class OwnMessages final : public std::enable_shared_from_this<OwnMessages> {
 public:
  WorkPtr send(Tensors message, int tag) {
    const std::lock_guard lock(mutex_);
    Way& way = ways_[tag];
    way.pending.emplace(way.sent++, std::move(message));
    return finished_work({});
  }
  WorkPtr receive(Tensors to, int tag) {
    const std::lock_guard lock(mutex_);
    return c10::make_intrusive<Receiving>(shared_from_this(), std::move(to), tag, ways_[tag].received++);
  }

 private:
  struct Way {
    uint64_t sent = 0, received = 0;
    std::map<uint64_t, Tensors> pending;
  };

  class Receiving final : public c10d::Work {
   public:
    Receiving(std::shared_ptr<OwnMessages> messages, Tensors to, int tag, uint64_t number)
        : messages_(std::move(messages)), to_(std::move(to)), tag_(tag), number_(number) {}
    bool wait(std::chrono::milliseconds /*timeout*/) override {
      if (!is_done_) messages_->take(to_, tag_, number_);
      return is_done_ = true;
    }
    void synchronize() override { wait(kNoTimeout); }
    bool isCompleted() override { return is_done_; }
    bool isSuccess() const override { return is_done_; }

   private:
    std::shared_ptr<OwnMessages> messages_;
    Tensors to_;
    int tag_;
    uint64_t number_;
    bool is_done_ = false;
  };

  void take(const Tensors& to, int tag, uint64_t number) {
    const std::lock_guard lock(mutex_);
    const auto message = ways_[tag].pending.extract(number);
    TORCH_CHECK(message, "this rank receives from itself, and has sent itself nothing with tag ", tag);
    for (size_t i = 0; i < to.size(); ++i) {
      const at::Tensor& from = message.mapped().at(i);
      TORCH_CHECK_VALUE(described(from) == described(to[i]), "this rank sent itself ", described(from),
                        ", and receives ", described(to[i]));
      to[i].view(-1).copy_(from.view(-1));
    }
  }

  std::mutex mutex_;
  std::map<int, Way> ways_;
};

class HostBackend final : public Backend {
 public:
  HostBackend(c10::intrusive_ptr<Backend> host, std::shared_ptr<Attendance> attendance)
      : Backend(host->getRank(), host->getSize()), host_(std::move(host)), attendance_(std::move(attendance)) {
    group_.attendance = attendance_.get();
    setGroupUid(host_->getGroupUid());
    setGroupDesc(host_->getGroupDesc());
  }

  const std::string getBackendName() const override { return host_->getBackendName(); }
  c10::intrusive_ptr<Options> getBackendOptions() override { return host_->getBackendOptions(); }
  void setSequenceNumberForGroup() override { host_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return host_->getSequenceNumberForGroup(); }
  void setTimeout(std::chrono::milliseconds timeout) override { host_->setTimeout(timeout); }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override {
    return update<&Backend::broadcast>("c10d::broadcast_", Does::kMoves, tensors, opts);
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    if (tensors.at(0).is_sparse()) return allreduce_sparse(tensors, opts);
    return update<&Backend::allreduce>("c10d::allreduce_", Does::kReduces, tensors, opts);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override {
    return update<&Backend::allreduce_coalesced>("c10d::allreduce_coalesced_", Does::kReduces, tensors, opts);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    return update<&Backend::reduce>("c10d::reduce_", Does::kReduces, tensors, opts);
  }
  WorkPtr allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    if (outputs.size() == 1 && !is_even(sizes_of(outputs[0]))) return allgather_uneven(outputs[0], inputs.at(0), opts);
    return exchange<&Backend::allgather>("c10d::allgather_", Does::kMoves, outputs, inputs, opts);
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override {
    HostCollective call("c10d::_allgather_base_", Does::kMoves, group_);
    Tensors from = flat(call.on_host(Use::kRead, Tensors{input})),
            to = flat(call.on_host(Use::kWrite, Tensors{output}));
    call.agree(*host_, "", {output, input});
    return call.finish(host_->_allgather_base(to[0], from[0], opts));
  }
  WorkPtr allgather_coalesced(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    return exchange<&Backend::allgather_coalesced>("c10d::allgather_coalesced_", Does::kMoves, outputs, inputs, opts);
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override {
    return exchange<&Backend::allgather_into_tensor_coalesced>("c10d::allgather_into_tensor_coalesced_", Does::kMoves,
                                                               outputs, inputs, opts);
  }
  WorkPtr gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override {
    return exchange<&Backend::gather>("c10d::gather_", Does::kMoves, outputs, inputs, opts);
  }
  // A gather whose output is one tensor: virtual since torch 2.15, and gloo has none.
  virtual WorkPtr gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& opts) {
    HostCollective call("c10d::gather_into_tensor_", Does::kMoves, group_);
    const bool is_root = opts.rootRank == getRank();
    const bool fits = !is_root || output.numel() == input.numel() * getSize();
    Tensors from = flat(call.on_host(Use::kRead, Tensors{input}));
    Lists to;
    if (is_root) {
      const at::Tensor whole = flat(call.on_host(Use::kWrite, Tensors{output}))[0];
      to.push_back(whole.tensor_split(getSize()));
    }
    const std::string size = fits ? "" : ", whose output is " + described(output);
    call.agree(*host_, root(opts) + size, {input});
    TORCH_CHECK_VALUE(fits, "gather_single of ", described(input), " among ", getSize(), size);
    return call.finish(host_->gather(to, from, opts));
  }
  WorkPtr scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& opts) override {
    return exchange<&Backend::scatter>("c10d::scatter_", Does::kMoves, outputs, inputs, opts);
  }
  WorkPtr reduce_scatter(Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& opts) override {
    HostCollective call("c10d::reduce_scatter_", Does::kReduces, group_, opts.reduceOp);
    Tensors from;
    std::vector<Sizes> sizes;
    for (const Tensors& list : inputs) {
      const Tensors of_ranks = flat(call.on_host(Use::kRead, list));
      from.push_back(at::cat(of_ranks));
      sizes.push_back(sizes_of(of_ranks));
    }
    return reduce_and_scatter(call, outputs, from, sizes, opts);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override {
    HostCollective call("c10d::_reduce_scatter_base_", Does::kReduces, group_, opts.reduceOp);
    return reduce_and_scatter(call, {output}, flat(call.on_host(Use::kCopy, Tensors{input})), {}, opts);
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override {
    HostCollective call("c10d::reduce_scatter_tensor_coalesced_", Does::kReduces, group_, opts.reduceOp);
    return reduce_and_scatter(call, outputs, flat(call.on_host(Use::kCopy, inputs)), {}, opts);
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& opts) override {
    HostCollective call("c10d::alltoall_base_", Does::kMoves, group_);
    Tensors from = call.on_host(Use::kRead, Tensors{input}), to = call.on_host(Use::kWrite, Tensors{output});
    call.agree_about_parts(*host_, input.scalar_type(), parts(input, input_sizes), parts(output, output_sizes));
    return call.finish(host_->alltoall_base(to[0], from[0], output_sizes, input_sizes, opts));
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override {
    HostCollective call("c10d::alltoall_", Does::kMoves, group_);
    const Tensors from = flat(call.on_host(Use::kRead, inputs)), to = flat(call.on_host(Use::kWrite, outputs));
    call.agree_about_parts(*host_, inputs.at(0).scalar_type(), sizes_of(inputs), sizes_of(outputs));
    // gloo's alltoall takes lists of tensors of one size.
    std::vector<int64_t> sent_sizes = sizes_of(from), arriving_sizes = sizes_of(to);
    at::Tensor sent = at::cat(from), arriving = at::cat(to);
    const Tensors arrived = arriving.split_with_sizes(arriving_sizes);
    call.wait(host_->alltoall_base(arriving, sent, arriving_sizes, sent_sizes, opts));  // which clears equal sizes
    for (size_t i = 0; i < to.size(); ++i) to[i].copy_(arrived[i]);
    return finished_work(call.take_back());
  }
  WorkPtr send(Tensors& tensors, int to, int tag) override {
    HostCollective call("c10d::send", Does::kMoves, group_);
    Tensors from = call.on_host(Use::kCopy, tensors);
    return with_rank(c10d::OpType::SEND, std::move(call), to,
                     [&] { return to == getRank() ? own_messages_->send(from, tag) : host_->send(from, to, tag); });
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    HostCollective call("c10d::recv_", Does::kMoves, group_);
    Tensors to = call.on_host(Use::kWrite, tensors);
    return with_rank(c10d::OpType::RECV, std::move(call), from,
                     [&] { return from == getRank() ? own_messages_->receive(to, tag) : host_->recv(to, from, tag); });
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    HostCollective call("c10d::recv_any_source_", Does::kMoves, group_);
    Tensors to = call.on_host(Use::kWrite, tensors);
    return with_rank(c10d::OpType::RECVANYSOURCE, std::move(call), -1, [&] { return host_->recvAnysource(to, tag); });
  }
  WorkPtr barrier(const c10d::BarrierOptions& /*opts*/) override {
    group_.check("c10d::barrier");
    check_agreement(*host_, "c10d::barrier", "c10d::barrier", group_);
    return finished_work({});
  }
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool all_ranks) override {
    with_names("c10d::monitored_barrier_", group_, -1, [&] { host_->monitoredBarrier(opts, all_ranks); });
  }

 private:
  template <class Call>
  static WorkPtr with_rank(c10d::OpType type, HostCollective call, int peer, const Call& start) {
    WorkPtr work = with_names(call.op(), call.group(), peer, start);
    return c10::make_intrusive<WorkWithRank>(type, std::move(call), peer, std::move(work));
  }
  // The ranks' elements may be at other places, and as many as they like.
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
    HostCollective call("c10d::allreduce_", Does::kReduces, group_, opts.reduceOp);
    call.take(tensors[0]);
    Tensors all{tensors[0].detach().to(c10::kCPU, /*non_blocking=*/false, /*copy=*/true)};
    call.agree(*host_, " sparse", tensors);
    call.wait(host_->allreduce(all, opts));
    const at::AutoDispatchBelowADInplaceOrView below;
    at::resize_as_sparse_(tensors[0], all[0]);
    tensors[0].copy_(all[0]);
    call.take_back();
    return finished_work(tensors);
  }
  template <auto collective, class Options>
  WorkPtr update(const char* op, Does does, Tensors& tensors, Options opts) {
    c10d::ReduceOp reduction;
    if constexpr (requires { opts.reduceOp; }) {
      reduction = std::exchange(opts.reduceOp, world::after_factor(opts.reduceOp));
    }
    HostCollective call(op, does, group_, std::move(reduction));
    Tensors all = call.on_host(Use::kUpdate, tensors);
    call.agree(*host_, root(opts), tensors);
    return call.finish((host_.get()->*collective)(all, opts));
  }
  // Replaces gloo's own reduce_scatter, whose wait has no time-out and so would not notice Ctrl-C. `from` is flat and
  // overwritten. `sizes`: of the ranks' parts of each of `from`; empty if these are equal.
  WorkPtr reduce_and_scatter(HostCollective& call, const Tensors& outputs, Tensors from, std::vector<Sizes> sizes,
                             const c10d::ReduceScatterOptions& opts) {
    const Tensors to = flat(call.on_host(Use::kWrite, outputs));
    c10d::AllreduceOptions all;
    all.reduceOp = world::after_factor(opts.reduceOp);
    all.timeout = opts.timeout;
    std::string how;
    Tensors compared;
    for (size_t i = 0; i < from.size(); ++i) {
      if (sizes.size() == i) sizes.push_back(parts(from[i], {}));
      if (is_even(sizes[i])) {
        compared.push_back(outputs.at(i));
      } else {
        how += uneven(sizes[i], from[i], to.at(i));
      }
    }
    call.agree(*host_, how, compared, from);
    for (size_t i = 0; i < from.size(); ++i) {
      TORCH_CHECK_VALUE(is_whole(sizes[i], from[i], to[i]), "reduce_scatter: an input of ", from[i].numel(),
                        " elements (", from[i].scalar_type(), ") in parts ", c10::IntArrayRef(sizes[i]),
                        " and an output of ", to[i].numel(), " (", to[i].scalar_type(), ") on rank ", getRank(),
                        " of the group's ", getSize());
    }
    for (size_t i = 0; i < from.size(); ++i) {
      Tensors one{from[i]};
      call.wait(host_->allreduce(one, all));
      const int64_t before = std::accumulate(sizes[i].begin(), sizes[i].begin() + getRank(), int64_t{0});
      to[i].copy_(from[i].narrow(0, before, to[i].numel()));
    }
    return finished_work(call.take_back());
  }
  // Each rank sends its part to all, as in NCCL's backend.
  WorkPtr allgather_uneven(const Tensors& outputs, const at::Tensor& input, const c10d::AllgatherOptions& opts) {
    HostCollective call("c10d::allgather_", Does::kMoves, group_);
    const Tensors from = flat(call.on_host(Use::kRead, Tensors{input})), to = flat(call.on_host(Use::kWrite, outputs));
    const Sizes sizes = sizes_of(outputs);
    call.agree(*host_, uneven(sizes, outputs[0], input), Tensors{});
    TORCH_CHECK_VALUE(is_whole(sizes, outputs[0], input), "all_gather: a tensor of ", input.numel(),
                      " elements on rank ", getRank(), " of the group's ", getSize(), ", and parts ",
                      c10::IntArrayRef(sizes));
    to[static_cast<size_t>(getRank())].copy_(from[0]);
    c10d::BroadcastOptions of_rank;
    of_rank.timeout = opts.timeout;
    for (size_t i = 0; i < to.size(); ++i) {
      if (sizes[i] == 0) continue;
      Tensors one{to[i]};
      of_rank.rootRank = static_cast<int64_t>(i);
      call.wait(host_->broadcast(one, of_rank));
    }
    return finished_work(call.take_back());
  }
  static bool is_even(const Sizes& sizes) {
    return std::all_of(sizes.begin(), sizes.end(), [&](int64_t size) { return size == sizes[0]; });
  }
  // Returns whether `sizes` has a part for each rank of a tensor like `list`, of which `own` is this rank's.
  bool is_whole(const Sizes& sizes, const at::Tensor& list, const at::Tensor& own) const {
    return sizes.size() == static_cast<size_t>(getSize()) && sizes[static_cast<size_t>(getRank())] == own.numel() &&
           list.scalar_type() == own.scalar_type();
  }
  // Describes parts of which this rank has `own`, which ranks compare: the same text on all of them if they fit.
  std::string uneven(const Sizes& sizes, const at::Tensor& list, const at::Tensor& own) const {
    std::ostringstream how;
    how << " " << c10::getDtypeNames(list.scalar_type()).first << " in parts " << c10::IntArrayRef(sizes);
    if (!is_whole(sizes, list, own)) how << ", and this rank's is " << described(own);
    return how.str();
  }
  template <auto collective, class Outputs, class Inputs, class Options>
  WorkPtr exchange(const char* op, Does does, Outputs& outputs, Inputs& inputs, const Options& opts) {
    HostCollective call(op, does, group_);
    Inputs from = call.on_host(Use::kRead, inputs);
    Outputs to = call.on_host(Use::kWrite, outputs);
    call.agree(*host_, root(opts), outputs, inputs);
    return call.finish((host_.get()->*collective)(to, from, opts));
  }
  template <class Options>
  static std::string root(const Options& opts) {
    if constexpr (requires { opts.rootRank; }) return " by rank " + std::to_string(opts.rootRank) + " of the group";
    return "";
  }
  // Returns the number of elements for each rank.
  Sizes parts(const at::Tensor& tensor, Sizes sizes) const {
    if (sizes.empty()) return Sizes(static_cast<size_t>(getSize()), tensor.numel() / getSize());
    const int64_t row = tensor.numel() / std::max<int64_t>(tensor.size(0), 1);
    for (int64_t& size : sizes) size *= row;
    return sizes;
  }

  c10::intrusive_ptr<Backend> host_;
  std::shared_ptr<Attendance> attendance_;
  HostGroup group_;
  std::shared_ptr<OwnMessages> own_messages_ = std::make_shared<OwnMessages>();
};

// The kernel for strided tensors looks up the group's backend of the device, which takes sparse ones.
void run_as_strided(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), stack);
}
TORCH_LIBRARY_IMPL(c10d, SparsePrivateUse1, m) {
  m.impl("allreduce_", torch::CppFunction::makeFromBoxedFunction<&run_as_strided>());
}

}  // namespace

c10::intrusive_ptr<Backend> make_host_backend(c10::intrusive_ptr<Backend> host,
                                              std::shared_ptr<Attendance> attendance) {
  return c10::make_intrusive<HostBackend>(std::move(host), std::move(attendance));
}

c10::intrusive_ptr<Backend> host_of(const c10::intrusive_ptr<Backend>& backend) {
  return dynamic_cast<const HostBackend*>(backend.get()) ? backend : nullptr;
}

WorkPtr gather_single(Backend& backend, at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& opts) {
  return dynamic_cast<HostBackend&>(backend).gather_single(output, input, opts);
}

}  // namespace tpjrt::device

namespace c10d {

namespace {

class PjrtTimer final : public Timer {
 public:
  explicit PjrtTimer(c10::Device) {}

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const auto from = getTimestamp(start), to = getTimestamp(end);
    if (!from || !to || *to < *from) return std::nullopt;  // not recorded in this step, as in no_sync()
    return *to - *from;
  }
};

C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kPrivateUse1, PjrtTimer)

}  // namespace

}  // namespace c10d
