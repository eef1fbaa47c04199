// The collectives, each with the tensors that it reads and writes.
//
// DDP's timings of a step, for the logger of devices that register a timer. They are the times of the calls on the
// host, because a tensor of the device is computed when its collective reads it.
#include "device/process_group/host_backend.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_as_sparse.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "device/collectives/collectives.h"
#include "device/host/host.h"
#include "device/process_group/late_ranks.h"
#include "device/services/counters.h"
#include "device/services/finished_work.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {

namespace {

using c10d::Backend;
using c10d::Work;

// In the order of c10d::ReduceOp::RedOpType.
constexpr std::array<const char*, 10> kReductions{"sum",  "avg", "product", "min",        "max",
                                                  "band", "bor", "bxor",    "premul_sum", "unused"};
constexpr const char* kReason = "the process group's backend has collectives of the host's tensors only";

// Whether a call computes with its tensors (adds, compares) or only moves them.
enum class Does { kReduces, kMoves };

// How a call uses tensors. kCopy: for work that overwrites what it reads, or reads until wait(), when other programs may
// have taken the tensors' memory.
enum class Use { kRead, kCopy, kWrite, kUpdate };

// Returns whether gloo computes in this dtype.
bool gloo_has(at::ScalarType dtype) {
  switch (dtype) {
    case at::kByte:
    case at::kChar:
    case at::kInt:
    case at::kLong:
    case at::kBool:
    case at::kHalf:
    case at::kBFloat16:
    case at::kFloat:
    case at::kDouble: return true;
    default: return false;
  }
}

// Other dtypes are moved as bytes, in an additional last dimension.
at::Tensor as_moved(const at::Tensor& host) {
  return gloo_has(host.scalar_type()) ? host : host.unsqueeze(-1).view(at::kByte);
}

// Flattens tensors, because gloo would split the first dimension: the ranks' parts are consecutive, whatever the
// sizes.
Tensors flat(const Tensors& hosts) {
  Tensors found;
  for (const at::Tensor& host : hosts) found.push_back(host.view(-1));
  return found;
}

// Returns the number of elements of each.
std::vector<int64_t> sizes_of(const Tensors& tensors) {
  std::vector<int64_t> sizes;
  for (const at::Tensor& tensor : tensors) sizes.push_back(tensor.numel());
  return sizes;
}

// One call. Its writes are no in-place ops to autograd, as with any backend.
class HostCollective {
 public:
  HostCollective(std::string op, Does does, HostGroup& group, c10d::ReduceOp reduction = {})
      : op_(std::move(op)), does_(does), group_(&group), reduction_(std::move(reduction)) {
    check_may_run_on_host(op_, kReason);
    group.check(op_);
  }

  // Raises on all ranks if they disagree about the call: `how`, and the number and dtype of the elements of each of
  // `tensors`, and of those in the `lists` that some ranks have. Then raises for a dtype that gloo can't reduce.
  void agree(Backend& host, std::string how, const Tensors& tensors, const Lists& lists = {}) {
    if (does_ == Does::kReduces) how += std::string(" ") + kReductions.at(static_cast<size_t>(reduction_.op_));
    std::map<std::string, int64_t> listed;
    for (const Tensors& list : lists) {
      for (const at::Tensor& tensor : list) ++listed[described(tensor)];
    }
    for (const at::Tensor& tensor : tensors) {
      how += " " + described(tensor);
      const auto alike = listed.find(described(tensor));
      if (alike != listed.end() && alike->second % host.getSize() == 0) listed.erase(alike);
    }
    for (const auto& [tensor, count] : listed) how += " " + std::to_string(count) + " of " + tensor;
    check_agreement(host, op_, op_ + how, *group_);
    TORCH_CHECK(refusal_.empty(), refusal_);
  }
  void agree(Backend& host, std::string how, const Lists& lists, const Tensors& tensors) {
    agree(host, std::move(how), tensors, lists);
  }
  void agree(Backend& host, const std::string& how, Tensors outputs, const Tensors& inputs) {
    outputs.insert(outputs.end(), inputs.begin(), inputs.end());
    agree(host, how, outputs);
  }
  // Raises on all ranks if one takes other numbers of elements than it is sent. `to` and `from`: this rank's, by rank.
  void agree_about_parts(Backend& host, c10::ScalarType dtype, const std::vector<int64_t>& to,
                         const std::vector<int64_t>& from) {
    at::Tensor sends = at::tensor(to), arrives = at::empty_like(sends);
    std::vector<int64_t> none;
    wait(host.alltoall_base(arrives, sends, none, none, {}));
    const c10::IntArrayRef sent(arrives.const_data_ptr<int64_t>(), from.size());
    const bool fits = sent == c10::IntArrayRef(from);
    std::ostringstream how;
    how << " " << c10::getDtypeNames(dtype).first;
    if (!fits) how << ", which takes " << c10::IntArrayRef(from) << " elements of the ranks, and they send " << sent;
    check_agreement(host, op_, op_ + how.str(), *group_);
    TORCH_CHECK(fits, "[", op_, "]", how.str());
  }

  // Returns the tensors' memory on the host, in the form that gloo takes.
  Tensors on_host(Use use, const Tensors& tensors) {
    Tensors hosts;
    for (const at::Tensor& tensor : tensors) {
      const at::Tensor host = use == Use::kWrite
                                  ? at::empty(tensor.sizes(), at::TensorOptions(c10::kCPU).dtype(tensor.dtype()))
                                  : values_of(tensor, /*copied=*/use != Use::kRead);
      if (use != Use::kWrite) sent_bytes_ += host.nbytes();
      if (use == Use::kWrite || use == Use::kUpdate) written_.emplace_back(tensor, host);
      hosts.push_back(given(host));
    }
    return hosts;
  }
  Lists on_host(Use use, const Lists& lists) {
    Lists hosts;
    for (const Tensors& list : lists) hosts.push_back(on_host(use, list));
    return hosts;
  }

  void wait(const WorkPtr& work) { await(*work, op_, *group_); }
  // Waits, and moves the written tensors back to the device.
  WorkPtr finish(const WorkPtr& work) {
    wait(work);
    return finished_work(take_back());
  }
  Tensors take_back() {
    const at::AutoDispatchBelowADInplaceOrView below;
    Tensors results;
    for (auto& [tensor, host] : written_) results.push_back(take_back(tensor, host));
    note_on_host(op_, kReason);
    counters().count_exchange(op_, sent_bytes_);
    return results;
  }

 private:
  // Gives the written memory to the tensor, without a copy.
  static at::Tensor take_back(at::Tensor& tensor, const at::Tensor& host) {
    if (!is_pjrt(tensor)) return tensor.copy_(host);
    counters().host_transfer_bytes += host.nbytes();
    // The finished work may still hold the memory, but no longer writes it.
    const at::Tensor alone = at::from_blob(host.data_ptr(), host.sizes(), [host](void*) {}, host.options());
    return tensor.copy_(device_tensor(alone, tensor.device().index(), /*owned=*/true));
  }

  // Returns the tensor's own memory where that suffices, else a copy.
  at::Tensor values_of(const at::Tensor& tensor, bool copied) const {
    const at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor plain = world::premultiplied(tensor.resolve_conj().resolve_neg(), reduction_);
    const at::Tensor host = is_pjrt(plain) ? host_tensor(plain, op_.c_str()) : plain;
    return copied ? host.clone(at::MemoryFormat::Contiguous) : host.contiguous();
  }

  bool is_sum() const {
    return reduction_ == c10d::ReduceOp::SUM || reduction_ == c10d::ReduceOp::AVG ||
           reduction_ == c10d::ReduceOp::PREMUL_SUM;
  }
  // Returns the tensor in a form that gloo accepts, or notes the refusal.
  at::Tensor given(const at::Tensor& host) {
    if (does_ == Does::kMoves) return as_moved(host);
    if (host.is_complex() && is_sum()) return at::view_as_real(host);
    if (!gloo_has(host.scalar_type())) {
      refusal_ = c10::str("[", op_, "] gloo can't reduce ", host.scalar_type(),
                          "; reduce it as another dtype, as in x.to(torch.float32)");
    }
    return host;
  }
  static std::string described(const at::Tensor& tensor) {
    return c10::str(c10::getDtypeNames(tensor.scalar_type()).first, "[", tensor.numel(), "]");
  }

  std::string op_;
  Does does_;
  HostGroup* group_;  // outlives the call
  c10d::ReduceOp reduction_;
  std::string refusal_;
  uint64_t sent_bytes_ = 0;
  std::vector<std::pair<at::Tensor, at::Tensor>> written_;  // pairs of device and host tensors
};

// The received tensor is on the device after wait(), because the sender may wait for this rank first.
class Receiving final : public Work {
 public:
  Receiving(HostCollective collective, WorkPtr work)
      : Work(-1, c10d::OpType::RECV), collective_(std::move(collective)), work_(std::move(work)) {}

  bool isCompleted() override { return work_->isCompleted(); }
  bool isSuccess() const override { return work_->isSuccess(); }
  int sourceRank() const override { return work_->sourceRank(); }
  void synchronize() override { wait(kNoTimeout); }
  void abort() override { work_->abort(); }
  bool wait(std::chrono::milliseconds timeout) override {
    const bool done = work_->wait(timeout);
    std::call_once(taken_back_, [&] { collective_.take_back(); });
    return done;
  }

 private:
  HostCollective collective_;
  WorkPtr work_;
  std::once_flag taken_back_;
};

class HostBackend final : public Backend {
 public:
  const c10::intrusive_ptr<Backend>& host() const { return host_; }

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
  WorkPtr scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& opts) override {
    return exchange<&Backend::scatter>("c10d::scatter_", Does::kMoves, outputs, inputs, opts);
  }
  WorkPtr reduce_scatter(Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& opts) override {
    HostCollective call("c10d::reduce_scatter_", Does::kReduces, group_, opts.reduceOp);
    Tensors from;
    for (const Tensors& parts : inputs) from.push_back(at::cat(flat(call.on_host(Use::kRead, parts))));
    return reduce_and_scatter(call, outputs, from, opts);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override {
    HostCollective call("c10d::_reduce_scatter_base_", Does::kReduces, group_, opts.reduceOp);
    return reduce_and_scatter(call, {output}, flat(call.on_host(Use::kCopy, Tensors{input})), opts);
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override {
    HostCollective call("c10d::reduce_scatter_tensor_coalesced_", Does::kReduces, group_, opts.reduceOp);
    return reduce_and_scatter(call, outputs, flat(call.on_host(Use::kCopy, inputs)), opts);
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
    WorkPtr work = host_->send(from, to, tag);
    call.take_back();
    return work;
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    HostCollective call("c10d::recv_", Does::kMoves, group_);
    Tensors to = call.on_host(Use::kWrite, tensors);
    WorkPtr work = host_->recv(to, from, tag);
    return c10::make_intrusive<Receiving>(std::move(call), std::move(work));
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    HostCollective call("c10d::recv_any_source_", Does::kMoves, group_);
    Tensors to = call.on_host(Use::kWrite, tensors);
    WorkPtr work = host_->recvAnysource(to, tag);
    return c10::make_intrusive<Receiving>(std::move(call), std::move(work));
  }
  WorkPtr barrier(const c10d::BarrierOptions& /*opts*/) override {
    group_.check("c10d::barrier");
    check_agreement(*host_, "c10d::barrier", "c10d::barrier", group_);
    return finished_work({});
  }
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool all_ranks) override {
    host_->monitoredBarrier(opts, all_ranks);
  }

 private:
  // The ranks' elements may be at other places, and as many as they like.
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
    HostCollective call("c10d::allreduce_", Does::kReduces, group_, opts.reduceOp);
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
  // overwritten.
  WorkPtr reduce_and_scatter(HostCollective& call, const Tensors& outputs, Tensors from,
                             const c10d::ReduceScatterOptions& opts) {
    const Tensors to = flat(call.on_host(Use::kWrite, outputs));
    c10d::AllreduceOptions all;
    all.reduceOp = world::after_factor(opts.reduceOp);
    all.timeout = opts.timeout;
    call.agree(*host_, "", outputs, from);
    for (size_t i = 0; i < from.size(); ++i) {
      TORCH_CHECK_VALUE(from[i].numel() == to[i].numel() * getSize() && from[i].scalar_type() == to[i].scalar_type(),
                        "reduce_scatter: an input of ", from[i].numel(), " elements (", from[i].scalar_type(),
                        ") and outputs of ", to[i].numel(), " (", to[i].scalar_type(), ") on each of ", getSize(),
                        " ranks");
    }
    for (size_t i = 0; i < from.size(); ++i) {
      Tensors one{from[i]};
      call.wait(host_->allreduce(one, all));
      const int64_t size = to[i].numel();
      to[i].copy_(from[i].narrow(0, getRank() * size, size));
    }
    return finished_work(call.take_back());
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
  std::vector<int64_t> parts(const at::Tensor& tensor, std::vector<int64_t> sizes) const {
    if (sizes.empty()) return std::vector<int64_t>(static_cast<size_t>(getSize()), tensor.numel() / getSize());
    const int64_t row = tensor.numel() / std::max<int64_t>(tensor.size(0), 1);
    for (int64_t& size : sizes) size *= row;
    return sizes;
  }

  c10::intrusive_ptr<Backend> host_;
  std::shared_ptr<Attendance> attendance_;
  HostGroup group_;
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
  const auto* ours = dynamic_cast<const HostBackend*>(backend.get());
  return ours ? ours->host() : nullptr;
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
