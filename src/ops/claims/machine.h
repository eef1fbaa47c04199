// Capabilities of PyTorch's CPU libraries on this machine, as far as ONEDNN_MAX_CPU_ISA permits them.
#pragma once

namespace tpjrt::ops {

struct Machine {
  bool bf16 = false;       // oneDNN multiplies bfloat16: from AVX-512 on, or AVX2 with instructions for it
  bool fp16 = false;       // oneDNN multiplies float16: AVX512-FP16, or AVX2 with instructions for it
  bool bf16_dots = false;  // oneDNN multiplies bfloat16 with dedicated instructions: AVX512-BF16, or tiles (AMX)
  bool avx2 = false;  // AVX2 or more, which this project's own kernel needs (src/kernels/cpu/products/skinny_gemm.h)
  bool vnni = false;  // sums of int8 products are exact; without it, sums of pairs of large products saturate

  bool takes_all = false;  // TORCH_PJRT_KERNELS=all: the libraries do whatever they can, faster or not

  // Returns this machine's capabilities, which are detected once.
  static const Machine& here();
};

}  // namespace tpjrt::ops
