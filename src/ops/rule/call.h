// The input of a lowering rule: one ATen call and the means to emit it.
//
// A rule looks like this, and is the only place that knows its op:
//
//   // aten::cumsum: running sum along dim; integers are summed as int64.
//   Values cumsum(Emit& e, const Call& c) {
//     Value x = e.convert(c.tensor("self"), e.element(c.result()));
//     return {e.cumulative(x, c.dim("dim", x.rank()), "add")};
//   }
//
// Rules never guess shapes or dtypes: c.result(i) is what PyTorch's Meta kernel returned. A rule that can't lower a
// call (a dtype, a mode) throws Unsupported with the reason; the op then runs on the host and is counted. In-place,
// out= and _foreach_ variants need no rules. They are lowered by the functional op's rule (see
// graph/functional_variant.h), so names are those of the functional schema and c.result() is what the functional op
// returns.
#pragma once

#include <c10/core/Scalar.h>

#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "graph/type.h"
#include "hlo/builder.h"

namespace tpjrt::ops {

using hlo::Dims;
using hlo::ElementType;
using hlo::Type;
using hlo::Value;
using hlo::Values;

// Thrown if the rule can't lower this call. what() is shown to the user as the reason of a host fallback.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A mistake of the user's that PyTorch's Meta kernel accepts. The op runs on the host, whose kernel reports it.
struct Mistake : std::runtime_error {
  using std::runtime_error::runtime_error;
};

ElementType element_of(
    c10::ScalarType dtype);  // throws Unsupported for quantized and other dtypes without a counterpart
c10::ScalarType dtype_of(ElementType element);

// One argument of a call, already lowered.
struct Argument {
  enum class Kind : uint8_t {
    kNone,
    kTensor,
    kTensorList,
    kScalar,
    kScalarList,
    kInt,
    kDouble,
    kBool,
    kString,
    kIntList,
    kDoubleList,
    kBoolList
  };
  Kind kind = Kind::kNone;
  std::string name;
  Values tensors;                     // kTensor, kTensorList; an undefined entry of a list has id -1
  std::vector<graph::TypePtr> types;  // of `tensors`, null where undefined
  std::vector<bool> wrapped_number;   // of `tensors`: whether it came from a Python number
  std::vector<c10::Scalar> scalars;   // kScalar, kScalarList: the values seen now
  Values scalar_values;  // the same values as 0-d inputs of the graph (f64, s64, kPred or c128); used unless pinned
  bool varies = false;   // kScalar: the value was seen to change, `scalars` is one of many
  std::vector<bool>* pinned = nullptr;  // set by constant_scalar(): a new value then means a new program
  std::vector<int64_t> ints;            // kInt, kBool (0 or 1), kIntList, kBoolList. dtype: c10::ScalarType as int
  std::vector<double> doubles;          // kDouble, kDoubleList
  std::string text;                     // kString
};

class Emit;

class Call {
 public:
  std::string name;                     // "aten::add.Tensor"; overload "" is written without the dot: "aten::relu"
  std::vector<Argument> arguments;      // in schema order, all of them
  std::vector<graph::TypePtr> results;  // null: an undefined result
  Value rng_key;                        // ui64[2]; for ops that draw random numbers (ops/creation/draw.h)

  // Look-ups by name. Each throws std::logic_error if the schema has no such argument or it is of another kind.
  const Argument& argument(std::string_view name) const;
  bool has(std::string_view name) const;  // the schema has it and it is not None (nor an undefined tensor)
  Value tensor(std::string_view name) const;
  std::optional<Value> optional_tensor(std::string_view name) const;
  Values tensors(std::string_view name) const;
  const graph::TensorType& type(std::string_view name) const;  // torch's type of a tensor argument (strides included)
  bool is_wrapped_number(std::string_view name) const;

  // Returns a Scalar argument as a 0-d value of `element`. It is an input of the program, so a new value never
  // recompiles.
  Value scalar(Emit& e, std::string_view name, ElementType element) const;
  // Returns the current value and pins it, so a new value recompiles. For values that must be known at compile time
  // only.
  c10::Scalar constant_scalar(std::string_view name) const;

  // Returns the current value of a Scalar that was not seen to vary, for a shorter program. A new value still makes
  // it an input.
  double seen(std::string_view name) const;

  int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  bool boolean(std::string_view name) const;
  std::string string(std::string_view name) const;  // "" for None
  Dims ints(std::string_view name) const;           // {} for None
  std::vector<bool> booleans(std::string_view name) const;
  std::optional<int64_t> optional_integer(std::string_view name) const;
  std::optional<double> optional_real(std::string_view name) const;
  // Dimension arguments, wrapped into [0, rank) (rank 0 counts as 1).
  int64_t dim(std::string_view name, int64_t rank) const;
  // A list of dimensions, wrapped and sorted; None and the empty list mean all.
  Dims dims(std::string_view name, int64_t rank) const;

  const graph::TensorType& result(size_t i = 0) const { return *results.at(i); }
};

// torch's type promotion, for the rules whose result dtype is not the dtype they compute in (comparisons above all).
// Returns the dtype in which torch computes with these arguments, tensors or Scalars; None is skipped. Tensors with
// dimensions decide first, then 0-d tensors, then scalars. A later class counts only if it is of a higher category
// (bool, integer, floating, complex).
c10::ScalarType result_type(const Call& c, std::initializer_list<std::string_view> arguments);

}  // namespace tpjrt::ops
