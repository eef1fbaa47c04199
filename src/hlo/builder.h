// Builds one StableHLO module as text, with one function call for each op.
//
// A Builder owns the text of a `func.func public @main`. A Value names an SSA result in it and carries its type. Every
// function that emits an op infers the result type from its operands by the rules of the StableHLO specification
// (section "Ops"). It throws hlo::Error, naming the op and the operand, if they don't fit. Nothing is broadcast or
// converted implicitly: operands of a binary op have exactly the same type.
//
// A callback writes a region: it gets the block's arguments and returns the region's results. While it runs, ops go to
// the region. Only regions of while, if and case may use values of the enclosing function (StableHLO forbids capturing
// in reduce, sort, scatter, reduce_window and select_and_scatter). A callback also writes the body of a private
// function, which captures nothing.
//
// A call that throws leaves the Builder usable: ops emitted before it stay as dead code. One Builder is used by one
// thread.
#pragma once

#include <array>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hlo/type.h"

namespace tpjrt::hlo {

// A malformed op: a bug in a lowering rule, never the user's fault.
struct Error : std::logic_error {
  using std::logic_error::logic_error;
};

struct Value {
  int32_t id = -1;  // -1: no value
  Type type;
  const Dims& dims() const { return type.dims; }
  ElementType element() const { return type.element; }
  int64_t rank() const { return type.rank(); }
  int64_t dim(int64_t i) const { return type.dims[static_cast<size_t>(i)]; }
  explicit operator bool() const { return id >= 0; }
};

using Values = std::vector<Value>;
using Region = std::function<Values(const Values& arguments)>;

enum class Comparison : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe };

struct DotDimensions {
  Dims lhs_batch, rhs_batch, lhs_contracting, rhs_contracting;
};

// Logical dimension numbers of a convolution; kernels and layouts may differ (see ops/contraction/convolution.cpp).
struct ConvolutionDimensions {
  int64_t input_batch = 0, input_feature = 1;
  Dims input_spatial;
  int64_t kernel_input_feature = 1, kernel_output_feature = 0;
  Dims kernel_spatial;
  int64_t output_batch = 0, output_feature = 1;
  Dims output_spatial;
};

struct ConvolutionWindow {
  Dims strides;                                      // one for each spatial dimension
  std::vector<std::pair<int64_t, int64_t>> padding;  // low, high; may be negative
  Dims lhs_dilation, rhs_dilation;
  std::vector<bool> reversal;  // empty: none
  int64_t feature_groups = 1, batch_groups = 1;
};

struct GatherDimensions {
  Dims offset_dims, collapsed_slice_dims, operand_batching_dims, start_indices_batching_dims, start_index_map;
  int64_t index_vector_dim = 0;
};

struct ScatterDimensions {
  Dims update_window_dims, inserted_window_dims, input_batching_dims, scatter_indices_batching_dims,
      scatter_dims_to_operand_dims;
  int64_t index_vector_dim = 0;
};

struct Window {  // of reduce_window: one entry for each dimension of the operand
  Dims dimensions, strides, base_dilations, window_dilations;
  std::vector<std::pair<int64_t, int64_t>> padding;
};

class Builder {
 public:
  // `name` is the module's name.
  explicit Builder(std::string name = "graph");
  ~Builder();
  Builder(Builder&&) noexcept;
  Builder& operator=(Builder&&) noexcept;

  // --- the function -------------------------------------------------------------------------------------------------
  // Adds the next parameter of @main. Parameters may be added at any time before finish(). `order`: the layout, the
  // innermost dimension first (`mhlo.layout_mode`); row-major by default.
  Value parameter(const Type& type, const Dims& order = {});
  // Lets the result reuse the parameter's buffer (`tf.aliasing_output`), see PJRT donation.
  void alias(int64_t parameter, int64_t result);
  // Sets how many devices run the program at once, each with its own arguments (`mhlo.num_replicas`); 1 by default.
  void set_replicas(int64_t replicas);
  // Ends the function with these results and returns the module's text. The builder can't be used afterwards. `orders`:
  // the results' layouts, like a parameter's; one for each, or none.
  std::string finish(const Values& results, const std::vector<Dims>& orders = {});
  // Later ops carry loc("file":line:0), which XLA's errors show. An empty file ends that.
  void set_location(std::string_view file, int64_t line);
  // From now on ops are checked and typed, but not written, which would take most of the time. For callers that only
  // try whether a call can be lowered: finish() returns no usable text.
  void without_text();
  // Number of ops emitted so far.
  int64_t size() const;

  // --- constants ----------------------------------------------------------------------------------------------------
  // A splat of any shape. Floats are exact (hexadecimal bits if decimals would not round-trip; nan, inf).
  Value constant(double value, const Type& type);
  Value constant(int64_t value, const Type& type);  // also for float and kPred types
  Value constant(int value, const Type& type) { return constant(static_cast<int64_t>(value), type); }
  Value constant_u64(uint64_t value, const Type& type);  // full 64-bit range
  Value constant_complex(double real, double imag, const Type& type);
  Value constant_dense(const std::vector<int64_t>& values, const Type& type);  // integer types and kPred, row-major
  Value constant_dense(const std::vector<double>& values, const Type& type);   // float types, row-major
  Value iota(const Type& type, int64_t dimension);
  // Returns the value of all elements if it is known; NaN if it is computed from constants.
  std::optional<double> number_of(const Value& x) const;

  // --- elementwise --------------------------------------------------------------------------------------------------
  // `op` is the StableHLO name without the dialect: "add", "power", "exponential", "not", …; for chlo ops "chlo.erf".
  // unary: the result has the operand's type, except for abs/real/imag of complex (real) and is_finite (kPred).
  Value unary(std::string_view op, const Value& x);
  Value binary(std::string_view op, const Value& a, const Value& b);
  Value compare(Comparison direction, const Value& a, const Value& b);  // picks FLOAT, SIGNED or UNSIGNED by the type
  Value select(const Value& predicate, const Value& on_true, const Value& on_false);  // predicate may be 0-d
  // low and high are 0-d or have x's type.
  Value clamp(const Value& low, const Value& x, const Value& high);
  Value complex(const Value& real, const Value& imag);
  Value convert(const Value& x, ElementType element);  // no-op if equal; float to integer truncates
  Value bitcast_convert(const Value& x, const Type& type);
  // Rounds a float to the precision of kF16 or kBF16. A pair of converts may not: XLA may remove it.
  Value reduce_precision(const Value& x, ElementType element);

  // --- shape --------------------------------------------------------------------------------------------------------
  Value reshape(const Value& x, const Dims& dims);           // no-op if equal
  Value transpose(const Value& x, const Dims& permutation);  // no-op for the identity
  const Value* transposed_from(const Value& x) const;        // the matrix that x was transposed from, or null
  struct Moved {
    Value from;
    Dims permutation;
  };
  const Moved* moved_from(const Value& x) const;  // likewise for any rank
  Value broadcast_in_dim(const Value& x, const Dims& dims, const Dims& broadcast_dimensions);
  Value slice(const Value& x, const Dims& start, const Dims& limit, const Dims& strides);
  Value pad(const Value& x, const Value& value, const Dims& low, const Dims& high, const Dims& interior);
  Value reverse(const Value& x, const Dims& dimensions);
  Value concatenate(const Values& xs, int64_t dimension);
  Value dynamic_slice(const Value& x, const Values& starts, const Dims& sizes);
  Value dynamic_update_slice(const Value& x, const Value& update, const Values& starts);
  Value gather(const Value& operand, const Value& start_indices, const GatherDimensions& dimensions,
               const Dims& slice_sizes, bool indices_are_sorted = false);
  // body(current, update) -> new, all scalars.
  Values scatter(const Values& inputs, const Value& indices, const Values& updates, const ScatterDimensions& dimensions,
                 const Region& body, bool indices_are_sorted = false, bool unique_indices = false);

  // --- reductions ---------------------------------------------------------------------------------------------------
  // body(accumulators..., elements...) -> accumulators, all scalars.
  Values reduce(const Values& xs, const Values& initial, const Dims& dimensions, const Region& body);
  // The common case: op is the name of a binary op ("add", "maximum", "and", …).
  Value reduce(std::string_view op, const Value& x, const Value& initial, const Dims& dimensions);
  Values reduce_window(const Values& xs, const Values& initial, const Window& window, const Region& body);
  Value select_and_scatter(const Value& operand, const Value& source, const Value& initial, const Window& window,
                           const Region& select, const Region& scatter);
  // comparator(a0, b0, a1, b1, …) -> 0-d kPred.
  Values sort(const Values& xs, int64_t dimension, bool is_stable, const Region& comparator);

  // Returns the k largest elements along the last dimension, in descending order, and their indices (kS32). Ties go to
  // the lower index.
  std::pair<Value, Value> top_k(const Value& x, int64_t k);

  // --- linear algebra -----------------------------------------------------------------------------------------------
  // `result` is the accumulation and result type. precision: "DEFAULT", "HIGH" or "HIGHEST".
  Value dot_general(const Value& lhs, const Value& rhs, const DotDimensions& dimensions, ElementType result,
                    std::string_view precision = "DEFAULT");
  Value convolution(const Value& lhs, const Value& rhs, const ConvolutionDimensions& dimensions,
                    const ConvolutionWindow& window, ElementType result, std::string_view precision = "DEFAULT");
  Value cholesky(const Value& x, bool lower);
  Value triangular_solve(const Value& a, const Value& b, bool left_side, bool lower, bool unit_diagonal,
                         std::string_view transpose_a);                  // "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"
  Value fft(const Value& x, std::string_view kind, const Dims& length);  // "FFT", "IFFT", "RFFT", "IRFFT"

  // --- control flow, random numbers, calls --------------------------------------------------------------------------
  Values while_loop(const Values& initial, const Region& condition, const Region& body);
  Values if_else(const Value& predicate, const Region& on_true, const Region& on_false);  // regions take no arguments
  // Returns {new state, bits}. algorithm: "THREE_FRY" (state ui64[2]), "PHILOX" (ui64[2] or [3]) or "DEFAULT".
  std::pair<Value, Value> rng_bit_generator(std::string_view algorithm, const Value& state, const Type& type);
  Values custom_call(std::string_view target, const Values& operands, const std::vector<Type>& results,
                     const std::map<std::string, std::string>& attributes);  // attribute values in MLIR syntax
  Values optimization_barrier(const Values& xs);
  // Calls the private function `name` in `functions`, the text of func.func ops. The text is added to the module once
  // for each name, so equal names must have equal texts.
  Values call(const std::string& name, const std::string& functions, const Values& operands,
              const std::vector<Type>& results);

  // --- between replicas ---------------------------------------------------------------------------------------------
  // `groups`: one for each row of replicas that communicate, in order. Each replica is in exactly one.
  using Groups = std::vector<Dims>;
  Value replica_id();                                                           // 0-d, kU32
  Value all_reduce(std::string_view op, const Value& x, const Groups& groups);  // op: a binary op's name
  Value all_gather(const Value& x, int64_t dimension, const Groups& groups);    // concatenated in the group's order
  Value all_to_all(const Value& x, int64_t dimension, const Groups& groups);    // split and concatenated along it
  // Each replica of a group gets its part of the dimension.
  Value reduce_scatter(std::string_view op, const Value& x, int64_t dimension, const Groups& groups);

  // --- private functions --------------------------------------------------------------------------------------------
  // Writes body(arguments) as a private function of the operands' types, without ops that its results don't need. Its
  // symbol consists of `name` and a fingerprint of its text, so equal calls share a function, and equal programs have
  // equal texts.
  Values call(std::string_view name, const Values& operands, const Region& body);
  // Emits stablehlo.composite `name` whose decomposition is such a function. Attribute values are in MLIR syntax
  // (hlo/type.h).
  Values composite(std::string_view name, const std::map<std::string, std::string>& attributes, const Values& operands,
                   const Region& body);
  // From now on composites are calls, for consumers that don't know the op.
  void set_composites_as_calls();
  // Runs `emit` here and removes the ops that its results don't need. Its other values must not be used.
  Values needed(const std::function<Values()>& emit);

 private:
  struct Impl;
  Impl* impl_;
};

// Returns the module without locations (set_location): equal for programs that differ only in the user's files and
// lines.
std::string without_locations(std::string_view module);

}  // namespace tpjrt::hlo
