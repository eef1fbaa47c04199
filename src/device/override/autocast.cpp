// PyTorch's own lists of ops, for this device's autocast key.
#include "device/override/autocast.h"

#include <ATen/Operators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <span>
#include <type_traits>
#include <utility>

namespace tpjrt::device::autocast {

namespace {

using at::autocast::CastPolicy;
using c10::DispatchKey;
using c10::DispatchKeySet;

constexpr c10::DeviceType kDevice = c10::DeviceType::PrivateUse1;
const DispatchKeySet kBelow(DispatchKeySet::FULL_AFTER, DispatchKey::AutocastPrivateUse1);

thread_local bool follows_cpu = false;

bool is_on_cpus_list(const c10::OperatorName& name) {
  const auto op = c10::Dispatcher::singleton().findOp(name);
  return op && op->hasKernelForDispatchKey(DispatchKey::AutocastCPU);
}

// Casts an op of PyTorch's lists by `policy`; where this thread follows the CPU's lists, only if that has the op.
template <CastPolicy policy, class Op, auto* redispatched = &Op::call, class Schema = typename Op::schema>
struct Listed;

template <CastPolicy policy, class Op, auto* redispatched, class Ret, class... Args>
struct Listed<policy, Op, redispatched, Ret(Args...)> {
  template <CastPolicy by>
  using Wrap = typename at::autocast::WrapFunction<by, kDevice, Ret(Args...),
                                                   std::remove_pointer_t<decltype(redispatched)>, redispatched>::type;

  static Ret call(DispatchKeySet keys, Args... args) {
    if (follows_cpu) {
      static const bool on_cpu = is_on_cpus_list({Op::name, Op::overload_name});
      if (!on_cpu) return Op::redispatch(keys & kBelow, args...);
      if constexpr (policy == CastPolicy::promote) return Wrap<CastPolicy::fp32>::call(args...);  // grid_sampler
    }
    return Wrap<policy>::call(args...);
  }
};

// Casts an op that only the CPU's list has, where this thread follows it: convolutions and the like to autocast's dtype,
// `stack`, `cat` and `index_copy` to the widest dtype of their arguments, others to float32.
void listed_on_cpu(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
  const std::string& name = op.schema().name();
  if (!follows_cpu) return op.redispatchBoxed(keys & kBelow, stack);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(DispatchKey::AutocastPrivateUse1);
  const std::span<c10::IValue> arguments(stack->end() - op.schema().arguments().size(), stack->end());
  const bool promotes = name == "aten::cat" || name == "aten::stack" || name == "aten::index_copy";
  const bool lower = name.starts_with("aten::conv") || name == "aten::_addmm_activation" ||
                     name == "aten::_native_multi_head_attention" || name == "aten::mkldnn_rnn_layer";
  at::ScalarType dtype =
      promotes || lower ? at::autocast::get_lower_precision_fp_from_device_type(kDevice) : at::kFloat;
  if (promotes) {
    for (const c10::IValue& value : arguments) {
      if (value.isTensor()) dtype = at::autocast::prioritize(dtype, value.toTensor(), kDevice);
      if (value.isTensorList()) dtype = at::autocast::prioritize(dtype, value.toTensorVector(), kDevice);
    }
  }
  for (c10::IValue& value : arguments) {
    if (value.isTensor() && value.toTensor().defined()) {
      value = at::autocast::cached_cast(dtype, value.toTensor(), kDevice);
    } else if (value.isTensorList()) {
      value = at::autocast::cached_cast(dtype, value.toTensorVector(), kDevice);
    }
  }
  op.callBoxed(stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  const auto add = [&m]<class Op>(Op, torch::CppFunction&& kernel) {
    m.impl(c10::toString(c10::OperatorName(Op::name, Op::overload_name)).c_str(), std::move(kernel));
  };
#define TPJRT_OF(POLICY, OP, ...) \
  add(OP(), torch::CppFunction(TORCH_FN((Listed<CastPolicy::POLICY, OP __VA_OPT__(, ) __VA_ARGS__>::call))));
#define TPJRT_CHOSEN(_1, _2, CHOSEN, ...) CHOSEN
#define TPJRT_OP(...) TPJRT_CHOSEN(__VA_ARGS__, ATEN_OP2, ATEN_OP)(__VA_ARGS__)
#define TPJRT_LOWER_PRECISION(...) TPJRT_OF(lower_precision_fp, TPJRT_OP(__VA_ARGS__))
  AT_FORALL_LOWER_PRECISION_FP(TPJRT_LOWER_PRECISION)
#undef TPJRT_LOWER_PRECISION
#define TPJRT_FP32(...) TPJRT_OF(fp32, TPJRT_OP(__VA_ARGS__))
  AT_FORALL_FP32(TPJRT_FP32)
#undef TPJRT_FP32
#define TPJRT_FP32_SET_OPT_DTYPE(...) TPJRT_OF(fp32_set_opt_dtype, TPJRT_OP(__VA_ARGS__))
  AT_FORALL_FP32_SET_OPT_DTYPE(TPJRT_FP32_SET_OPT_DTYPE)
#undef TPJRT_FP32_SET_OPT_DTYPE
#define TPJRT_PROMOTE(...) TPJRT_OF(promote, TPJRT_OP(__VA_ARGS__))
  AT_FORALL_PROMOTE(TPJRT_PROMOTE)
#undef TPJRT_PROMOTE
  TPJRT_OF(fp32_append_dtype, at::_ops::norm_Scalar, &at::_ops::norm_ScalarOpt_dtype::call)
  TPJRT_OF(fp32_append_dtype, at::_ops::norm_ScalarOpt_dim, &at::_ops::norm_ScalarOpt_dim_dtype::call)
#undef TPJRT_OP
#undef TPJRT_CHOSEN
#undef TPJRT_OF
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (!name.name.starts_with("aten::") || !is_on_cpus_list(name)) continue;
    if (op->hasKernelForDispatchKey(DispatchKey::AutocastPrivateUse1)) continue;
    m.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&listed_on_cpu>());
  }
}

}  // namespace tpjrt::device::autocast

bool tpjrt::device::follow_cpus_autocast(bool follow) { return std::exchange(autocast::follows_cpu, follow); }
