// Shape functions of common ops whose Meta kernels are Python functions. These take up to 10 ms for each new shape,
// and the first one that a process calls imports torch._dynamo, which takes more than a second.
//
// Building blocks of the shape functions in shapes*.cpp: a call's arguments and its results.
#pragma once

#include <ATen/OpMathType.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace tpjrt::device {

// at::empty_like of a Meta tensor, which is a Python function as well.
at::Tensor made_like(const at::Tensor& x, const at::TensorOptions& options);
at::Tensor made_like(const at::Tensor& x, const at::TensorOptions& options, at::MemoryFormat format);

// Returns the results of the op's Meta kernel for these arguments (on Meta), or nothing for an unusual call, for
// which Meta's own kernel is called. Usual calls have one dtype, mostly a floating one, and no mistake.
using ShapeFunction = std::optional<torch::jit::Stack> (*)(const torch::jit::Stack& arguments);
// Returns null for an op that has none.
ShapeFunction shape_function(const std::string& name);

using Given = torch::jit::Stack;
using Results = std::optional<torch::jit::Stack>;
using ShapeFunctions = std::unordered_map<std::string, ShapeFunction>;

void add_pointwise(ShapeFunctions& functions);
void add_norms(ShapeFunctions& functions);

inline at::Tensor tensor(const c10::IValue& value) { return value.isTensor() ? value.toTensor() : at::Tensor(); }

// Returns whether all defined tensors have the first one's dtype, which is floating.
inline bool are_alike(std::initializer_list<at::Tensor> tensors) {
  const at::ScalarType dtype = tensors.begin()->scalar_type();
  return c10::isFloatingType(dtype) && std::ranges::all_of(tensors, [&](const at::Tensor& t) {
           return !t.defined() || (t.scalar_type() == dtype && t.is_meta());
         });
}

inline Results of(std::initializer_list<at::Tensor> tensors) {
  return torch::jit::Stack(tensors.begin(), tensors.end());
}

// Returns a result of that dtype with the operands' common shape, in TensorIterator's layout.
Results broadcast(at::ScalarType dtype, std::initializer_list<at::Tensor> operands);

// Returns a new tensor with the layout of a pointwise function's result.
inline Results pointwise(const at::Tensor& x) { return of({made_like(x, x.options())}); }

inline bool is_integer(const at::Tensor& x) { return c10::isIntegralType(x.scalar_type(), /*includeBool=*/false); }
inline bool is_index(const at::Tensor& x) { return x.scalar_type() == c10::kLong || x.scalar_type() == c10::kInt; }

inline at::Tensor contiguous_like(const at::Tensor& x) { return at::empty(x.sizes(), x.options()); }
inline at::Tensor statistic(const at::Tensor& x, c10::IntArrayRef sizes) {
  return at::empty(sizes, x.options().dtype(at::toOpMathType(x.scalar_type())));
}
inline bool has_sizes(const at::Tensor& x, c10::IntArrayRef sizes) { return !x.defined() || x.sizes() == sizes; }

}  // namespace tpjrt::device
