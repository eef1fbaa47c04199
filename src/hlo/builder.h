// Builds one StableHLO module as text, one function call an op.
//
// A Builder owns the text of a `func.func public @main`; a Value names an SSA result in it and carries its type.
// Every emit_* style function below infers the result type from its operands by the rules of the StableHLO
// specification (section "Ops") and throws hlo::Error, naming the op and the operand, when they don't fit. No implicit
// broadcasting or conversion happens: operands of a binary op have the same type, to the letter.
// Regions are written by a callback that is given the block's arguments and returns the region's results; while it runs,
// ops go to the region. Values from the enclosing function may be used inside a region only for while/if/case
// (StableHLO forbids capturing in reduce, sort, scatter, reduce_window and select_and_scatter bodies). The same callback writes
// the body of a private function, which captures nothing.
// A call that throws leaves the Builder usable: ops emitted before it stay, as dead code.
// One Builder is used by one thread.
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
  Dims strides;                                      // one a spatial dimension
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

struct Window {  // of reduce_window: one entry a dimension of the operand
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
  // Adds the next parameter of @main. All parameters may be added at any time before finish(). `order`: how its dimensions lie in
  // memory, the fastest first (`mhlo.layout_mode`); row-major by default.
  Value parameter(const Type& type, const Dims& order = {});
  // The parameter's buffer is reused for the result (`tf.aliasing_output`), see PJRT donation.
  void alias(int64_t parameter, int64_t result);
  // How many devices run the program at once, each with arguments of its own (`mhlo.num_replicas`); 1 by default.
  void set_replicas(int64_t replicas);
  // Ends the function with these results and gives the module's text. The builder is used up. `orders`: how they lie, as a
  // parameter's; of each, or none.
  std::string finish(const Values& results, const std::vector<Dims>& orders = {});
  // Ops emitted from now on carry loc("file":line:0), which XLA's errors show. An empty file ends that.
  void set_location(std::string_view file, int64_t line);
  // From now on ops are checked and their values typed as ever, but none is written, which takes most of the time: for who asks
  // only whether a call can be lowered. finish() gives nothing to read.
  void without_text();
  // Number of ops emitted so far.
  int64_t size() const;

  // --- constants ----------------------------------------------------------------------------------------------------
  // A splat of any shape. Floats are written exactly (hexadecimal bits where decimal would not round-trip; nan, inf).
  Value constant(double value, const Type& type);
  Value constant(int64_t value, const Type& type);  // also for float and kPred types
  Value constant(int value, const Type& type) { return constant(static_cast<int64_t>(value), type); }
  Value constant_u64(uint64_t value, const Type& type);  // full 64-bit range
  Value constant_complex(double real, double imag, const Type& type);
  Value constant_dense(const std::vector<int64_t>& values, const Type& type);  // integer types and kPred, row-major
  Value constant_dense(const std::vector<double>& values, const Type& type);   // float types, row-major
  Value iota(const Type& type, int64_t dimension);
  // What each of its elements is, if they are a constant's; NaN where it is computed of constants.
  std::optional<double> number_of(const Value& x) const;

  // --- elementwise --------------------------------------------------------------------------------------------------
  // `op` is the StableHLO name without the dialect: "add", "power", "exponential", "not", … and for chlo ops "chlo.erf".
  // unary: result type is the operand's, except abs/real/imag of complex (real), is_finite (kPred).
  Value unary(std::string_view op, const Value& x);
  Value binary(std::string_view op, const Value& a, const Value& b);
  Value compare(Comparison direction, const Value& a, const Value& b);  // picks FLOAT/SIGNED/UNSIGNED itself
  Value select(const Value& predicate, const Value& on_true, const Value& on_false);  // predicate may be 0-d
  // low and high are 0-d or of x's type.
  Value clamp(const Value& low, const Value& x, const Value& high);
  Value complex(const Value& real, const Value& imag);
  Value convert(const Value& x, ElementType element);  // no-op when equal; float to integer truncates
  Value bitcast_convert(const Value& x, const Type& type);
  // Rounds a float to what kF16 or kBF16 holds, which a pair of converts need not do: XLA may drop those.
  Value reduce_precision(const Value& x, ElementType element);

  // --- shape --------------------------------------------------------------------------------------------------------
  Value reshape(const Value& x, const Dims& dims);           // no-op when equal
  Value transpose(const Value& x, const Dims& permutation);  // no-op for the identity
  const Value* transposed_from(const Value& x) const;        // the matrix whose transpose x was made as, or null
  struct Moved {
    Value from;
    Dims permutation;
  };
  const Moved* moved_from(const Value& x) const;  // the same of any rank
  Value broadcast_in_dim(const Value& x, const Dims& dims, const Dims& broadcast_dimensions);
  Value slice(const Value& x, const Dims& start, const Dims& limit, const Dims& strides);
  Value pad(const Value& x, const Value& value, const Dims& low, const Dims& high, const Dims& interior);
  Value reverse(const Value& x, const Dims& dimensions);
  Value concatenate(const Values& xs, int64_t dimension);
  Value dynamic_slice(const Value& x, const Values& starts, const Dims& sizes);
  Value dynamic_update_slice(const Value& x, const Value& update, const Values& starts);
  Value gather(const Value& operand, const Value& start_indices, const GatherDimensions& dimensions,
               const Dims& slice_sizes, bool indices_are_sorted = false);
  // body(current, update) -> new, scalars.
  Values scatter(const Values& inputs, const Value& indices, const Values& updates, const ScatterDimensions& dimensions,
                 const Region& body, bool indices_are_sorted = false, bool unique_indices = false);

  // --- reductions ---------------------------------------------------------------------------------------------------
  // body(accumulators..., elements...) -> accumulators, all scalars.
  Values reduce(const Values& xs, const Values& initial, const Dims& dimensions, const Region& body);
  // The common case: op is a binary op's name ("add", "maximum", "and", …).
  Value reduce(std::string_view op, const Value& x, const Value& initial, const Dims& dimensions);
  Values reduce_window(const Values& xs, const Values& initial, const Window& window, const Region& body);
  Value select_and_scatter(const Value& operand, const Value& source, const Value& initial, const Window& window,
                           const Region& select, const Region& scatter);
  // comparator(a0, b0, a1, b1, …) -> 0-d kPred.
  Values sort(const Values& xs, int64_t dimension, bool is_stable, const Region& comparator);

  // The k largest along the last dimension, in descending order, and their indices (kS32). An equal value of lower index
  // comes first.
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
  // Calls the private function `name` of `functions`: the text of func.func ops that is put beside @main, once for each
  // name. What has the same name has the same text.
  Values call(const std::string& name, const std::string& functions, const Values& operands,
              const std::vector<Type>& results);

  // --- between replicas ---------------------------------------------------------------------------------------------
  // `groups`: one a row, of replicas that take part together, in their order. Each replica is in one.
  using Groups = std::vector<Dims>;
  Value replica_id();                                                           // 0-d, kU32
  Value all_reduce(std::string_view op, const Value& x, const Groups& groups);  // op: a binary op's name
  Value all_gather(const Value& x, int64_t dimension, const Groups& groups);    // concatenated in the group's order
  Value all_to_all(const Value& x, int64_t dimension, const Groups& groups);    // split and concatenated along it
  // Each replica of a group has its part of the dimension.
  Value reduce_scatter(std::string_view op, const Value& x, int64_t dimension, const Groups& groups);

  // --- private functions --------------------------------------------------------------------------------------------
  // body(arguments) is written as a private function of the operands' types, without what its results don't need. The function
  // is named by `name` and a fingerprint of its text, so equal calls share one, and the same program has the same text.
  Values call(std::string_view name, const Values& operands, const Region& body);
  // stablehlo.composite `name`, which is decomposed into that function. Attribute values in MLIR syntax (hlo/attribute.h).
  Values composite(std::string_view name, const std::map<std::string, std::string>& attributes, const Values& operands,
                   const Region& body);
  // For a consumer that doesn't know the op: composites are calls from now on.
  void set_composites_as_calls();
  // What `emit` emits here, without what the values that it gives don't need. Other values of it must not be used.
  Values needed(const std::function<Values()>& emit);

 private:
  struct Impl;
  Impl* impl_;
};

// The module without what set_location added: equal for programs that differ in the user's file and lines alone.
std::string without_locations(std::string_view module);

}  // namespace tpjrt::hlo
