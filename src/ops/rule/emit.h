// The builder with what every lowering rule needs: torch's dtypes, broadcasting, and a few idioms.
//
// Idioms (not ops) that two families share live here; what only one op needs stays in that op's rule.
#pragma once

#include <functional>

#include "graph/signature.h"
#include "ops/rule/backend_lowerings.h"
#include "ops/rule/call.h"

namespace tpjrt::ops {

// The error that is raised if data violates a runtime assertion. kThrown: the integer is the number of an exception
// that a kernel threw (kernels/cpu/kept_call.h).
enum class Raises : uint8_t {
  kRuntimeError,
  kIndexError,
  kValueError,
  kTypeError,
  kNotImplementedError,
  kLinAlgError,
  kThrown
};
Raises raised_by(std::string_view python_type);  // kRuntimeError for types that are not listed

// A runtime assertion about data that only the program sees (Note [Runtime assertions],
// engine/lower/module/assertions.h): the integers of a value are in [low, high).
struct Assertion {
  Value least, greatest;  // 0-d, s64
  int64_t low = 0, high = 0;
  std::string message;  // the CPU's words, with {} for the integer outside
  Raises raises = Raises::kRuntimeError;
};
// In a message: the integer is a violation plus kViolations times the index of the element that violates it.
inline constexpr std::string_view kIndexOfViolation = "{index}";
inline constexpr int64_t kViolations = int64_t{1} << 32;

// How an update reads the tensor that it overwrites: not at all, at the elements that it writes or at disjoint ones, or
// anywhere (engine/lower/module/emit_program.h).
enum class Overwrites : uint8_t { kNothingRead, kReadInRows, kReadAnywhere };

class Emit : public hlo::Builder {
 public:
  Emit(std::string name, Target target)
      : Builder(std::move(name)), target_(target), backend_(&BackendLowerings::on(target)) {}
  using hlo::Builder::constant;

  // The platform's compiler, and the lowerings that suit it. Rules never test the target: RuleTable::add and
  // BackendLowerings choose by it.
  Target target() const { return target_; }
  const BackendLowerings& backend() const { return *backend_; }

  ElementType element(const graph::TensorType& type) const { return element_of(type.dtype); }
  Type type_of(const graph::TensorType& type) const;

  // --- broadcasting and conversion ----------------------------------------------------------------------------------
  Value broadcast_to(const Value& x, const Dims& dims);  // torch's rules: trailing dimensions align, 1 expands
  Value splat(double value, const Type& like);           // a constant of like's type
  Value zeros(const Type& type);
  Value ones(const Type& type);
  // Returns x as torch's `result` type: converted (to bool: x != 0; complex to real: the real part) and broadcast to
  // its sizes.
  Value as(const Value& x, const graph::TensorType& result);
  Value convert(const Value& x, ElementType element);  // no-op when equal; to 8-bit floats as this torch converts
  // Returns the int8 or float8_e4m3fn tensor that x was converted from, or null.
  const Value* narrow_of(const Value& x) const { return found_in(narrow_, x); }
  // How a dequantized matrix was computed: x times `by`, or x minus `by`, which is broadcast to x. Products of few rows
  // apply it to their results.
  struct Applied {
    Value x, by;
  };
  void set_scaled(const Value& y, const Applied& how) { scaled_.emplace(y.id, how); }
  void set_shifted(const Value& y, const Applied& how) { shifted_.emplace(y.id, how); }
  const Applied* scaled_from(const Value& x) const { return found_in(scaled_, x); }
  const Applied* shifted_from(const Value& x) const { return found_in(shifted_, x); }
  Value to(const Value& x, ElementType element);  // converts only, with torch's meaning of bool
  // Returns the dtype in which torch computes for `element`: f32 for the 8- and 16-bit floats, itself otherwise.
  static ElementType compute_element(ElementType element);
  // Computes on `x` in compute_element, and converts back: e.upcast(x, [&](Value y) { ... }).
  template <class F>
  Value upcast(const Value& x, F&& f) {
    return to(f(to(x, compute_element(x.element()))), x.element());
  }
  // Returns x, stored in memory if its readers would otherwise compute its elements again for each read.
  Value computed_once(const Value& x) { return backend_->computed_once(*this, x); }
  Value unsqueeze(const Value& x, int64_t dim);
  // Sets how the update that is written next reads what it overwrites.
  void set_overwrites(Overwrites overwrites) { overwrites_ = overwrites; }
  Overwrites overwrites() const { return overwrites_; }
  // Sets the precision of float32 products in the call that is emitted next.
  void set_precisions(graph::Precisions precisions) { precisions_ = precisions; }
  graph::Precisions precisions() const { return precisions_; }
  Value slice_dim(const Value& x, int64_t dim, int64_t begin, int64_t end);  // x[begin:end] along dim
  Value dot_general(const Value& lhs, const Value& rhs, const hlo::DotDimensions& dimensions, ElementType result,
                    std::string_view precision) {
    return backend_->dot_general(*this, lhs, rhs, dimensions, result, precision);
  }
  // Returns x between `low` and `high` zeros along dim, with `interior` zeros between its elements. Negative numbers
  // crop.
  Value pad_dim(const Value& x, int64_t dim, int64_t low, int64_t high, int64_t interior = 0);
  // Restores reduced dimensions as size 1 and broadcasts to `dims`.
  Value broadcast_reduced(const Value& reduced, const Dims& reduced_dims, const Dims& dims);

  // --- moves --------------------------------------------------------------------------------------------------------
  // Note [Data movement on bits]: an op that moves elements looks at none of them, but a compiler without 16-bit arithmetic
  // converts each one to float32 and back. Where the platform asks for it (BackendLowerings::carrier), such ops move the
  // elements' bits, and a chain of moves converts nothing in between.
  Value moved(const Values& xs, const std::function<Value(const Values&)>& move);
  Value reshape(const Value& x, const Dims& dims);
  Value broadcast_in_dim(const Value& x, const Dims& dims, const Dims& broadcast_dimensions);
  Value slice(const Value& x, const Dims& start, const Dims& limit, const Dims& strides);
  Value pad(const Value& x, const Value& value, const Dims& low, const Dims& high, const Dims& interior);
  Value reverse(const Value& x, const Dims& dimensions);
  Value concatenate(const Values& xs, int64_t dimension);
  Value dynamic_slice(const Value& x, const Values& starts, const Dims& sizes);
  // Returns x with `update` at `starts`; not in x's memory if set_overwrites says so
  // (engine/lower/module/emit_program.h).
  Value dynamic_update_slice(const Value& x, const Value& update, const Values& starts);
  Value gather(const Value& operand, const Value& start_indices, const hlo::GatherDimensions& dimensions,
               const Dims& slice_sizes);
  Value select(const Value& predicate, const Value& on_true, const Value& on_false);
  // Like the builder's, except that "negate" and "abs" change the sign alone and count as moves.
  Value unary(std::string_view op, const Value& x);

  // --- arithmetic ---------------------------------------------------------------------------------------------------
  Value add(const Value& a, const Value& b) { return binary("add", a, b); }
  Value sub(const Value& a, const Value& b) { return binary("subtract", a, b); }
  Value mul(const Value& a, const Value& b) { return binary("multiply", a, b); }
  Value div(const Value& a, const Value& b) { return binary("divide", a, b); }
  Value maximum(const Value& a, const Value& b) { return binary("maximum", a, b); }
  Value minimum(const Value& a, const Value& b) { return binary("minimum", a, b); }
  Value neg(const Value& a) { return unary("negate", a); }
  Value logical_not(const Value& a) { return unary("not", a); }
  Value exp(const Value& a) { return unary("exponential", a); }
  Value log(const Value& a) { return unary("log", a); }
  Value sqrt(const Value& a) { return unary("sqrt", a); }
  Value rsqrt(const Value& a) { return unary("rsqrt", a); }
  Value tanh(const Value& a) { return unary("tanh", a); }
  Value isnan(const Value& a);
  Value lowest(ElementType element);   // 0-d: the identity of max (-inf for floats)
  Value highest(ElementType element);  // 0-d: the identity of min (+inf for floats)

  // Returns x, which is nowhere above `max`, for exp(x - max). It is rounded, so an x with more digits than its type
  // is not above `max` either.
  Value rounded_below(const Value& x, const Value& max) { return backend_->rounded_below(*this, x, max); }

  // --- reductions, over `dims`, dropping them -----------------------------------------------------------------------
  Value sum(const Value& x, const Dims& dims);
  Value mean(const Value& x, const Dims& dims);
  Value max(const Value& x, const Dims& dims);  // NaN propagates, as in torch
  Value min(const Value& x, const Dims& dims);
  // Returns the running op ("add", "multiply", "maximum", …) along dim. `initial` is the op's identity; for maximum
  // and minimum of integers any infinity will do.
  Value cumulative(const Value& x, int64_t dim, std::string_view op, double initial);

  // --- indexing -----------------------------------------------------------------------------------------------------
  // index_select: returns rows of x along dim. `indices` is 1-d and already in range.
  Value take(const Value& x, const Value& indices, int64_t dim);
  // torch.gather: the result has indices' sizes.
  Value gather_along(const Value& x, const Value& indices, int64_t dim);

  // --- the CPU's kernels --------------------------------------------------------------------------------------------
  // Layouts of operands and results: the dimensions in memory order, the fastest first. Missing or empty lists mean
  // row-major.
  struct Orders {
    std::vector<Dims> operands, results;
  };
  // Returns the results of the handler of that name (src/kernels/cpu/handlers.h) for operands with these layouts,
  // which the handler is not passed. Only for Target::kCpuWithKernels. `written_over`: the operand whose memory the
  // first result takes; it is copied first if it is needed after the call.
  Values call_kernel(std::string_view name, const Values& operands, const std::vector<Type>& results,
                     const std::map<std::string, std::string>& attributes, const Orders& orders = {},
                     std::optional<size_t> written_over = {});
  // Whether images keep the NHWC layout between the calls of this program (Note [NHWC layout]). Ops with a
  // kernel for such images then call it, even where XLA is as fast on other layouts. Only for
  // Target::kCpuWithKernels.
  void set_nhwc(bool is_nhwc) { is_nhwc_ = is_nhwc; }
  bool is_nhwc() const { return is_nhwc_; }
  // Counts which op called which kernel how often; explain() reports it.
  using KernelCalls = std::map<std::pair<std::string, std::string>, uint32_t>;  // (op, kernel) -> count
  void set_op(std::string_view name) { op_ = name; }                            // the op that is being emitted
  const KernelCalls& kernel_calls() const { return kernel_calls_; }

  // --- assertions -------------------------------------------------------------------------------------------------
  // Assertions are only for user input that the CPU's kernel checks too.
  void require(const Value& integers, int64_t low, int64_t high, std::string message, bool index_error = true);
  // Raises a RuntimeError, or a LinAlgError, if one of these predicates is false.
  void require_all(const Value& predicates, std::string message, bool linalg_error = false);
  // Asserts that `index` is one into dimension `dim` of `size`; with `wraps`, negative ones count from the end.
  void require_index(const Value& index, int64_t dim, int64_t size, bool wraps, bool index_error = true);
  // Raises the exception that a kernel threw. `number` is its number, or 0 for none.
  void require_nothing_thrown(const Value& number);
  void require(Assertion assertion) { assertions_.push_back(std::move(assertion)); }
  const std::vector<Assertion>& assertions() const { return assertions_; }
  void without_assertions() { requires_ = false; }
  bool has_assertions() const { return requires_; }
  // Returns the assertions that `emit` makes, which this emitter forgets. For regions, whose values mean nothing
  // outside.
  std::vector<Assertion> requiring(const std::function<void()>& emit);

  // Returns the state of a random key after the draws so far; at first the key itself.
  Value& drawn_from(const Value& key) { return drawn_.try_emplace(key.id, key).first->second; }

 private:
  Value bits_of(const Value& x, ElementType carrier);

  template <class T>
  static const T* found_in(const std::map<int32_t, T>& by_id, const Value& x) {
    const auto found = by_id.find(x.id);
    return found == by_id.end() ? nullptr : &found->second;
  }

  std::map<int32_t, Value> narrow_;  // by the id of the converted value
  std::map<int32_t, Applied> scaled_, shifted_;
  Target target_;
  const BackendLowerings* backend_;
  std::vector<Assertion> assertions_;
  bool requires_ = true, is_nhwc_ = false;
  Overwrites overwrites_ = Overwrites::kNothingRead;
  graph::Precisions precisions_;
  std::map<int32_t, Value> drawn_;  // by the key's id
  // By value id: the bits of a moved value, and the origin of a value that was reshaped, however often.
  std::map<int32_t, Value> bits_, reshaped_;
  std::string op_;
  KernelCalls kernel_calls_;
};

}  // namespace tpjrt::ops
