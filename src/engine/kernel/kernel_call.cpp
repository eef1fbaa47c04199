// Runs single calls on tensors of the CPU and of CUDA. Checks indices of the backwards of embeddings and negative log
// likelihoods.
#include "engine/kernel/kernel_call.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ScalarOps.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/masked_select.h>
#include <ATen/ops/ne.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "device/tensor/access.h"
#include "device/tensor/storage.h"
#include "graph/errors.h"
#include "kernels/host/host_kernel.h"
#include "ops/claims/claims.h"
#include "ops/rule/call.h"

namespace tpjrt::engine {

namespace {

using kernels::HostArguments;

void check(const at::Tensor& indices, int64_t size) {
  if (indices.numel() == 0) return;
  const auto [least, greatest] = at::aminmax(indices);
  TORCH_CHECK_INDEX(least.item<int64_t>() >= 0 && greatest.item<int64_t>() < size, "index out of range in self");
}

void of_table(const HostArguments& call) { check(call.tensor("indices"), call.integer("num_weights")); }

void of_bags(const HostArguments& call) {
  of_table(call);
  check(call.tensor("offset2bag"), call.tensor("grad").size(0));
}

void of_weights_of_bags(const HostArguments& call) {
  check(call.tensor("indices"), call.tensor("weight").size(0));
  check(call.tensor("offset2bag"), call.tensor("grad").size(0));
}

// The forward's error names the target, and so does this one.
void of_targets(const HostArguments& call) {
  const at::Tensor scores = call.tensor("self"), all = call.tensor("target");
  const at::Tensor targets = at::masked_select(all, at::ne(all, call.integer("ignore_index")));
  if (targets.numel() == 0) return;
  const int64_t classes = scores.size(scores.dim() == 1 ? 0 : 1);
  const auto [least, greatest] = at::aminmax(targets);
  const int64_t low = least.item<int64_t>(), high = greatest.item<int64_t>();
  TORCH_CHECK_INDEX(low >= 0 && high < classes, "Target ", low < 0 ? low : high, " is out of bounds.");
}

}  // namespace

IndexGuard index_guard(const graph::Signature& signature) {
  const std::string& name = signature.name;
  if (name == "aten::embedding_dense_backward") return of_table;
  if (name == "aten::_embedding_bag_backward" || name == "aten::_embedding_bag_dense_backward") return of_bags;
  if (name == "aten::_embedding_bag_per_sample_weights_backward") return of_weights_of_bags;
  if (name == "aten::nll_loss_backward" || name == "aten::nll_loss2d_backward") return of_targets;
  return nullptr;
}

namespace {

using graph::Parameter;
using graph::ScalarValue;
using graph::Signature;
using Tensors = std::vector<at::Tensor>;
using Way = KernelCall::Way;

std::atomic<uint64_t> all_refused = 0;

// A kernel may set the conjugate or negative bit of its result instead of its values (lu_solve from the right), so
// memory alone doesn't tell.
bool has_layout(const at::Tensor& tensor, const graph::TensorType& form) {
  return !tensor.is_conj() && !tensor.is_neg() && tensor.scalar_type() == form.dtype &&
         tensor.strides() == c10::IntArrayRef(form.strides) && tensor.storage_offset() == 0;
}

// Returns true if the kernel can fail because of its operands' data after it has written part of the result, as with
// indices.
bool is_of_integers(const Signature& s) {
  return std::any_of(s.operands.begin(), s.operands.end(),
                     [](graph::TypePtr type) { return c10::isIntegralType(type->dtype, /*includeBool=*/false); });
}

bool is_a_fill(const Signature& s) { return s.name == "aten::fill_.Scalar" || s.name == "aten::zero_"; }

// Returns the layout of a convolution, or its backward, by the stride of its last dimension.
ops::Layout layout_of_stride(const Signature& s) {
  const auto stride = std::find_if(s.parameters.begin(), s.parameters.end(),
                                   [](const Parameter& parameter) { return parameter.name == "stride"; });
  if (stride == s.parameters.end() || !stride->constant.isIntList()) return ops::kStridedToFew;  // unknown
  const std::vector<int64_t> strides = stride->constant.toIntVector();
  const graph::TypePtr other = s.name.find("backward") == std::string::npos ? s.results[0] : s.operands[1];
  const int64_t size = std::min(s.operands[0]->sizes.back(), other->sizes.back());
  return strides.empty() ? ops::kStraight : ops::layout_of_stride(strides.back(), size);
}

// Returns true if PyTorch's kernel sums in 16 bits and rounds before it adds a bias. The program sums in 32 bits, and
// so does oneDNN with native instructions, where it is correct (Note [Claims]).
bool sums_in_16_bits(const Signature& s) {
  if (s.name.find("convolution") == std::string::npos || !s.mutated.empty() || s.operands.empty()) return false;
  const c10::ScalarType dtype = s.operands[0]->dtype;
  if (!c10::isReducedFloatingType(dtype)) return false;
  return !ops::is_claimed(ops::Heavy::kConvolution, ops::element_of(dtype), {ops::kAnyWork}, layout_of_stride(s));
}

bool has_kernel(const Signature& s, c10::Device device) {
  // The engine would have to run jax_call itself, and must not be entered while it runs this.
  if (!s.op || s.random || s.name == "torch_pjrt::jax_call") return false;
  return s.op->hasComputedKernelForDispatchKey(device.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA);
}

// Returns the dtype of all operands of a pointwise call if it computes in that dtype. Its kernel first converts Python
// scalars to it, which takes longer than passing a tensor of this dtype. Kernels for 16 bits take scalars as they are.
std::optional<c10::ScalarType> dtype_of_numbers(const Signature& s) {
  if (!s.op || !s.op->hasTag(at::Tag::pointwise) || s.operands.empty()) return std::nullopt;
  const c10::ScalarType dtype = s.operands[0]->dtype;
  const bool is_one = std::ranges::all_of(s.operands, [&](graph::TypePtr type) { return type->dtype == dtype; });
  return is_one && (dtype == c10::kFloat || dtype == c10::kDouble) ? std::optional(dtype) : std::nullopt;
}

// Returns a Python scalar in the dtype, rounded as kernels do: values that are too large, which Scalar refuses, become
// infinite.
at::Tensor number_of(const c10::Scalar& number, c10::ScalarType dtype) {
  c10::Scalar rounded = number;
  if (dtype == c10::kFloat) {
    rounded = number.isFloatingPoint() ? static_cast<float>(number.toDouble()) : static_cast<float>(number.toLong());
  }
  return at::detail::scalar_tensor_static(rounded, dtype, c10::kCPU);
}

// Returns true if there are so few elements that a program would save nothing notable.
bool is_of_few_elements(const Signature& s) {
  int64_t elements = 0;
  for (const auto* types : {&s.operands, &s.results}) {
    for (const graph::TypePtr type : *types) {
      if (!type || type->numel() == 0) return false;
      elements += type->numel();
    }
  }
  return !s.results.empty() && elements <= kFewElements;
}

Way chosen_way(const Signature& s, bool kernel, kernels::HostKernel host_kernel) {
  if (s.name == "pjrt::empty") return Way::kEmpty;
  if (s.name == "pjrt::convert") return Way::kConvert;
  if (s.name == "pjrt::view") return Way::kView;
  if (s.name == "pjrt::write") return Way::kWrite;
  if (host_kernel) return Way::kHostKernel;
  return kernel ? Way::kKernel : Way::kNone;
}

kernels::RandomState state_of(const Signature& signature, c10::ArrayRef<ScalarValue> scalars) {
  if (!signature.random) return {};
  const size_t count = scalars.size();
  return kernels::random_state_of(scalars[count - 2].bits, scalars[count - 1].bits);
}

c10::DispatchKey key_of(c10::DeviceType type) {
  if (type == c10::kCPU) return c10::DispatchKey::CPU;
  return type == c10::kCUDA ? c10::DispatchKey::CUDA : c10::DispatchKey::PrivateUse1;
}

// Puts the first operand's values into the result's memory, and those of others there elsewhere.
void overwrite_first(Tensors& operands, const at::Tensor& place) {
  const void* memory = place.const_data_ptr();
  if (operands[0].const_data_ptr() != memory) place.copy_(operands[0]);  // a plugin may not have aliased them
  operands[0] = place;
  for (size_t i = 1; i < operands.size(); ++i) {
    if (operands[i].const_data_ptr() == memory) operands[i] = operands[i].clone();
  }
}

struct Silent : c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
} silent;

}  // namespace

at::Tensor tensor_over(c10::Storage storage, c10::ScalarType dtype, const graph::Sizes& sizes,
                       const graph::Sizes& strides, int64_t offset) {
  const c10::DispatchKeySet key(key_of(storage.device_type()));
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), key, c10::scalarTypeToTypeMeta(dtype));
  impl->set_sizes_and_strides(sizes, strides, offset);
  return at::Tensor(std::move(impl));
}

at::Tensor empty_of(const graph::TensorType& type, c10::Device device) {
  if (device.is_cpu()) return at::detail::empty_strided_cpu(type.sizes, type.strides, type.dtype);
  return at::empty_strided(type.sizes, type.strides, at::TensorOptions(device).dtype(type.dtype));
}

at::Tensor laid_out(const at::Tensor& tensor, const graph::TensorType& type) {
  if (has_layout(tensor, type)) return tensor;
  const graph::TensorType& form = *graph::dense(&type);  // expanded elements become separate ones
  return has_layout(tensor, form) ? tensor : empty_of(form, tensor.device()).copy_(tensor);
}

bool is_alone(const at::Tensor& tensor) { return tensor.use_count() == 1 && tensor.storage().use_count() == 1; }

at::Tensor in_own_memory(at::Tensor tensor, const graph::TensorType& type) {
  if (is_alone(tensor) && tensor.storage().nbytes() == type.nbytes()) return tensor;
  return empty_of(type, tensor.device()).copy_(tensor);
}

KernelCall::KernelCall(graph::SignaturePtr signature, c10::Device device, bool is_kernel_usable, Variants variants)
    : signature_(*signature),
      device_(device),
      kernel_(is_kernel_usable && has_kernel(*signature, device)),
      fills_(is_a_fill(*signature)),
      may_fail_halfway_(device.is_cpu() && is_of_integers(*signature) && !fills_),
      widens_(device.is_cpu() && sums_in_16_bits(*signature)),
      is_small_(signature->op && is_of_few_elements(*signature)),
      is_warned_of_(signature->op && signature->op->schema().argumentIndexWithName("correction")),
      dtype_of_numbers_(device.is_cpu() ? dtype_of_numbers(*signature) : std::nullopt),
      host_kernel_(!is_kernel_usable ? nullptr
                   : device.is_cpu() ? kernels::host_kernel(*signature)
                                     : kernels::any_device_kernel(*signature)),
      index_guard_(device.is_cpu() ? index_guard(*signature) : nullptr),
      variants_(std::move(variants)) {
  if (widens_) variants_.out.reset();
  kernel_ &= host_kernel_ == nullptr;
  way_ = chosen_way(*signature, kernel_, host_kernel_);
  if (way_ == Way::kKernel) form_.emplace(*signature, device);
  written_.resize(signature->operands.size(), -1);
  for (size_t i = 0; i < signature->mutated.size(); ++i) written_[signature->mutated[i]] = static_cast<int32_t>(i);
  if (way_ == Way::kWrite) written_[0] = 0;
  if (way_ != Way::kView && way_ != Way::kWrite) return;
  for (const Parameter& parameter : signature->parameters) {
    const auto integers = [&] { return parameter.constant.toIntVector(); };
    if (parameter.name == "sizes") sizes_ = graph::Sizes(integers());
    if (parameter.name == "strides") strides_ = graph::Sizes(integers());
  }
}

void KernelCall::refuse() {
  if (!refused_.exchange(true)) ++all_refused;
}

uint64_t KernelCall::refused() { return all_refused; }

void KernelCall::lay_out(Tensors& results, size_t first) const {
  for (size_t i = first; i < results.size(); ++i) {
    const graph::TypePtr type = signature_.results[i - first];
    if (!type) continue;
    at::Tensor& tensor = results[i];
    const bool is_written = i - first >= signature_.results.size() - signature_.mutated.size();
    if (is_written && tensor.scalar_type() == type->dtype && tensor.strides() == c10::IntArrayRef(type->strides)) {
      continue;  // an operand's own memory, of which it may be a part
    }
    if (tensor.sizes() != c10::IntArrayRef(type->sizes)) {
      throw graph::InternalError("a result of other sizes on " + device_.str() + ": " + graph::to_string(*type));
    }
    tensor = laid_out(tensor, *type);
  }
}

// Returns a tensor of another type over the memory of a dense one.
at::Tensor KernelCall::over(const at::Tensor& base, c10::ScalarType dtype, int64_t offset) const {
  return tensor_over(base.storage(), dtype, sizes_, strides_, offset);
}

at::Tensor KernelCall::alias(c10::ArrayRef<ScalarValue> scalars, const at::Tensor& base) const {
  return over(base, signature_.results[0]->dtype, scalars.at(0).as_int());
}

at::Tensor KernelCall::run_write(c10::ArrayRef<ScalarValue> scalars, Tensors& operands) const {
  at::Tensor base =
      is_alone(operands[0]) ? std::move(operands[0]) : empty_of(*signature_.results[0], device_).copy_(operands[0]);
  const at::Tensor& update = operands[1];
  const at::Tensor place = over(base, update.scalar_type(), scalars.at(0).as_int());
  const std::vector<int64_t> shared = device::shared_dims(place);  // all of whose elements get the same value
  device::one_of(place, shared).copy_(device::one_of(update, shared));
  return base;
}

void KernelCall::run_kernel(c10::ArrayRef<ScalarValue> scalars, Tensors& operands, c10::ArrayRef<at::Tensor> places,
                            torch::jit::Stack& stack, Tensors& results) const {
  const Signature& s = signature_;
  const size_t first = results.size();
  if (widens_) {  // the results are rounded where they are laid out
    for (at::Tensor& operand : operands) {
      if (c10::isReducedFloatingType(operand.scalar_type())) operand = operand.to(c10::kFloat);
    }
  }
  if (variants_.in_place) overwrite_first(operands, places[0]);
  // Written operands that somebody else holds are copied first.
  Tensors written;
  written.reserve(s.mutated.size());
  for (const uint32_t operand : s.mutated) {
    const at::Tensor& given = operands[operand];
    const bool copies = may_fail_halfway_ || !is_alone(given);
    written.push_back(copies ? empty_of(*graph::dense(s.operands[operand]), device_).copy_(given) : given);
  }
  form_->push(
      stack, scalars,
      [&](uint32_t operand) {
        return writes(operand) ? written[static_cast<size_t>(written_[operand])] : operands[operand];
      },
      [&](const Parameter::Entry& entry) {
        const c10::ScalarType dtype = entry.type->dtype;
        const bool converts =
            dtype_of_numbers_ && entry.wrapped_number && (dtype == c10::kDouble || dtype == c10::kLong);
        if (!converts) return device::host_scalar(entry, scalars);
        return number_of(scalars[entry.index].scalar(), *dtype_of_numbers_);
      });
  if (variants_.out) stack.insert(stack.end(), places.begin(), places.end());
  {
    std::optional<c10::WarningUtils::WarningHandlerGuard> guard;
    if (C10_UNLIKELY(is_warned_of_)) guard.emplace(&silent);
    const auto& op = variants_.in_place ? variants_.in_place : variants_.out ? variants_.out : s.op;
    op->callBoxed(stack);
  }
  device::take_tensors(stack, results);
  // Drops results that are returned as well as written.
  const size_t fresh = s.results.size() - s.mutated.size();
  if (results.size() > first + fresh) results.resize(first + fresh);
  for (at::Tensor& tensor : written) results.push_back(std::move(tensor));
}

void KernelCall::compute(c10::ArrayRef<ScalarValue> scalars, const kernels::RandomState& key, Tensors& operands,
                         c10::ArrayRef<at::Tensor> places, torch::jit::Stack& stack, Tensors& results) const {
  const Signature& s = signature_;
  const size_t first = results.size();
  if (index_guard_) index_guard_({s, scalars, operands});
  if (way_ == Way::kHostKernel) {
    for (at::Tensor& tensor : host_kernel_({s, scalars, operands, key})) results.push_back(std::move(tensor));
  } else if (way_ == Way::kKernel) {
    run_kernel(scalars, operands, places, stack, results);
  } else {
    throw graph::InternalError(s.name + " has no kernel on " + device_.str());
  }
  if (results.size() != first + s.results.size()) {
    throw graph::InternalError(s.name + " gave another number of results on " + device_.str());
  }
}

void KernelCall::run(c10::ArrayRef<ScalarValue> scalars, Tensors& operands, torch::jit::Stack& stack,
                     Tensors& results) const {
  const size_t first = results.size();
  switch (way_) {
    case Way::kEmpty: results.push_back(empty_of(*signature_.results[0], device_).zero_()); return;
    case Way::kConvert: results.push_back(operands[0]); break;
    case Way::kView: results.push_back(alias(scalars, operands[0])); break;
    case Way::kWrite: results.push_back(run_write(scalars, operands)); return;
    default: compute(scalars, state_of(signature_, scalars), operands, {}, stack, results);
  }
  lay_out(results, first);
}

}  // namespace tpjrt::engine
