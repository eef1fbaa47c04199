// Calling shape functions from below every other dispatch key.
#include "device/meta.h"

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_permuted.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "device/factory.h"
#include "device/modes.h"
#include "device/storage.h"
#include "graph/partner.h"

namespace tpjrt::device {

struct BelowEverything::State {
  c10::impl::ExcludeDispatchKeyGuard above{
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
      c10::DispatchKeySet({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchVmapMode,
                           c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                           c10::DispatchKey::FuncTorchDynamicLayerBackMode, c10::DispatchKey::Functionalize,
                           c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
                           c10::DispatchKey::PythonDispatcher})};
  at::impl::TorchFunctionDisabledState torch_function = at::impl::PythonTorchFunctionTLS::get_disabled_state();
};

BelowEverything::BelowEverything() : state_(new State) {
  // A user's torch function mode (torch.device("pjrt") as a context, say) must not see the kernels' own calls.
  at::impl::PythonTorchFunctionTLS::set_disabled_state(at::impl::TorchFunctionDisabledState::ALL_DISABLED);
}

BelowEverything::~BelowEverything() {
  at::impl::PythonTorchFunctionTLS::set_disabled_state(state_->torch_function);
  delete state_;
}

namespace {

// A tensor of one number on the CPU, among tensors of the device.
at::Tensor host_number(const graph::Parameter::Entry& entry, c10::ArrayRef<graph::Number> numbers) {
  return at::scalar_tensor(numbers[entry.index].scalar(), at::TensorOptions(c10::kCPU).dtype(entry.type->dtype));
}

torch::jit::Stack make_stack(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers,
                             const std::function<at::Tensor(uint32_t operand)>& tensor,
                             const std::function<at::Tensor(const graph::Parameter::Entry& entry)>& number_tensor) {
  using graph::Parameter;
  using Entry = Parameter::Entry;
  const auto entry_tensor = [&](const Entry& entry) -> at::Tensor {
    switch (entry.source) {
      case Entry::Source::kUndefined: return {};
      case Entry::Source::kOperand: return tensor(entry.index);
      case Entry::Source::kNumber: break;
    }
    at::Tensor number = number_tensor(entry);
    if (entry.wrapped_number) number.unsafeGetTensorImpl()->set_wrapped_number(true);
    return number;
  };
  const auto& declared = signature.op->schema().arguments();
  torch::jit::Stack stack;
  for (size_t i = 0; i < signature.parameters.size(); ++i) {
    const Parameter& parameter = signature.parameters[i];
    switch (parameter.kind) {
      case Parameter::Kind::kConstant: stack.push_back(parameter.constant); break;
      case Parameter::Kind::kTensor: {
        const Entry& entry = parameter.entries.at(0);
        const bool none =
            entry.source == Entry::Source::kUndefined && declared[i].type()->kind() == c10::TypeKind::OptionalType;
        stack.push_back(none ? c10::IValue() : c10::IValue(entry_tensor(entry)));
        break;
      }
      case Parameter::Kind::kTensorList: {
        c10::TypePtr type = declared[i].type();
        if (const auto* optional = type->castRaw<c10::OptionalType>()) type = optional->getElementType();
        const c10::TypePtr element = type->expectRef<c10::ListType>().getElementType();
        const bool optional = element->kind() == c10::TypeKind::OptionalType;
        c10::impl::GenericList list(element);
        for (const Entry& entry : parameter.entries) {
          if (entry.source == Entry::Source::kUndefined && optional) {
            list.push_back(c10::IValue());
          } else {
            list.push_back(entry_tensor(entry));
          }
        }
        stack.emplace_back(std::move(list));
        break;
      }
      case Parameter::Kind::kNumber: stack.emplace_back(numbers[parameter.first].scalar()); break;
      case Parameter::Kind::kNumberList: {
        c10::impl::GenericList list(c10::NumberType::get());
        for (uint32_t k = 0; k < parameter.count; ++k) list.push_back(numbers[parameter.first + k].scalar());
        stack.emplace_back(std::move(list));
        break;
      }
    }
  }
  return stack;
}

}  // namespace

torch::jit::Stack make_stack(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers,
                             const std::function<at::Tensor(uint32_t operand)>& tensor) {
  return make_stack(signature, numbers, tensor, [&](const auto& entry) { return host_number(entry, numbers); });
}

std::vector<at::Tensor> tensors_of(const torch::jit::Stack& returned) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : returned) {
    if (value.isTensor()) {
      tensors.push_back(value.toTensor());
    } else if (value.isTensorList()) {
      for (at::Tensor& tensor : value.toTensorVector()) tensors.push_back(std::move(tensor));
    } else if (value.isNone()) {
      tensors.emplace_back();
    }
  }
  return tensors;
}

namespace {

// A composite kernel called more than its own `out=`: the op is not structured, or this call's result depends on data.
struct NotStructured : std::exception {};

at::Tensor placeholder(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype,
                       std::optional<c10::DeviceIndex> device) {
  if (!device) return at::empty_strided(sizes, strides, at::TensorOptions(c10::kMeta).dtype(dtype));
  return empty_strided(sizes, strides, dtype, std::nullopt, c10::Device(kPjrt, *device), std::nullopt);
}

at::Tensor placeholder(graph::TypePtr type, std::optional<c10::DeviceIndex> device) {
  return placeholder(type->sizes, type->strides, type->dtype, device);
}

// Which operand the parameter is, if it is an `out=`.
std::optional<uint32_t> out_operand(const graph::Signature& signature, size_t i) {
  const graph::Parameter& parameter = signature.parameters[i];
  if (!signature.op->schema().arguments()[i].is_out() || parameter.kind != graph::Parameter::Kind::kTensor) return {};
  return parameter.entries.at(0).index;
}

// How shape functions are called.
struct Asking {
  bool numbers_on_host;
  // An `out=` has no elements, so it is resized silently. Otherwise PyTorch's Python functions warn of another size, garbled
  // ("{str(shape)}") and in a first call only; the recorder does it.
  bool outs_are_empty;
};

// With `device`, placeholders are of this device, else Meta's.
Outline arguments_of(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers,
                     std::optional<c10::DeviceIndex> device, Asking asking) {
  using Entry = graph::Parameter::Entry;
  Outline outline;
  for (const graph::TypePtr type : signature.operands) outline.operands.push_back(placeholder(type, device));
  for (size_t i = 0; i < signature.parameters.size() && asking.outs_are_empty; ++i) {
    if (const std::optional<uint32_t> out = out_operand(signature, i))
      outline.operands.at(*out) = placeholder({0}, {1}, signature.operands[*out]->dtype, device);
  }
  for (const graph::Parameter& parameter : signature.parameters) {
    for (const Entry& entry : parameter.entries) {
      if (entry.wrapped_number && entry.source == Entry::Source::kOperand)
        outline.operands[entry.index].unsafeGetTensorImpl()->set_wrapped_number(true);
    }
  }
  outline.results = make_stack(
      signature, numbers, [&](uint32_t operand) { return outline.operands[operand]; },
      [&](const Entry& entry) {
        return asking.numbers_on_host ? host_number(entry, numbers) : placeholder(entry.type, device);
      });
  return outline;
}

// Where a Meta kernel leaves open what the CPU's kernel gives, or says something else.
using Correction = void (*)(const graph::Signature& signature, Outline& outline);

void lay_out(Outline& outline, at::MemoryFormat format) {
  const at::Tensor result = outline.results.at(0).toTensor();
  outline.results[0] = at::empty_like(result, result.options(), format);
}

// In the format that the input has, whatever else its strides are.
void lay_out_as_suggested(const graph::Signature& /*signature*/, Outline& outline) {
  lay_out(outline, outline.operands.at(0).suggest_memory_format());
}

void lay_out_contiguous(const graph::Signature& /*signature*/, Outline& outline) {
  for (c10::IValue& result : outline.results) {
    if (!result.isTensor() || !result.toTensor().defined()) continue;
    const at::Tensor tensor = result.toTensor();
    result = at::empty_like(tensor, tensor.options(), at::MemoryFormat::Contiguous);
  }
}

// The gradient of an input has the input's format, whatever that of the result's gradient is.
void lay_out_gradient_as_input(const graph::Signature& /*signature*/, Outline& outline) {
  if (outline.results.at(0).isTensor() && outline.results[0].toTensor().defined())
    lay_out(outline, outline.operands.at(1).suggest_memory_format());
}

// Over no dimensions it is that of the flat tensor, else of pieces that are put together.
void lay_out_roll(const graph::Signature& signature, Outline& outline) {
  if (outline.operands.at(0).numel() == 0) return;
  const bool flat = signature.parameters.at(2).constant.toIntVector().empty();
  lay_out(outline, flat ? at::MemoryFormat::Contiguous : outline.operands[0].suggest_memory_format());
}

// The memory format is left to the backend. Here it is channels last where the input or the weight is, as with oneDNN and
// cuDNN.
void lay_out_convolution(const graph::Signature& /*signature*/, Outline& outline) {
  const int64_t rank = outline.results.at(0).toTensor().dim();
  for (size_t i = 0; i < 2; ++i) {
    const at::MemoryFormat format = outline.operands.at(i).suggest_memory_format();
    if (format != at::MemoryFormat::Contiguous && rank == outline.operands[i].dim()) return lay_out(outline, format);
  }
}

// Without a batch of heads, or with features that don't lie side by side, it is not fused but made of products of matrices.
void lay_out_attention(const graph::Signature& /*signature*/, Outline& outline) {
  const auto is_fused = [](const at::Tensor& x) { return x.dim() == 4 && (x.stride(3) == 1 || x.size(3) == 1); };
  for (size_t i = 0; i < 3; ++i) {
    if (!is_fused(outline.operands.at(i))) return lay_out(outline, at::MemoryFormat::Contiguous);
  }
}

// The dimensions as MKL's transforms have them in memory, the outermost first: the batch, then what is transformed, each in
// the operand's order, but the dimension that is halved or made whole is the innermost.
at::Tensor transformed(const at::Tensor& x, at::IntArrayRef dims, bool last_stays, at::IntArrayRef sizes,
                       const at::TensorOptions& options) {
  const auto farther = [&](int64_t a, int64_t b) { return x.stride(a) > x.stride(b); };
  std::vector<int64_t> order(static_cast<size_t>(x.dim()));
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](int64_t dim) { return std::ranges::find(dims, dim) != dims.end(); });
  std::ranges::stable_sort(order, farther);
  std::vector<int64_t> inner = dims.vec();
  std::stable_sort(inner.begin(), inner.end() - static_cast<int64_t>(last_stays), farther);
  order.insert(order.end(), inner.begin(), inner.end());
  return at::empty_permuted(sizes, order, options);
}

// PyTorch's Meta kernels take a Meta tensor for CUDA's.
void lay_out_fourier_transform(const graph::Signature& signature, Outline& outline) {
  at::Tensor x = outline.operands.at(0);
  const at::Tensor result = outline.results.at(0).toTensor();
  std::vector<int64_t> dims;
  for (const graph::Parameter& parameter : signature.parameters) {
    if (parameter.name == "dim") dims = parameter.constant.toIntVector();
  }
  if (!at::hasMKL() || dims.empty()) return;
  const bool gives_real = signature.name == "aten::_fft_c2r";
  if (gives_real && dims.size() > 1) {  // the last dimension comes after the others
    const int64_t last = dims.back();
    dims.pop_back();
    x = transformed(x, dims, false, x.sizes(), x.options());
    dims = {last};
  }
  outline.results[0] = transformed(x, dims, signature.name != "aten::_fft_c2c", result.sizes(), result.options());
}

bool trains(const graph::Signature& signature) {
  for (const graph::Parameter& parameter : signature.parameters) {
    if (parameter.name == "training") return parameter.constant.toBool();
  }
  return signature.name.starts_with("aten::_batch_norm_with_update");
}

// In evaluation no statistics are saved.
void correct_batch_norm(const graph::Signature& signature, Outline& outline) {
  lay_out_as_suggested(signature, outline);
  if (trains(signature)) return;
  for (const size_t i : {1, 2}) outline.results.at(i) = at::empty({0}, outline.results[i].toTensor().options());
}

// The last two results are the new running statistics, in their own dtype.
void correct_functional_batch_norm(const graph::Signature& signature, Outline& outline) {
  correct_batch_norm(signature, outline);
  size_t result = outline.results.size() - 2;
  for (const graph::Parameter& parameter : signature.parameters) {
    if (parameter.name != "running_mean" && parameter.name != "running_var") continue;
    outline.results.at(result++) = at::empty_like(outline.operands.at(parameter.entries.at(0).index));
  }
}

// The sum over an empty list of dimensions is over all, as with aten::sum.
void sum_over_all(const graph::Signature& signature, Outline& outline) {
  const auto& parameters = signature.parameters;
  const c10::IValue &dim = parameters.at(1).constant, &keepdim = parameters.at(2).constant;
  if (!dim.isIntList() || !dim.toIntVector().empty()) return;
  const at::Tensor self = outline.operands.at(0);
  const std::vector<int64_t> ones(keepdim.toBool() ? static_cast<size_t>(self.dim()) : 0, 1);
  outline.results.at(0) = outline.results[0].toTensor().new_empty(ones);
}

// In the order of both operands, as elementwise results lie.
void lay_out_elementwise(const graph::Signature& /*signature*/, Outline& outline) {
  if (outline.operands.size() != 2) return;
  const at::Tensor result = outline.results.at(0).toTensor();
  outline.results[0] = at::empty_like(at::add(outline.operands[0], outline.operands[1]), result.options());
}

// The CPU's kernel goes by way of a complex result that it lays out anew.
void lay_out_angle(const graph::Signature& /*signature*/, Outline& outline) {
  if (outline.operands.at(0).is_complex()) lay_out(outline, at::MemoryFormat::Contiguous);
}

// As the CPU's kernels, which allocate the result like the first operand and write over it.
void keep_first_dtype(const graph::Signature& /*signature*/, Outline& outline) {
  const at::Tensor result = outline.results.at(0).toTensor();
  outline.results[0] = at::empty_like(result, result.options().dtype(outline.operands.at(0).scalar_type()));
}

void give_one(const graph::Signature& /*signature*/, Outline& outline) {
  outline.results.at(0) = outline.results[0].toTensor().new_empty({});
}

void correct(const graph::Signature& signature, Outline& outline) {
  static const auto& corrections = *new std::unordered_map<std::string_view, Correction>{
      {"aten::convolution", lay_out_convolution},
      {"aten::_scaled_dot_product_fused_attention_overrideable", lay_out_attention},
      {"aten::_fft_r2c", lay_out_fourier_transform},
      {"aten::_fft_c2c", lay_out_fourier_transform},
      {"aten::_fft_c2r", lay_out_fourier_transform},
      {"aten::native_batch_norm", correct_batch_norm},
      {"aten::_native_batch_norm_legit", correct_batch_norm},
      {"aten::_native_batch_norm_legit_functional", correct_functional_batch_norm},
      {"aten::_native_batch_norm_legit_no_training", correct_batch_norm},
      {"aten::_batch_norm_no_update", correct_batch_norm},
      {"aten::_batch_norm_with_update", lay_out_as_suggested},
      {"aten::_batch_norm_with_update_functional", correct_functional_batch_norm},
      {"aten::_native_batch_norm_legit.no_stats", lay_out_as_suggested},
      {"aten::max_unpool2d", lay_out_as_suggested},
      {"aten::reflection_pad2d", lay_out_as_suggested},
      {"aten::reflection_pad3d", lay_out_as_suggested},
      {"aten::replication_pad2d", lay_out_as_suggested},
      {"aten::replication_pad3d", lay_out_as_suggested},
      {"aten::pixel_shuffle", lay_out_as_suggested},
      {"aten::pixel_unshuffle", lay_out_as_suggested},
      {"aten::channel_shuffle", lay_out_as_suggested},
      {"aten::native_channel_shuffle", lay_out_as_suggested},
      {"aten::roll", lay_out_roll},
      {"aten::log_sigmoid_forward", lay_out_contiguous},
      {"aten::masked_fill.Scalar", lay_out_contiguous},
      {"aten::masked_fill.Tensor", lay_out_contiguous},
      {"aten::native_group_norm_backward", lay_out_gradient_as_input},
      {"aten::native_batch_norm_backward", lay_out_gradient_as_input},
      {"aten::replication_pad2d_backward", lay_out_gradient_as_input},
      {"aten::replication_pad3d_backward", lay_out_gradient_as_input},
      {"aten::hardswish_backward", lay_out_elementwise},
      {"aten::hardtanh_backward", lay_out_elementwise},
      {"aten::floor_divide", lay_out_elementwise},
      {"aten::angle", lay_out_angle},
      {"aten::huber_loss", keep_first_dtype},
      {"aten::soft_margin_loss", keep_first_dtype},
      {"aten::binary_cross_entropy", keep_first_dtype},
      {"aten::normal.Tensor_Tensor", keep_first_dtype},
      {"aten::nansum", sum_over_all},
      {"aten::isin.Scalar_Tensor", give_one},
  };
  if (const auto found = corrections.find(signature.name); found != corrections.end())
    found->second(signature, outline);
}

// A call on placeholders, of this device or Meta's.
using MakeCall = std::function<Outline(std::optional<c10::DeviceIndex> device)>;

Outline run_shape_function(const c10::OperatorHandle& op, c10::DeviceIndex device, const MakeCall& call_on) {
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional)) {
    const Outlining outlining(op);
    Outline outline = call_on(device);
    try {
      // Any backend key without a kernel of its own: the composite is what it gets.
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::IPU), &outline.results);
      return outline;
    } catch (const NotStructured&) {
    }
  }
  Outline outline = call_on(std::nullopt);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &outline.results);
  return outline;
}

// The `out=` arguments that a shape function resized, in the order of the results; empty for one that kept its sizes.
std::vector<std::optional<uint32_t>> resized_outs(const graph::Signature& signature, const Outline& outline) {
  std::vector<std::optional<uint32_t>> resized;
  for (size_t i = 0; i < signature.parameters.size(); ++i) {
    const std::optional<uint32_t> operand = out_operand(signature, i);
    if (!operand) continue;
    const bool fits = outline.operands.at(*operand).sizes() == c10::IntArrayRef(signature.operands[*operand]->sizes);
    resized.push_back(fits ? std::nullopt : operand);
  }
  return resized;
}

// Meta kernels in Python leave an `out=` that they resize contiguous. TensorIterator lays it out as it does a new result.
void lay_out_resized(const graph::Signature& signature, const MakeCall& call_on, Outline& outline) {
  if (!signature.op->schema().is_mutable()) return;
  const std::vector<std::optional<uint32_t>> outs = resized_outs(signature, outline);
  if (std::none_of(outs.begin(), outs.end(), [](const auto& out) { return out.has_value(); })) return;
  const auto partner = graph::functional_partner(*signature.op);
  if (!partner || !partner->op.hasTag(at::Tag::pointwise)) return;
  const Outline functional = run_shape_function(partner->op, signature.device, [&](auto device) {
    Outline given = call_on(device);
    torch::jit::Stack call;
    for (size_t i = 0; i < partner->arguments.size(); ++i) {
      const int64_t source = partner->arguments[i];
      const auto& fallback = partner->op.schema().arguments()[i].default_value();
      call.push_back(source >= 0 ? given.results.at(static_cast<size_t>(source)) : fallback.value_or(c10::IValue()));
    }
    given.results = std::move(call);
    return given;
  });
  const std::vector<at::Tensor> results = tensors_of(functional.results);
  for (size_t i = 0; i < outs.size() && i < results.size(); ++i) {
    if (!outs[i]) continue;
    outline.operands[*outs[i]].unsafeGetTensorImpl()->set_sizes_and_strides(results[i].sizes(), results[i].strides());
  }
}

Outline outline(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers, Asking asking) {
  const MakeCall call_on = [&](std::optional<c10::DeviceIndex> device) {
    return arguments_of(signature, numbers, device, asking);
  };
  Outline outline = run_shape_function(*signature.op, signature.device, call_on);
  lay_out_resized(signature, call_on, outline);
  correct(signature, outline);
  return outline;
}

bool has_outs(const graph::Signature& signature) {
  for (size_t i = 0; i < signature.parameters.size(); ++i) {
    if (out_operand(signature, i)) return true;
  }
  return false;
}

bool has_host_numbers(const graph::Signature& signature) {
  using Entry = graph::Parameter::Entry;
  return std::any_of(signature.parameters.begin(), signature.parameters.end(), [](const graph::Parameter& parameter) {
    return std::any_of(parameter.entries.begin(), parameter.entries.end(),
                       [](const Entry& entry) { return entry.source == Entry::Source::kNumber; });
  });
}

}  // namespace

Outline outline(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers) {
  BelowEverything guard;
  // Some shape functions let no number of the CPU stand beside the device's tensors, others read it. Some take an `out=` of
  // the right size only.
  std::vector<Asking> ways = {{.numbers_on_host = true, .outs_are_empty = false}};
  if (has_host_numbers(signature)) ways.push_back({.numbers_on_host = false, .outs_are_empty = false});
  if (has_outs(signature)) ways.insert(ways.begin(), {.numbers_on_host = true, .outs_are_empty = true});
  std::exception_ptr error;
  for (const Asking way : ways) {
    try {
      return outline(signature, numbers, way);
    } catch (...) {
      if (!error && !way.outs_are_empty) error = std::current_exception();
    }
  }
  std::rethrow_exception(error);
}

namespace {
class Unwarned final : public c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};
}  // namespace

void check_out_dtypes(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers,
                      c10::ArrayRef<c10::ScalarType> written) {
  const auto run = [&](bool as_given) {
    torch::jit::Stack stack = make_stack(signature, numbers, [&](uint32_t operand) {
      const graph::TypePtr type = signature.operands[operand];
      c10::ScalarType dtype = type->dtype;
      for (size_t i = 0; i < signature.mutated.size() && !as_given; ++i) {
        if (signature.mutated[i] == operand) dtype = written[i];
      }
      return at::ones(std::vector<int64_t>(type->sizes.size(), 1), at::TensorOptions(c10::kCPU).dtype(dtype));
    });
    BelowEverything guard;
    Unwarned unwarned;  // of the sizes, say, which are not the user's
    const c10::WarningUtils::WarningHandlerGuard guard_of_warnings(&unwarned);
    signature.op->callBoxed(stack);
  };
  try {
    run(false);
  } catch (const std::exception&) {
    return;
  }
  run(true);
}

void outline_inner(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto& schema = op.schema();
  std::string_view outer = outlined()->schema().name();
  if (outer.ends_with('_')) outer.remove_suffix(1);
  if (schema.name() != outer) throw NotStructured();
  torch::jit::Stack outputs;
  const size_t first = stack.size() - schema.arguments().size();
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (schema.arguments()[i].is_out()) outputs.push_back(std::move(stack[first + i]));
  }
  if (outputs.size() != schema.returns().size()) throw NotStructured();
  stack.resize(first);
  for (c10::IValue& output : outputs) stack.push_back(std::move(output));
}

}  // namespace tpjrt::device
