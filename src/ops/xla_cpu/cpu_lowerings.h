// Lowerings specific to XLA:CPU: docs/design/xla-cpu.md.
//
// A choice between a fast formula, which is right for nearly all data, and a slow one for the rest.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ops/rule/backend_lowerings.h"
#include "ops/rule/expression.h"

namespace tpjrt::ops {

class CpuLowerings final : public BackendLowerings {
 public:
  // XLA:CPU fuses the computation of x into its readers and computes an element again for each read. Barriers don't
  // stop it. It does not look into a branch or a call, and a call copies nothing (Note [Stored values]).
  Value computed_once(Emit& e, const Value& x) const override;
  // XLA:CPU has no bfloat16 arithmetic. It computes each op in float32 between two conversions of each element, the
  // second of which takes ten instructions. Moves of integers need no conversion.
  ElementType carrier(ElementType element) const override {
    return element == ElementType::kBF16 ? ElementType::kU16 : element;
  }
  // XLA:CPU converts integers to bfloat16 one at a time. Their float32's bits are rounded in vectors: a sixth of the
  // time.
  Value bfloat16_of(Emit& e, const Value& integers) const override;
  // XLA:CPU contracts a product and a difference to one fused multiply-add. Where the exact product exceeds the
  // rounded maximum by hundreds (a row of -1e10 * 100), exp() overflows. The minimum of the two is x, and keeps it
  // rounded.
  Value rounded_below(Emit& e, const Value& x, const Value& max) const override;
  // XLA:CPU chooses between a library's bfloat16 kernel and its own before it has finished with the operands. Later
  // it drops batch dimensions of 1, and merges a preceding transpose into the product (a sum over a transposed tensor
  // has one). Neither kernel supports what results, and the run fails. This lowering therefore drops such dimensions
  // itself, and puts a barrier between a transpose and an operand that contracts its last dimension, which is the
  // form that the library takes.
  Value dot_general(Emit& e, const Value& lhs, const Value& rhs, const hlo::DotDimensions& dimensions,
                    ElementType result, std::string_view precision) const override;
  // XLA:CPU adds consecutive floats into one vector, in which each addition waits for the last: a thousand rows of a
  // thousand take 0.8 ms. Elementwise sums of eight parts come first, which don't wait: 0.3 ms, and more accurate. A
  // table is summed one dimension after the other: as a line of another width it would need divisions to compute its
  // addresses. Sums of integers wait as well. Sums of float rows are products (is_summed_by_product).
  Value sum(Emit& e, const Value& x, const Dims& dims) const override;
  // Lowered like sum().
  Value product(Emit& e, const Value& x, const Dims& dims) const override;
  // XLA:CPU takes the extreme of floats along the last dimension one element after the other, because of NaN: 2.8 ms
  // for a million, twenty times as long as a sum. Elementwise extremes of halves are vectorized: 0.14 ms. The halves
  // of an odd length overlap, which changes no extreme. Integers take extremes of eight parts, as sums do.
  Value extreme(Emit& e, std::string_view op, const Value& x, const Value& identity, const Dims& dims) const override;

  // XLA:CPU's maximum and minimum of two zeros may be either of them.
  Expression larger_of(const Expression& a, const Expression& b) const override;
  Expression smaller_of(const Expression& a, const Expression& b) const override;

  // XLA:CPU vectorizes float32 arithmetic, but calls libm element by element for functions that it has no polynomial
  // of.
  Expression log1p(const Expression& x) const override;
  Expression remainder_of(const Expression& a, const Expression& b) const override;
  Expression cosine(const Expression& x) const override;
  Expression sine(const Expression& x) const override;
  Expression tangent(const Expression& x) const override;
  CosineAndSine of_turns(const Expression& x) const override;
  Expression arcsine(const Expression& x) const override;
  Expression arccosine(const Expression& x) const override;
  Expression arctangent(const Expression& x) const override;
  Expression hyperbolic_arctangent(const Expression& x) const override;
  Expression angle_of(const Expression& y, const Expression& x) const override;
};

// Returns the first of the dimensions that are reduced, if they are x's last ones.
std::optional<int64_t> axis_of_rows(const Value& x, const Dims& dims);

// Returns whether the sums of rows, which begin at `axis`, are the product of the rows with a vector of ones. XLA:CPU
// vectorizes it, and fuses it with what computes the rows. It takes a third of the time of a kernel of PyTorch, for
// which such rows are stored first. XLA:CPU runs a product that is fused with nothing on one thread, so many rows are
// negated, and the vector is of -1.
bool is_summed_by_product(const Value& x, int64_t axis);

// Returns whether x has a fast formula: only float32 has any.
inline bool has_fast_way(const Expression& x) { return x.value.element() == ElementType::kF32; }

inline Expression converted(const Expression& x, ElementType element) { return x.with(x.e->convert(x.value, element)); }

// Returns `fast` if `rare` is false for every element, otherwise `slow` of the operands, which have rare's shape.
// Small tensors always take `slow`: the branch would take longer.
Expression usually(const Expression& rare, const std::vector<Expression>& operands,
                   const std::function<Expression(const std::vector<Expression>&)>& slow,
                   const std::function<Expression()>& fast);

// Decides which values of a program XLA:CPU keeps in memory.
//
// Note [Stored values]: XLA:CPU fuses a value into each of its readers, and computes it again for each. A layer
// norm's gradient reads its incoming gradient three times, which is the next norm's, so the time of a step and of its
// compile grows with the square of the depth. The text of a program therefore says what is stored, by one rule: a
// value goes through a call that is opaque to XLA if it is computed by arithmetic, more than one kernel reads it, and
// it costs more than a few additions and reads (kLeastCost). The call returns it in the same memory: a microsecond,
// and no copy. Readers start from there, so a value computed from it is cheap again, and a chain is cut where it has
// become long. A chain that one kernel computes is cut where its loop becomes too long for the instruction cache
// (kLongestChain).
//
// The graph says which kernels read a value. If all its readers are fused into one statement, its immediate
// post-dominator, the value is stored there if at all. The rule covers what autograd saves, a softmax's exponentials
// and the gates of an unrolled cell without naming them. It applies to programs that may call kernels
// (Target::kCpuWithKernels). Other programs have Emit::computed_once, with which a rule marks a value that is read
// often.
//
// Updates are ordered by the same call. XLA writes a new value over the parameter that gives its memory only if all
// readers of the old one are known to come before, and otherwise copies the parameter, for all of the program. A
// weight's update doesn't depend on the product that gives the layer's input its gradient, so it reads the old value
// from a call that also takes an element of that product.

// Returns the module in which updates come after the other readers of what they overwrite.
std::string with_updates_in_place(std::string module, Target target);

// Returns the module with the stores that are worth it. `is_nhwc`: images are NHWC, and left to XLA.
std::string with_stored_values(std::string module, Target target, bool is_nhwc);

// Decides which thread runs a program.
//
// Note [Caller's thread]: XLA:CPU runs a program of up to 1,000 operations in the thread that starts it, and hands any
// other to a thread of its own. A caller that waits for the results gains nothing: two thread switches take 10 to 25 µs
// of the processor, more than most calls of 10,000 elements. No option changes that: XLA goes by the operations that its
// cost model counts. So the text of a program for which the caller waits ends with a loop that never runs, and whose
// body XLA counts as a negative number of operations: a sum over a window of 2^60 elements for twelve results overflows
// 64 bits. A run takes half a microsecond for it (a call that gives false, a jump over the loop), a compile the time of
// one more kernel. If another version of XLA counts otherwise, the program is handed over.

// Returns the module with such a loop, for XLA on a CPU.
std::string run_in_callers_thread(std::string module, Target target);

}  // namespace tpjrt::ops
