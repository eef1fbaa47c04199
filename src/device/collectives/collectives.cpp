// The collectives' schemas, their Meta kernels, and calls of them; and the check that there is one value to read.
#include "device/collectives/collectives.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mul.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <memory>
#include <utility>

#include "device/services/engine.h"
#include "device/tensor/factory.h"
#include "device/tensor/storage.h"
#include "graph/signature.h"
#include "graph/world.h"

namespace tpjrt::device::world {

namespace {

using c10::IntArrayRef;

c10::SymDimVector with_first(const at::Tensor& input, const c10::SymInt& first) {
  c10::SymDimVector sizes(input.sym_sizes().begin(), input.sym_sizes().end());
  sizes[0] = first;
  return sizes;
}

void check_parts(const char* op, const at::Tensor& input, int64_t parts) {
  TORCH_CHECK_VALUE(input.dim() > 0 && input.size(0) % parts == 0, op, ": a first dimension of ",
                    input.dim() > 0 ? input.size(0) : 1, " doesn't divide among the group's ", parts,
                    " ranks; pad it to a multiple");
}

at::Tensor like(const at::Tensor& input) { return at::empty_symint(input.sym_sizes(), input.options()); }
at::Tensor reduced_meta(const at::Tensor& input, c10::string_view, IntArrayRef, int64_t) { return like(input); }
at::Tensor gathered_meta(const at::Tensor& input, IntArrayRef, int64_t size) {
  TORCH_CHECK_VALUE(input.dim() > 0, "all_gather: a tensor without dimensions; reshape it to (1,)");
  return at::empty_symint(with_first(input, input.sym_size(0) * size), input.options());
}
at::Tensor scattered_meta(const at::Tensor& input, c10::string_view, IntArrayRef, int64_t size) {
  check_parts("reduce_scatter", input, size);
  return at::empty_symint(with_first(input, input.sym_size(0) / size), input.options());
}
at::Tensor exchanged_meta(const at::Tensor& input, IntArrayRef, int64_t size) {
  check_parts("all_to_all", input, size);
  return like(input);
}
at::Tensor broadcast_meta(const at::Tensor& input, int64_t, IntArrayRef, int64_t) { return like(input); }
at::Tensor per_rank_meta(const at::Tensor& input, IntArrayRef) { return like(input); }
at::Tensor promised_meta(const at::Tensor& input) { return like(input); }

// Returns a copy where PyTorch has a view; all that differs is an error (Whole).
at::Tensor narrow(const at::Tensor& self, int64_t dim, const at::Tensor& start, int64_t length) {
  at::Tensor part = self.index_select(dim, start + at::arange(length, start.options()));
  if (part.device().type() != kPjrt || !part.has_storage() || part.storage().allocator() != allocator()) return part;
  const LazyStorage* whole = storage_of(self);
  const c10::VariableVersion& counter = self.unsafeGetTensorImpl()->version_counter();
  storage_of(part)->whole = whole->whole        ? std::make_unique<Whole>(*whole->whole)
                            : counter.enabled() ? std::make_unique<Whole>(counter, counter.current_version())
                                                : std::make_unique<Whole>(c10::VariableVersion(0), 0);
  return part;
}

TORCH_LIBRARY(pjrt_world, m) {
  m.def("all_reduce(Tensor input, str reduce_op, int[] groups, int group_size) -> Tensor");
  m.def("all_gather(Tensor input, int[] groups, int group_size) -> Tensor");
  m.def("reduce_scatter(Tensor input, str reduce_op, int[] groups, int group_size) -> Tensor");
  m.def("all_to_all(Tensor input, int[] groups, int group_size) -> Tensor");
  m.def("broadcast(Tensor input, int source, int[] groups, int group_size) -> Tensor");
  m.def("per_rank(Tensor like, int[] values) -> Tensor");
  m.def("promised_equal(Tensor input) -> Tensor");
  m.def("narrow(Tensor self, int dim, Tensor start, int length) -> Tensor");
}
TORCH_LIBRARY_IMPL(pjrt_world, CompositeImplicitAutograd, m) { m.impl("narrow", TORCH_FN(narrow)); }
TORCH_LIBRARY_IMPL(pjrt_world, Meta, m) {
  m.impl("all_reduce", TORCH_FN(reduced_meta));
  m.impl("all_gather", TORCH_FN(gathered_meta));
  m.impl("reduce_scatter", TORCH_FN(scattered_meta));
  m.impl("all_to_all", TORCH_FN(exchanged_meta));
  m.impl("broadcast", TORCH_FN(broadcast_meta));
  m.impl("per_rank", TORCH_FN(per_rank_meta));
  m.impl("promised_equal", TORCH_FN(promised_meta));
}

c10::OperatorHandle schema(const char* name) { return c10::Dispatcher::singleton().findSchemaOrThrow(name, ""); }

// Returns a contiguous tensor without lazy bits. Collectives see sizes alone; the ranks' tensors all have the same
// strides.
at::Tensor plain(const at::Tensor& input) {
  TORCH_CHECK(is_pjrt(input), "a collective of a world takes tensors on 'pjrt', and got one on '", input.device(),
              "'; the ranks of a world have no values on the host");
  return input.resolve_conj().resolve_neg().contiguous();
}

}  // namespace

at::Tensor all_reduce(const at::Tensor& input, const std::string& reduction, const Groups& groups) {
  static const auto op =
      schema("pjrt_world::all_reduce").typed<at::Tensor(const at::Tensor&, c10::string_view, IntArrayRef, int64_t)>();
  return op.call(plain(input), reduction, groups.ranks, groups.size);
}

at::Tensor all_gather(const at::Tensor& input, const Groups& groups) {
  static const auto op = schema("pjrt_world::all_gather").typed<at::Tensor(const at::Tensor&, IntArrayRef, int64_t)>();
  return op.call(plain(input), groups.ranks, groups.size);
}

at::Tensor reduce_scatter(const at::Tensor& input, const std::string& reduction, const Groups& groups) {
  static const auto op = schema("pjrt_world::reduce_scatter")
                             .typed<at::Tensor(const at::Tensor&, c10::string_view, IntArrayRef, int64_t)>();
  check_parts("reduce_scatter", input, groups.size);
  return op.call(plain(input), reduction, groups.ranks, groups.size);
}

at::Tensor all_to_all(const at::Tensor& input, const Groups& groups) {
  static const auto op = schema("pjrt_world::all_to_all").typed<at::Tensor(const at::Tensor&, IntArrayRef, int64_t)>();
  check_parts("all_to_all", input, groups.size);
  return op.call(plain(input), groups.ranks, groups.size);
}

at::Tensor broadcast(const at::Tensor& input, int64_t source, const Groups& groups) {
  static const auto op =
      schema("pjrt_world::broadcast").typed<at::Tensor(const at::Tensor&, int64_t, IntArrayRef, int64_t)>();
  TORCH_CHECK_VALUE(source >= 0 && source < groups.size, "broadcast: no rank ", source, " in a group of ", groups.size);
  return op.call(plain(input), source, groups.ranks, groups.size);
}

at::Tensor per_rank(std::vector<int64_t> values) {
  static const auto op = schema("pjrt_world::per_rank").typed<at::Tensor(const at::Tensor&, IntArrayRef)>();
  TORCH_CHECK_VALUE(values.size() == graph::world_size(), "per_rank: ", values.size(), " values for a world of ",
                    graph::world_size().load(), " ranks");
  return op.call(at::empty({}, at::TensorOptions(c10::Device(kPjrt, 0)).dtype(c10::kLong)), values);
}

at::Tensor promised_equal(const at::Tensor& input) {
  static const auto op = schema("pjrt_world::promised_equal").typed<at::Tensor(const at::Tensor&)>();
  return op.call(plain(input));
}

at::Tensor premultiplied(const at::Tensor& input, const c10d::ReduceOp& op) {
  if (op != c10d::ReduceOp::PREMUL_SUM) return input;
  TORCH_CHECK_TYPE(at::isFloatingType(input.scalar_type()) || at::isComplexType(input.scalar_type()),
                   "PREMUL_SUM takes tensors of floating point, and got one of ", input.scalar_type(),
                   "; multiply by the factor, and take ReduceOp.SUM");
  const auto* factor = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(factor, "PREMUL_SUM without a factor; make it with torch.distributed._make_nccl_premul_sum");
  if (!factor->tensor_factor.defined()) return at::mul(input, factor->double_factor);
  return at::mul(input, factor->tensor_factor).to(input.scalar_type());
}

c10d::ReduceOp after_factor(const c10d::ReduceOp& op) {
  return op == c10d::ReduceOp::PREMUL_SUM ? c10d::ReduceOp(c10d::ReduceOp::SUM) : op;
}

bool has_one_value(const graph::Value& leaf) { return engine().is_same_on_all_ranks(leaf); }

void check_one_value(const graph::Value& leaf, const char* what) {
  TORCH_CHECK(
      has_one_value(leaf), what, ": the ", graph::world_size().load(),
      " ranks of this world have values of their own, and Python runs once for all of them. Reduce it first, as "
      "full_tensor() of a DTensor or torch.distributed.all_reduce do; torch_pjrt.distributed.rank_values(x) "
      "lists each rank's, and print(x) shows the first rank's");
}

}  // namespace tpjrt::device::world
