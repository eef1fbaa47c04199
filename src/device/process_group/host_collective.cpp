// Compares what the ranks pass to a call, and moves its tensors to the host and back.
#include "device/process_group/host_collective.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <map>
#include <sstream>

#include "device/collectives/collectives.h"
#include "device/host/host.h"
#include "device/services/counters.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {

namespace {

using c10d::Backend;

// In the order of c10d::ReduceOp::RedOpType.
constexpr std::array<const char*, 10> kReductions{"sum",  "avg", "product", "min",        "max",
                                                  "band", "bor", "bxor",    "premul_sum", "unused"};
constexpr const char* kReason = "the process group's backend has collectives of the host's tensors only";

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

bool is_sum(const c10d::ReduceOp& reduction) {
  return reduction == c10d::ReduceOp::SUM || reduction == c10d::ReduceOp::AVG ||
         reduction == c10d::ReduceOp::PREMUL_SUM;
}

// Gives the written memory to the tensor, without a copy.
at::Tensor taken_back(at::Tensor& tensor, const at::Tensor& host) {
  if (!is_pjrt(tensor)) return tensor.copy_(host);
  counters().host_transfer_bytes += host.nbytes();
  // The finished work may still hold the memory, but no longer writes it.
  const at::Tensor alone = at::from_blob(host.data_ptr(), host.sizes(), [host](void*) {}, host.options());
  return tensor.copy_(device_tensor(alone, tensor.device().index(), /*owned=*/true));
}

}  // namespace

Tensors flat(const Tensors& hosts) {
  Tensors found;
  for (const at::Tensor& host : hosts) found.push_back(host.view(-1));
  return found;
}

std::vector<int64_t> sizes_of(const Tensors& tensors) {
  std::vector<int64_t> sizes;
  for (const at::Tensor& tensor : tensors) sizes.push_back(tensor.numel());
  return sizes;
}

std::string described(const at::Tensor& tensor) {
  return c10::str(c10::getDtypeNames(tensor.scalar_type()).first, "[", tensor.numel(), "]");
}

HostCollective::HostCollective(std::string op, Does does, HostGroup& group, c10d::ReduceOp reduction)
    : op_(std::move(op)), does_(does), group_(&group), reduction_(std::move(reduction)) {
  group.check(op_);
}

void HostCollective::take(const at::Tensor& tensor) {
  if (is_of_device_ || !is_pjrt(tensor)) return;
  check_may_run_on_host(op_, kReason);
  is_of_device_ = true;
}

void HostCollective::agree(Backend& host, std::string how, const Tensors& tensors, const Lists& lists) {
  if (does_ == Does::kReduces) how = std::string(" ") + kReductions.at(static_cast<size_t>(reduction_.op_)) + how;
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

void HostCollective::agree_about_parts(Backend& host, c10::ScalarType dtype, const std::vector<int64_t>& to,
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

Tensors HostCollective::on_host(Use use, const Tensors& tensors) {
  Tensors hosts;
  for (const at::Tensor& tensor : tensors) {
    take(tensor);
    const at::Tensor host = use == Use::kWrite
                                ? at::empty(tensor.sizes(), at::TensorOptions(c10::kCPU).dtype(tensor.dtype()))
                                : values_of(tensor, /*copied=*/use != Use::kRead);
    if (use != Use::kWrite) sent_bytes_ += host.nbytes();
    if (use == Use::kWrite || use == Use::kUpdate) written_.emplace_back(tensor, host);
    hosts.push_back(given(host));
  }
  return hosts;
}

Lists HostCollective::on_host(Use use, const Lists& lists) {
  Lists hosts;
  for (const Tensors& list : lists) hosts.push_back(on_host(use, list));
  return hosts;
}

WorkPtr HostCollective::finish(const WorkPtr& work) {
  wait(work);
  return finished_work(take_back());
}

Tensors HostCollective::take_back() {
  const at::AutoDispatchBelowADInplaceOrView below;
  Tensors results;
  for (auto& [tensor, host] : written_) results.push_back(taken_back(tensor, host));
  if (is_of_device_) {
    note_on_host(op_, kReason);
    counters().count_exchange(op_, sent_bytes_);
  }
  return results;
}

// Returns the tensor's own memory where that suffices, else a copy.
at::Tensor HostCollective::values_of(const at::Tensor& tensor, bool copied) const {
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::Tensor plain = world::premultiplied(tensor.resolve_conj().resolve_neg(), reduction_);
  const at::Tensor host = is_pjrt(plain) ? host_tensor(plain, op_.c_str()) : plain;
  return copied ? host.clone(at::MemoryFormat::Contiguous) : host.contiguous();
}

// Returns the tensor in a form that gloo accepts, or notes the refusal.
at::Tensor HostCollective::given(const at::Tensor& host) {
  if (does_ == Does::kMoves) return as_moved(host);
  if (host.is_complex() && is_sum(reduction_)) return at::view_as_real(host);
  if (!gloo_has(host.scalar_type())) {
    refusal_ = c10::str("[", op_, "] gloo can't reduce ", host.scalar_type(),
                        "; reduce it as another dtype, as in x.to(torch.float32)");
  }
  return host;
}

bool WorkWithRank::wait(std::chrono::milliseconds timeout) {
  const bool done = with_names(collective_.op(), collective_.group(), peer_, [&] { return work_->wait(timeout); });
  std::call_once(taken_back_, [&] { collective_.take_back(); });
  return done;
}

}  // namespace tpjrt::device
