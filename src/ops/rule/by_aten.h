// When programs on the CPU call PyTorch's kernels for an op, by its operands; and such calls, as rules emit them.
#pragma once

#include <ATen/core/ivalue.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <optional>

#include "ops/rule/emit.h"
#include "ops/rule/rules.h"

namespace tpjrt::kernels {
struct KeptCall;
}

namespace tpjrt::ops {

// Ops for which programs on the CPU call PyTorch's kernels from a number of elements on, depending on the operands'
// dtypes.

// Returns the number of bfloat16 elements; 0 if an operand other than indices has another dtype.
inline int64_t elements_of_bfloat16(const std::vector<graph::TypePtr>& operands) {
  int64_t elements = 0;
  for (const graph::TypePtr type : operands) {
    if (type->dtype == c10::kBFloat16) {
      elements += type->numel();
    } else if (!c10::isIntegralType(type->dtype, /*includeBool=*/true)) {
      return 0;
    }
  }
  return elements;
}

inline constexpr Platforms kBFloat16ByAten{.aten_from = int64_t{1} << 15, .aten_work = elements_of_bfloat16};

// For ops that write into a tensor.
inline constexpr Platforms kBFloat16WrittenByAten{
    .aten_from = int64_t{1} << 15, .aten_in_place = true, .aten_work = elements_of_bfloat16};

// Returns the number of elements; 0 if operands differ in dtype: the kernel would expect statistics in a dtype that
// programs don't keep.
inline int64_t elements_of_one_dtype(const std::vector<graph::TypePtr>& operands) {
  int64_t elements = 0;
  for (const graph::TypePtr type : operands) {
    if (type->dtype != operands[0]->dtype) return 0;
    elements += type->numel();
  }
  return elements;
}

// Emits a call that this process keeps (Note [Calls of the CPU's kernels]), and returns its results. `text`: all of the
// call but the types. `orders` and `over`: as for Emit::call_kernel. Only for Target::kCpuWithKernels.
Values emit_kept(Emit& e, std::string text, const Values& operands, const std::vector<Type>& results,
                 kernels::KeptCall call, const Emit::Orders& orders, std::optional<size_t> over);

// An argument of an ATen op: an operand, None if that is missing, the memory of a result, or a constant.
struct AtenArgument {
  AtenArgument(const Value& value, bool row_major = false) : operand(value), is_row_major(row_major) {}
  template <class T>
    requires std::constructible_from<c10::IValue, T>
  AtenArgument(T given) : constant(std::move(given)) {}
  // The op reads the sizes of the result's memory alone.
  static AtenArgument memory(size_t result, bool row_major) {
    AtenArgument argument(Value(), row_major);
    argument.place = result;
    return argument;
  }

  Value operand;
  std::optional<size_t> place;
  bool is_row_major = false;  // images are copied from NHWC memory
  c10::IValue constant;
};

// Calls "aten::name.overload" with these arguments in the schema's order, and the schema's defaults. Returns the
// results that have a type here. `is_large`: worth several threads.
Values call_aten(Emit& e, std::string_view op, const std::vector<AtenArgument>& arguments,
                 const std::vector<std::optional<Type>>& results, bool is_large, const Emit::Orders& orders = {},
                 std::optional<size_t> over = {});

// Softmax, layer norms, sums and extremes of rows. XLA:CPU adds a row's elements one by one, and reads a row again for
// each pass of a softmax or a norm. PyTorch's kernels compute the rows that they claim (Note [Claims]); for others
// these functions return nothing. Rows are the last dimensions, from `axis` on. The functions are in
// ops/xla_cpu/library_calls.cpp.
std::optional<Value> library_softmax(Emit& e, const Value& x, int64_t axis, bool log);
std::optional<Value> library_softmax_gradient(Emit& e, const Value& dy, const Value& y, int64_t axis, bool log);
// `op`: "add", "mean", "maximum" or "minimum". Returns nothing unless dims are the last ones, or all.
std::optional<Value> library_reduced_rows(Emit& e, std::string_view op, const Value& x, Dims dims);
// Returns the rows, and the mean and 1 / deviation of each. Weight and bias may be nothing.
std::optional<Values> library_layer_norm(Emit& e, const Value& x, const Value& weight, const Value& bias, int64_t axis,
                                         double eps);
// Returns the gradients of rows, weight and bias that are asked for.
std::optional<Values> library_layer_norm_gradients(Emit& e, const Value& dy, const Value& x, const Value& mean,
                                                   const Value& rstd, const Value& weight, int64_t axis,
                                                   std::array<bool, 3> asked);

}  // namespace tpjrt::ops
