// PyTorch's semantics on top of the builder: conversion, broadcasting, sums, and indexing idioms.
#include "ops/rule/emit.h"

#include <c10/util/Float8_e4m3fn.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/rule/by_aten.h"
#include "ops/rule/dims.h"

namespace tpjrt::ops {

using hlo::Comparison;

Type Emit::type_of(const graph::TensorType& type) const {
  return {element_of(type.dtype), Dims(type.sizes.begin(), type.sizes.end())};
}

// --- broadcasting and conversion ------------------------------------------------------------------------------------

Value Emit::broadcast_to(const Value& x, const Dims& dims) {
  if (x.dims() == dims) return x;
  const int64_t offset = static_cast<int64_t>(dims.size()) - x.rank();
  if (offset < 0) {
    throw hlo::Error("[broadcast_to] " + hlo::to_string(x.type) + " has more dimensions than its target");
  }
  Dims positions = range(0, x.rank());
  for (int64_t& p : positions) p += offset;
  return broadcast_in_dim(x, dims, positions);
}

Value Emit::splat(double value, const Type& like) { return constant(value, like); }

Value Emit::zeros(const Type& type) { return constant(0, type); }

Value Emit::ones(const Type& type) { return constant(1, type); }

Value Emit::as(const Value& x, const graph::TensorType& result) {
  const Type type = type_of(result);
  return broadcast_to(to(x, type.element), type.dims);
}

Value Emit::to(const Value& x, ElementType element) {
  if (x.element() == element) return x;
  if (element == ElementType::kPred) return compare(Comparison::kNe, x, zeros(x.type));
  Value source = x;
  if (hlo::is_complex(source.element()) && !hlo::is_complex(element)) {
    source = unary("real", source);
    if (source.element() == element) return source;
  }
  // A float outside the range of a narrow integer wraps in torch, as in C on most machines; convert would saturate.
  if (hlo::is_float(source.element()) && hlo::is_integer(element) && hlo::byte_width(element) < 4) {
    source = convert(source, ElementType::kS32);
  }
  return convert(source, element);
}

ElementType Emit::compute_element(ElementType element) {
  return hlo::is_float(element) && hlo::byte_width(element) < 4 ? ElementType::kF32 : element;
}

Value Emit::unsqueeze(const Value& x, int64_t dim) {
  Dims dims = x.dims();
  dims.insert(dims.begin() + dim, 1);
  return reshape(x, dims);
}

Value Emit::slice_dim(const Value& x, int64_t dim, int64_t begin, int64_t end) {
  if (begin == 0 && end == x.dim(dim)) return x;
  Dims start(x.dims().size(), 0), limit = x.dims();
  start[static_cast<size_t>(dim)] = begin;
  limit[static_cast<size_t>(dim)] = end;
  return slice(x, start, limit, Dims(x.dims().size(), 1));
}

Value Emit::convert(const Value& x, ElementType element) {
  if (x.element() == element) return x;
  // Keeps the transpose visible to products of the converted value, as the builder does.
  if (const Moved* moved = moved_from(x)) return transpose(convert(moved->from, element), moved->permutation);
  const bool integer = hlo::is_integer(x.element());
  if (integer && hlo::is_float(element) && hlo::byte_width(element) > 1) {
    Value y = element == ElementType::kBF16 ? backend_->bfloat16_of(*this, x) : Builder::convert(x, element);
    if (x.element() == ElementType::kS8) narrow_.emplace(y.id, x);
    return y;
  }
  // XLA converts numbers too large for float8_e4m3fn to NaN, as torch does before 2.13. Since then torch gives the
  // largest number.
  static const bool saturates = !std::isnan(static_cast<float>(c10::Float8_e4m3fn(1e9F)));
  // float8_e8m0fnu holds exponents alone: XLA converts 0 and negative numbers to NaN, torch to the least number and
  // the magnitude.
  if (x.element() == ElementType::kF8E8M0FNU) return convert(Builder::convert(x, ElementType::kF32), element);
  if (element == ElementType::kF8E8M0FNU) {
    const Value wide = convert(x, ElementType::kF32);
    const Value zero = zeros({wide.element(), wide.dims()}), least = constant(0, {element, x.dims()});
    return select(compare(Comparison::kEq, wide, zero), least, Builder::convert(unary("abs", wide), element));
  }
  // XLA rewrites the product of y with a converted predicate as a select between y and 0, which loses y's NaN.
  if (x.element() == ElementType::kPred && !hlo::is_integer(element) && element != ElementType::kPred)
    return convert(Builder::convert(x, ElementType::kS32), element);
  // Converts by way of float32, rounding twice as torch does. XLA:CPU has no quick conversion of its own.
  if (x.element() == ElementType::kF64 && compute_element(element) == ElementType::kF32 && element != ElementType::kF32)
    return convert(Builder::convert(x, ElementType::kF32), element);
  if (element != ElementType::kF8E4M3FN || !saturates || !(hlo::is_float(x.element()) || integer)) {
    Value y = Builder::convert(x, element);
    const bool is_wide = hlo::is_float(element) && hlo::byte_width(element) > 1;
    if (x.element() == ElementType::kF8E4M3FN && is_wide) narrow_.emplace(y.id, x);
    if (const Applied* scaled = scaled_from(x); scaled != nullptr && is_wide) set_scaled(y, Applied(*scaled));
    return y;
  }
  const Type wide{integer ? ElementType::kF32 : compute_element(x.element()), {}};
  Value limited = clamp(constant(-448.0, wide), Builder::convert(x, wide.element), constant(448.0, wide));
  return Builder::convert(limited, element);
}

Value Emit::pad_dim(const Value& x, int64_t dim, int64_t low, int64_t high, int64_t interior) {
  if (low == 0 && high == 0 && interior == 0) return x;
  Dims lows(x.dims().size(), 0), highs = lows, interiors = lows;
  lows[static_cast<size_t>(dim)] = low;
  highs[static_cast<size_t>(dim)] = high;
  interiors[static_cast<size_t>(dim)] = interior;
  return pad(x, zeros({x.element(), {}}), lows, highs, interiors);
}

Value Emit::broadcast_reduced(const Value& reduced, const Dims& reduced_dims, const Dims& dims) {
  Dims kept;
  for (int64_t d : range(0, static_cast<int64_t>(dims.size()))) {
    if (std::find(reduced_dims.begin(), reduced_dims.end(), d) == reduced_dims.end()) kept.push_back(d);
  }
  return broadcast_in_dim(reduced, dims, kept);
}

// --- arithmetic -----------------------------------------------------------------------------------------------------

Value Emit::isnan(const Value& a) {
  if (!hlo::is_float(a.element()) && !hlo::is_complex(a.element())) return constant(0, {ElementType::kPred, a.dims()});
  return compare(Comparison::kNe, a, a);
}

namespace {

// Returns the extreme value of `element`, 0-d; the largest if `high`.
Value extreme(Emit& e, ElementType element, bool high) {
  const Type type{element, {}};
  if (element == ElementType::kPred) return e.constant(high ? 1 : 0, type);
  if (element == ElementType::kF8E8M0FNU) return e.constant(high ? 0x1p127 : 0, type);
  if (hlo::is_complex(element)) throw Unsupported("complex numbers have no order");
  if (element == ElementType::kF8E4M3FN || element == ElementType::kF8E4M3FNUZ || element == ElementType::kF8E5M2FNUZ) {
    // These dtypes have no infinity.
    double largest = element == ElementType::kF8E4M3FN ? 448 : element == ElementType::kF8E4M3FNUZ ? 240 : 57344;
    return e.constant(high ? largest : -largest, type);
  }
  if (hlo::is_float(element)) {
    double infinity = std::numeric_limits<double>::infinity();
    return e.constant(high ? infinity : -infinity, type);
  }
  const int64_t bits = 8 * hlo::byte_width(element);
  if (hlo::is_unsigned_integer(element)) return e.constant_u64(high ? ~uint64_t{0} >> (64 - bits) : 0, type);
  int64_t largest = std::numeric_limits<int64_t>::max() >> (64 - bits);
  return e.constant(high ? largest : -largest - 1, type);
}

}  // namespace

Value Emit::lowest(ElementType element) { return extreme(*this, element, false); }

Value Emit::highest(ElementType element) { return extreme(*this, element, true); }

// --- reductions -----------------------------------------------------------------------------------------------------

Value Emit::sum(const Value& x, const Dims& dims) {
  if (dims.empty()) return x;
  return upcast(x, [&](const Value& y) { return backend_->sum(*this, y, dims); });
}

Value Emit::mean(const Value& x, const Dims& dims) {
  int64_t count = 1;
  for (int64_t d : dims) count *= x.dim(d);
  return upcast(x, [&](const Value& y) {
    if (auto of_rows = library_reduced_rows(*this, "mean", y, dims)) return *of_rows;
    Value total = sum(y, dims);
    return div(total, splat(static_cast<double>(count), total.type));
  });
}

Value Emit::max(const Value& x, const Dims& dims) {
  if (dims.empty()) return x;
  return upcast(x, [&](const Value& y) { return backend_->extreme(*this, "maximum", y, lowest(y.element()), dims); });
}

Value Emit::min(const Value& x, const Dims& dims) {
  if (dims.empty()) return x;
  return upcast(x, [&](const Value& y) { return backend_->extreme(*this, "minimum", y, highest(y.element()), dims); });
}

Value Emit::cumulative(const Value& x, int64_t dim, std::string_view op, double initial) {
  if (x.rank() == 0 || x.dim(dim) <= 1 || x.type.elements() == 0) return x;
  Value identity = std::isinf(initial) ? (initial < 0 ? lowest(x.element()) : highest(x.element()))
                                       : constant(initial, {x.element(), {}});
  // The window ends at each element and begins before the first.
  const Dims ones(x.dims().size(), 1);
  hlo::Window window{ones, ones, ones, ones, {}};
  window.padding.resize(ones.size());
  window.dimensions[static_cast<size_t>(dim)] = x.dim(dim);
  window.padding[static_cast<size_t>(dim)] = {x.dim(dim) - 1, 0};
  auto body = [&](const Values& pair) -> Values { return {binary(op, pair[0], pair[1])}; };
  return reduce_window({x}, {identity}, window, body)[0];
}

// --- indexing -------------------------------------------------------------------------------------------------------

Value Emit::take(const Value& x, const Value& indices, int64_t dim) {
  if (x.rank() == 0) return broadcast_to(x, indices.dims());
  if (x.dim(dim) == 0 && indices.type.elements() > 0) throw Mistake("an index into a dimension of size 0");
  hlo::GatherDimensions d;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i != dim) d.offset_dims.push_back(i);
  }
  d.collapsed_slice_dims = {dim};
  d.start_index_map = {dim};
  d.index_vector_dim = indices.rank();
  Dims sizes = x.dims();
  sizes[static_cast<size_t>(dim)] = std::min<int64_t>(1, x.dim(dim));
  if (x.dim(dim) == 0 || indices.type.elements() == 0) {
    Dims dims = x.dims();
    dims[static_cast<size_t>(dim)] = indices.dim(0);
    return zeros({x.element(), dims});
  }
  return gather(x, indices, d, sizes);
}

Value Emit::gather_along(const Value& x, const Value& indices, int64_t dim) {
  if (x.rank() == 0 || indices.rank() == 0) return reshape(x, indices.dims());
  if (indices.type.elements() == 0) return zeros({x.element(), indices.dims()});
  if (x.dim(dim) == 0) throw Mistake("an index into a dimension of size 0");
  // Every other dimension is a batch dimension; indices may cover only the beginning of it.
  Dims limit = indices.dims();
  limit[static_cast<size_t>(dim)] = x.dim(dim);
  Value covered = slice(x, Dims(limit.size(), 0), limit, Dims(limit.size(), 1));
  hlo::GatherDimensions d;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i != dim) d.operand_batching_dims.push_back(i);
  }
  d.start_indices_batching_dims = d.operand_batching_dims;
  d.collapsed_slice_dims = {dim};
  d.start_index_map = {dim};
  d.index_vector_dim = indices.rank();
  return gather(covered, indices, d, Dims(limit.size(), 1));
}

// --- the CPU's kernels ----------------------------------------------------------------------------------------------

Values Emit::call_kernel(std::string_view name, const Values& operands, const std::vector<Type>& results,
                         const std::map<std::string, std::string>& attributes, const Orders& orders,
                         std::optional<size_t> written_over) {
  if (target_ != Target::kCpuWithKernels) throw hlo::Error("[" + std::string(name) + "] there are no kernels");
  ++kernel_calls_[{op_, std::string(name)}];
  const auto layouts_of = [](const auto& all, const std::vector<Dims>& given, const auto& dims_of) {
    std::string layouts;
    for (size_t i = 0; i < all.size(); ++i) {
      const auto rank = static_cast<int64_t>(dims_of(all[i]).size());
      Dims fastest_first = i < given.size() ? given[i] : Dims();
      for (int64_t d = rank - 1; d >= 0 && std::ssize(fastest_first) < rank; --d) fastest_first.push_back(d);
      std::string order;
      for (const int64_t d : fastest_first) order += (order.empty() ? "" : ", ") + std::to_string(d);
      layouts += (layouts.empty() ? "" : ", ") + ("dense<" + (rank == 0 ? "" : "[" + order + "]")) + "> : tensor<" +
                 std::to_string(rank) + "xindex>";
    }
    return "[" + layouts + "]";
  };
  std::string dictionary;
  for (const auto& [key, value] : attributes) dictionary += (dictionary.empty() ? "" : ", ") + key + " = " + value;
  std::map<std::string, std::string> about{
      {"api_version", "4 : i32"},
      {"backend_config", "{" + dictionary + "}"},
      {"operand_layouts",
       layouts_of(operands, orders.operands, [](const Value& x) -> const Dims& { return x.dims(); })},
      {"result_layouts",
       layouts_of(results, orders.results, [](const Type& type) -> const Dims& { return type.dims; })}};
  if (written_over) {
    about["output_operand_aliases"] =
        "[#stablehlo.output_operand_alias<output_tuple_indices = [" + std::string(results.size() > 1 ? "0" : "") +
        "], operand_index = " + std::to_string(*written_over) + ", operand_tuple_indices = []>]";
  }
  return custom_call(name, operands, results, about);
}

// --- assertions ---------------------------------------------------------------------------------------------------

Raises raised_by(std::string_view python_type) {
  if (python_type == "IndexError") return Raises::kIndexError;
  if (python_type == "ValueError") return Raises::kValueError;
  if (python_type == "TypeError") return Raises::kTypeError;
  if (python_type == "NotImplementedError") return Raises::kNotImplementedError;
  return python_type == "LinAlgError" ? Raises::kLinAlgError : Raises::kRuntimeError;
}

void Emit::require(const Value& integers, int64_t low, int64_t high, std::string message, bool index_error) {
  if (!requires_ || integers.type.elements() == 0) return;
  const Type word{ElementType::kS64, {}};
  Value x = convert(integers, word.element);
  Dims all;
  for (int64_t d = 0; d < x.rank(); ++d) all.push_back(d);
  assertions_.push_back({reshape(min(x, all), {}), reshape(max(x, all), {}), low, high, std::move(message),
                         index_error ? Raises::kIndexError : Raises::kRuntimeError});
}

void Emit::require_nothing_thrown(const Value& number) {
  if (requires_)
    assertions_.push_back(
        {.least = number, .greatest = number, .low = 0, .high = 1, .message = "", .raises = Raises::kThrown});
}

void Emit::require_all(const Value& predicates, std::string message, bool linalg_error) {
  if (!requires_) return;
  Dims all;
  for (int64_t d = 0; d < predicates.rank(); ++d) all.push_back(d);
  const Value holds = convert(predicates, ElementType::kS32);
  require(reduce("minimum", holds, ones({holds.element(), {}}), all), 1, 2, std::move(message), /*index_error=*/false);
  if (linalg_error) assertions_.back().raises = Raises::kLinAlgError;
}

std::vector<Assertion> Emit::requiring(const std::function<void()>& emit) {
  std::vector<Assertion> before = std::exchange(assertions_, {});
  emit();
  return std::exchange(assertions_, std::move(before));
}

void Emit::require_index(const Value& index, int64_t dim, int64_t size, bool wraps, bool index_error) {
  require(index, wraps ? -size : 0, size,
          "index {} is out of bounds for dimension " + std::to_string(dim) + " with size " + std::to_string(size),
          index_error);
}

}  // namespace tpjrt::ops
