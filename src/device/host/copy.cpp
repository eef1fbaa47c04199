// copy_ in all directions, reads of single elements, and the kernels built on them.
#include "device/host/host.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_conj_physical.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/fill.h>
#include <ATen/ops/neg.h>
#include <c10/core/Scalar.h>

#include "device/collectives/collectives.h"
#include "device/services/counters.h"
#include "device/services/engine.h"
#include "device/services/modes.h"
#include "device/services/trace_assertions.h"
#include "device/start/eager.h"
#include "device/start/eager_fast_path.h"
#include "device/start/iterations.h"
#include "device/tensor/access.h"
#include "device/tensor/seal.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {
namespace {

graph::TypePtr dense_type(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() ? type_of(tensor)
                                               : graph::intern_contiguous(tensor.scalar_type(), tensor.sizes());
}

bool is_same_view(const at::Tensor& a, const at::Tensor& b) {
  return a.is_same(b) || (a.is_alias_of(b) && a.storage_offset() == b.storage_offset() &&
                          a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
                          a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg());
}

// Note [Eager fast path]: a write to a part of a storage goes into its memory. `from` is of this device or of the CPU.
bool copied_eagerly(const at::Tensor& self, const at::Tensor& from) {
  std::unique_lock lock(graph::graph_lock());
  if (covers_storage(self) || !storage_of(self)->slot.value()) return false;
  const graph::SignaturePtr first = begins_interval() ? signature_of_write(self) : nullptr;
  if (!begin_call(first) || !may_run_eagerly()) return false;
  const std::optional<Shown> to = shown(self);
  const std::optional<Shown> source = is_pjrt(from) ? shown(from) : Shown{{}, &from};
  if (!to || !source || (is_pjrt(from) && !source->leaf)) return false;
  const uint32_t own = source->leaf == to->leaf ? 3 : 2;  // the storage slot, and those here
  if (to->leaf.node.use_count() != own) return false;
  return run_unlocked(lock, [&] { return engine().copy_eagerly(*to, *source); });
}

void host_to_device(const at::Tensor& self, const at::Tensor& src) {
  if (src.dim() == 0 && src.device().is_cpu() && self.numel() > 1) {
    self.fill_(src.to(self.scalar_type()).item());  // a number of the graph instead of a transfer
    return;
  }
  end_iteration_before_copy(src.nbytes());
  if (copied_eagerly(self, src)) {
    counters().host_transfer_bytes += src.nbytes();
    return;
  }
  const graph::TypePtr type = dense_type(self);
  at::Tensor staged = at::empty_strided(type->sizes, type->strides, at::TensorOptions(c10::kCPU).dtype(type->dtype));
  staged.copy_(src);  // converts, broadcasts and resolves like the CPU
  graph::Value leaf = engine().upload(staged, self.device().index(), /*owned=*/true);
  counters().host_transfer_bytes += staged.nbytes();
  std::lock_guard lock(graph::graph_lock());
  write(self, std::move(leaf));
}

void device_to_device(const at::Tensor& self, const at::Tensor& src) {
  const auto device = self.device().index();
  at::Tensor expanded = src.sizes() == self.sizes() ? src : src.expand(self.sizes());
  const graph::TypePtr type = dense_type(self);
  if (copied_eagerly(self, expanded)) {
    counters().ops_recorded.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  {
    std::lock_guard lock(graph::graph_lock());
    graph::Value value = read(expanded);
    const graph::TypePtr from = value.type();
    if (from->dtype != type->dtype || from->sizes != type->sizes || from->strides != type->strides) {
      value = convert(value, type, device);
    }
    counters().ops_recorded.fetch_add(1, std::memory_order_relaxed);
    write(self, std::move(value));
  }
  if (C10_UNLIKELY(eager())) start_long_graph(self, "aten::copy_");
}

}  // namespace

at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  TORCH_CHECK(self.defined() && src.defined(), "copy_: self and src must be defined tensors");
  // `x[i] += y` writes the view that it has changed back to its place.
  if (is_same_view(self, src) || outlining()) return self;
  if (!is_pjrt(self)) {  // from the device
    TORCH_CHECK_NOT_IMPLEMENTED(self.layout() == c10::kStrided, "copy_: can't copy a pjrt tensor to layout ",
                                self.layout());
    at::Tensor plain = src.resolve_conj().resolve_neg();
    at::Tensor host = host_tensor(plain, "copy to the host");
    counters().host_transfer_bytes += host.nbytes();
    self.copy_(host, non_blocking);
    return self;
  }
  at::assert_no_internal_overlap(self);
  before_write(self, "aten::copy_");
  // expand() raises PyTorch's own shape errors.
  if (src.sizes() != self.sizes()) (void)at::expand_size(src, self.sizes());
  if (self.is_conj()) {
    copy_values(self.conj(), at::_conj_physical(src));
  } else if (self.is_neg()) {
    copy_values(self._neg_view(), at::neg(src));
  } else {
    copy_values(self, src);
  }
  return self;
}

void copy_values(const at::Tensor& self, const at::Tensor& from) {
  if (!is_pjrt(from)) {
    TORCH_CHECK_NOT_IMPLEMENTED(from.layout() == c10::kStrided,
                                "copy_: the pjrt device holds strided tensors only, got layout ", from.layout(),
                                "; call .to_dense() first");
    host_to_device(self, from.device().is_cpu() ? from : from.cpu());
    return;
  }
  at::Tensor src = from;
  if (src.is_conj()) src = at::_conj_physical(src.conj());
  if (src.is_neg()) src = at::neg(src._neg_view());
  if (src.device() != self.device()) {
    host_to_device(self, host_tensor(src, "copy to another device"));
    return;
  }
  if (self.is_alias_of(src)) at::assert_no_partial_overlap(self, src);
  device_to_device(self, src);
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  at::Tensor out = dst;
  copy_(out, self, non_blocking);
  return out;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  if (dst.sizes() != self.sizes()) dst.resize_(self.sizes());
  return copy_from(self, dst, false);
}

at::Scalar _local_scalar_dense(const at::Tensor& self) {
  TORCH_CHECK(self.numel() > 0, "_local_scalar_dense: Empty tensor not supported");
  end_iteration_before_read(storage_of(self)->slot);
  if (C10_UNLIKELY(tracing()) && !value_in_trace(self)) {
    if (const std::optional<bool> truth = assumed_truth(self)) return *truth;
  }
  const graph::Value leaf = ready_leaf(self, "read of an element");
  world::check_one_value(leaf, "item()");
  const auto itemsize = static_cast<int64_t>(self.itemsize());
  at::Scalar element;
  // Dtypes and name are those of PyTorch's own kernel. A tensor of one element would take longer than the read.
  AT_DISPATCH_V2(self.scalar_type(), "_local_scalar_dense_cpu", AT_WRAP([&] {
                   scalar_t value;
                   engine().read(leaf, self.storage_offset() * itemsize, itemsize, &value);
                   element = at::Scalar(value);
                 }),
                 AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), AT_EXPAND(AT_FLOAT8_TYPES), c10::kComplexHalf, c10::kHalf,
                 c10::kBool, c10::kBFloat16, AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
  if (self.is_conj()) element = element.conj();
  return self.is_neg() ? -element : element;
}

}  // namespace tpjrt::device
