// torch.autocast("pjrt"): PyTorch's own lists of ops, for this device's autocast key.
#include <ATen/autocast_mode.h>

namespace tpjrt::device::autocast {

using namespace at;  // the lists below are written in terms of at::
using at::autocast::CastPolicy;

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define TPJRT_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(TPJRT_LOWER_PRECISION)
#undef TPJRT_LOWER_PRECISION
#define TPJRT_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(TPJRT_FP32)
#undef TPJRT_FP32
#define TPJRT_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(TPJRT_FP32_SET_OPT_DTYPE)
#undef TPJRT_FP32_SET_OPT_DTYPE
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
#define TPJRT_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(TPJRT_PROMOTE)
#undef TPJRT_PROMOTE
}

}  // namespace tpjrt::device::autocast
