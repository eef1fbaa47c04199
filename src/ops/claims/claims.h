// Who computes a heavy op in programs on the CPU: XLA's own code, a library, or this project's kernel.
//
// Note [Claims]: a library computes some calls many times faster than XLA:CPU and others slower, and a call of it costs
// some 10 µs and fuses with nothing. One table (claims.inc) says by op, dtype, instruction set, layout and size who
// does what. Rules of programs, the interpreter, frozen functions and files in export ask it. A choice depends on the
// call and the machine, never on a clock. Times are in docs/performance.md.
//
// Capabilities of PyTorch's CPU libraries on this machine, as far as ONEDNN_MAX_CPU_ISA permits them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "hlo/type.h"

namespace tpjrt::ops {

struct Machine {
  bool bf16 = false;       // oneDNN multiplies bfloat16: from AVX-512 on, or AVX2 with instructions for it
  bool fp16 = false;       // oneDNN multiplies float16: AVX512-FP16, or AVX2 with instructions for it
  bool bf16_dots = false;  // oneDNN multiplies bfloat16 with dedicated instructions: AVX512-BF16, or tiles (AMX)
  bool avx2 = false;  // AVX2 or more, which this project's own kernel needs (src/kernels/cpu/products/skinny_gemm.h)
  bool vnni = false;  // sums of int8 products are exact; without it, sums of pairs of large products saturate

  bool takes_all = false;  // TORCH_PJRT_LIBRARY_KERNELS=all: the libraries do whatever they can, faster or not

  // Returns this machine's capabilities, which are detected once.
  static const Machine& here();
};

using hlo::ElementType;

enum class Heavy : uint8_t {
  kProduct,              // of matrices or batches of them; work: multiplications
  kProductOfBytes,       // of floats with int8 or float8_e4m3fn numbers that were converted to them; likewise
  kConvolution,          // its result, or the gradient of its input; work: multiplications
  kConvolutionOfWeight,  // the gradient of its weight; work: multiplications
  kFrozenConvolution,    // with a weight that is kept in the library's layout; work: multiplications
  kFileConvolution,      // the same in a file, by the library of src/onednn
  kFileProduct,          // rows times a frozen matrix in a file, by that library; work: multiplications
  kAttention,            // work: multiplications of the scores
  kAttentionBackward,    // work: likewise
  kRecurrentLayer,       // and its backward; work: a step's multiplications for each gate
  kBatchNorm,            // in training, and its backward; work: elements
  kRows,                 // softmax, and gradients of softmax and layer norm; work: elements, columns: a row's
  kLayerNorm,            // likewise
  kReducedRows,          // sums, means and extremes of rows; likewise
  kWrite,                // of a small part of a tensor that XLA would copy; work: the tensor's elements,
                         // columns: the times that the tensor is larger than the part
};

enum class Who : uint8_t {
  kXla,
  kAten,    // PyTorch's kernel, which calls oneDNN or MKL for what they know
  kOneDnn,  // oneDNN where PyTorch would call MKL, or in a library without PyTorch
  kSkinny,  // src/kernels/cpu/products/skinny_gemm.h
};

// Properties of a call's layout. A row of the table lists all that it permits.
enum Layout : uint8_t {
  kStraight = 1,         // row-major, or nothing special
  kFirstTransposed = 2,  // the first operand of a product alone
  kTransposed = 4,       // the second operand of a product
  kImagesLast = 8,       // NHWC
  kGrouped = 16,         // a convolution with groups of several channels
  kStridedToFew = 32,    // a convolution with a stride from, or to, one or two elements of the last dimension
};

// Returns the layout of a convolution by the stride and size of its last dimension. oneDNN's tiled kernels read out of
// bounds if that is strided to one element.
constexpr Layout layout_of_stride(int64_t stride, int64_t size) {
  return stride != 1 && size <= 2 ? kStridedToFew : kStraight;
}

// Sizes that an op doesn't have are 1.
struct Size {
  int64_t work;
  int64_t rows = 1, columns = 1;  // of the result
  int64_t batch = 1;
};
inline constexpr int64_t kAnyWork = int64_t{1} << 62;  // asks whether any call is claimed

// Returns who computes the call. TORCH_PJRT_LIBRARY_KERNELS=all: a library, if it can.
Who who_computes(Heavy op, ElementType element, const Size& size, uint8_t layout = kStraight);
inline bool is_claimed(Heavy op, ElementType element, const Size& size, uint8_t layout = kStraight) {
  return who_computes(op, element, size, layout) != Who::kXla;
}
// Returns the least work of the op's first claim, whatever the dtype and machine.
int64_t least_work(Heavy op);
// Returns the op of this name: "convolution", "frozen_convolution", "file_convolution" or "file_product".
std::optional<Heavy> heavy_of(std::string_view name);

}  // namespace tpjrt::ops
