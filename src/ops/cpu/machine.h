// What the libraries that PyTorch has can do on this machine, as far as they are let (ONEDNN_MAX_CPU_ISA).
#pragma once

namespace tpjrt::ops {

struct Machine {
  bool bf16 = false;       // oneDNN multiplies bfloat16: from AVX-512 on, or AVX2 with instructions for it
  bool fp16 = false;       // and float16: AVX512-FP16, or AVX2 with instructions for it
  bool bf16_dots = false;  // by instructions of its own: AVX512-BF16, or tiles (AMX)
  bool avx2 = false;  // or more of these: what this project's own kernel needs (src/kernels/cpu/products/few_rows.h)
  bool vnni = false;  // sums of products of int8 that are exact; without it pairs of products of large ones are cut off

  bool takes_all = false;  // TORCH_PJRT_KERNELS=all: whatever they can do is theirs, faster or not

  // Asked once.
  static const Machine& here();
};

}  // namespace tpjrt::ops
