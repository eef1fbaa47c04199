// Ops that combine elements with a region: reduce, reduce_window, select_and_scatter, sort; and top_k.
#include "hlo/builder_text.h"

namespace tpjrt::hlo {

namespace {

// Returns the element types as scalars. Fails unless all operands have the first one's dims.
std::vector<Type> scalars_of(std::string_view op, const Values& xs) {
  check(!xs.empty(), op, "has no operand");
  std::vector<Type> scalars;
  for (const Value& x : xs) {
    check(x.dims() == xs[0].dims(), op, "operands of types ", types(xs));
    scalars.push_back({x.element(), {}});
  }
  return scalars;
}

void check_initial(std::string_view op, const Values& initial, const std::vector<Type>& scalars) {
  check(initial.size() == scalars.size(), op, initial.size(), " initial values for ", scalars.size(), " operands");
  for (size_t i = 0; i < scalars.size(); ++i) {
    check(initial[i].type == scalars[i], op, "initial value ", i, " of type ", initial[i].type, ", expected ",
          scalars[i]);
  }
}

std::vector<Type> twice(std::vector<Type> types) {
  const size_t n = types.size();
  for (size_t i = 0; i < n; ++i) types.push_back(types[i]);
  return types;
}

Values joined(Values a, const Values& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Dims window_result(std::string_view op, const Dims& dims, const Window& w) {
  const size_t rank = dims.size();
  check(w.dimensions.size() == rank && w.strides.size() == rank && w.padding.size() == rank &&
            w.base_dilations.size() == rank && w.window_dilations.size() == rank,
        op, "the window needs one entry for each of ", rank, " dimensions");
  Dims result;
  for (size_t i = 0; i < rank; ++i) {
    check(w.dimensions[i] > 0 && w.strides[i] > 0 && w.base_dilations[i] > 0 && w.window_dilations[i] > 0, op,
          "window sizes, strides and dilations must be positive in dimension ", i);
    int64_t base = dims[i] == 0 ? 0 : (dims[i] - 1) * w.base_dilations[i] + 1;
    int64_t padded = base + w.padding[i].first + w.padding[i].second;
    int64_t window = (w.dimensions[i] - 1) * w.window_dilations[i] + 1;
    result.push_back(padded < window ? 0 : (padded - window) / w.strides[i] + 1);
  }
  return result;
}

}  // namespace

Values Builder::reduce(const Values& xs, const Values& initial, const Dims& dimensions, const Region& body) {
  const std::vector<Type> scalars = scalars_of("reduce", xs);
  check_initial("reduce", initial, scalars);
  check_dimensions("reduce", "dimensions", dimensions, xs[0].rank());
  std::vector<Type> results;
  for (const Value& x : xs) results.push_back({x.element(), without(x.dims(), dimensions)});
  const Values operands = joined(xs, initial);
  std::string uses = impl_->uses("reduce", operands);
  std::string block = impl_->region("reduce", twice(scalars), body, scalars);
  return impl_->emit(results, "\"stablehlo.reduce\"(", uses, ") <{dimensions = ", array(dimensions), "}> (", block,
                     ") : ", arrow(operands, results));
}

Value Builder::reduce(std::string_view op, const Value& x, const Value& initial, const Dims& dimensions) {
  check_initial("reduce", {initial}, {{x.element(), {}}});
  check_dimensions("reduce", "dimensions", dimensions, x.rank());
  if (dimensions.empty()) return x;
  Type result{x.element(), without(x.dims(), dimensions)};
  return impl_->emit(result, "stablehlo.reduce(", impl_->use("reduce", x), " init: ", impl_->use("reduce", initial),
                     ") applies stablehlo.", op, " across dimensions = ", dimensions, " : ",
                     arrow({&x.type, &initial.type}, result));
}

Values Builder::reduce_window(const Values& xs, const Values& initial, const Window& window, const Region& body) {
  const std::vector<Type> scalars = scalars_of("reduce_window", xs);
  check_initial("reduce_window", initial, scalars);
  const Dims dims = window_result("reduce_window", xs[0].dims(), window);
  std::vector<Type> results;
  for (const Value& x : xs) results.push_back({x.element(), dims});
  const Values operands = joined(xs, initial);
  std::string uses = impl_->uses("reduce_window", operands);
  std::string block = impl_->region("reduce_window", twice(scalars), body, scalars);
  return impl_->emit(results, "\"stablehlo.reduce_window\"(", uses,
                     ") <{base_dilations = ", array(window.base_dilations), ", padding = ", pairs(window.padding),
                     ", window_dilations = ", array(window.window_dilations),
                     ", window_dimensions = ", array(window.dimensions), ", window_strides = ", array(window.strides),
                     "}> (", block, ") : ", arrow(operands, results));
}

Value Builder::select_and_scatter(const Value& operand, const Value& source, const Value& initial, const Window& window,
                                  const Region& select, const Region& scatter) {
  const Type scalar{operand.element(), {}};
  check_initial("select_and_scatter", {initial}, {scalar});
  Window plain = window;  // the op has no dilations
  plain.base_dilations.assign(operand.dims().size(), 1);
  plain.window_dilations.assign(operand.dims().size(), 1);
  for (const Dims& dilations : {window.base_dilations, window.window_dilations}) {
    check(dilations.empty() || dilations == plain.base_dilations, "select_and_scatter", "has no dilations");
  }
  const Type expected{operand.element(), window_result("select_and_scatter", operand.dims(), plain)};
  check(source.type == expected, "select_and_scatter", "source of type ", source.type, ", expected ", expected);
  const Values operands{operand, source, initial};
  std::string uses = impl_->uses("select_and_scatter", operands);
  std::string first =
      impl_->region("select_and_scatter", {scalar, scalar}, select, std::vector<Type>{{ElementType::kPred, {}}});
  std::string second = impl_->region("select_and_scatter", {scalar, scalar}, scatter, std::vector<Type>{scalar});
  return impl_->emit(operand.type, "\"stablehlo.select_and_scatter\"(", uses, ") <{padding = ", pairs(window.padding),
                     ", window_dimensions = ", array(window.dimensions), ", window_strides = ", array(window.strides),
                     "}> (", first, ", ", second, ") : ", arrow(operands, operand.type));
}

Values Builder::sort(const Values& xs, int64_t dimension, bool is_stable, const Region& comparator) {
  std::vector<Type> arguments, results;
  for (const Type& scalar : scalars_of("sort", xs)) arguments.insert(arguments.end(), {scalar, scalar});
  for (const Value& x : xs) results.push_back(x.type);
  check_dimensions("sort", "dimension", {dimension}, xs[0].rank());
  std::string uses = impl_->uses("sort", xs);
  std::string block = impl_->region("sort", arguments, comparator, std::vector<Type>{{ElementType::kPred, {}}});
  return impl_->emit(results, "\"stablehlo.sort\"(", uses, ") <{dimension = ", dimension,
                     " : i64, is_stable = ", is_stable ? "true" : "false", "}> (", block, ") : ", arrow(xs, results));
}

std::pair<Value, Value> Builder::top_k(const Value& x, int64_t k) {
  check(x.rank() > 0 && k >= 0 && k <= x.dims().back(), "chlo.top_k", "k = ", k, " for ", x.type);
  Type values = x.type;
  values.dims.back() = k;
  Type indices{ElementType::kS32, values.dims};
  Values results = impl_->emit({values, indices}, "chlo.top_k(", impl_->use("chlo.top_k", x), ", k = ", k,
                               ") : ", x.type, " -> (", values, ", ", indices, ")");
  return {results[0], results[1]};
}

}  // namespace tpjrt::hlo
