// Modules that the tests of the builder compile and run.
#include "modules.h"

#include "hlo/type.h"

#include <limits>

namespace tpjrt::hlo::test {

namespace {

Window window(Dims sizes, Dims strides) {
  const size_t rank = sizes.size();
  return {std::move(sizes), std::move(strides), Dims(rank, 1), Dims(rank, 1),
          std::vector<std::pair<int64_t, int64_t>>(rank, {0, 1})};
}

void add_elementwise(std::vector<Module>& all) {
  for (const char* op : {"abs",
                         "cbrt",
                         "ceil",
                         "cosine",
                         "exponential",
                         "exponential_minus_one",
                         "floor",
                         "is_finite",
                         "log",
                         "log_plus_one",
                         "logistic",
                         "negate",
                         "round_nearest_afz",
                         "round_nearest_even",
                         "rsqrt",
                         "sign",
                         "sine",
                         "sqrt",
                         "tan",
                         "tanh",
                         "chlo.erf",
                         "chlo.erfc",
                         "chlo.erf_inv",
                         "chlo.lgamma",
                         "chlo.digamma",
                         "chlo.sinh",
                         "chlo.cosh",
                         "chlo.asin",
                         "chlo.acos",
                         "chlo.atan",
                         "chlo.asinh",
                         "chlo.acosh",
                         "chlo.atanh",
                         "chlo.bessel_i1e",
                         "chlo.is_inf"}) {
    all.push_back({op, [op](Builder& b) -> Values { return {b.unary(op, b.parameter(f32({2, 3})))}; }});
  }
  for (const char* op : {"count_leading_zeros", "not", "popcnt"}) {
    all.push_back({op, [op](Builder& b) -> Values { return {b.unary(op, b.parameter(s32({2, 3})))}; }});
  }
  for (const char* op : {"real", "imag", "abs"}) {
    all.push_back({op, [op](Builder& b) -> Values { return {b.unary(op, b.parameter({ElementType::kC64, {4}}))}; }});
  }
  for (const char* op : {"add", "atan2", "divide", "maximum", "minimum", "multiply", "power", "remainder", "subtract",
                         "chlo.next_after", "chlo.polygamma", "chlo.zeta"}) {
    all.push_back({op, [op](Builder& b) -> Values {
                     Value x = b.parameter(f32({2, 3}));
                     return {b.binary(op, x, x)};
                   }});
  }
  for (const char* op : {"and", "or", "xor", "shift_left", "shift_right_arithmetic", "shift_right_logical"}) {
    all.push_back({op, [op](Builder& b) -> Values {
                     Value x = b.parameter(s32({2, 3}));
                     return {b.binary(op, x, x)};
                   }});
  }
  for (ElementType element : {ElementType::kF32, ElementType::kS64, ElementType::kU8, ElementType::kPred}) {
    all.push_back({"compare", [element](Builder& b) -> Values {
                     Value x = b.parameter({element, {3}});
                     return {b.compare(Comparison::kLe, x, x)};
                   }});
    all.push_back({"convert", [element](Builder& b) -> Values {
                     Value x = b.parameter({element, {3}});
                     return {b.convert(x, ElementType::kC64), b.convert(x, ElementType::kF8E4M3FN)};
                   }});
  }
  all.push_back({"select", [](Builder& b) -> Values {
                   Value x = b.parameter(f32({3}));
                   return {b.select(b.parameter(pred({})), x, b.select(b.parameter(pred({3})), x, x))};
                 }});
  all.push_back({"clamp", [](Builder& b) -> Values {
                   Value x = b.parameter(f32({3}));
                   return {b.clamp(b.parameter(f32({})), x, b.parameter(f32({})))};
                 }});
  all.push_back({"complex", [](Builder& b) -> Values {
                   Value x = b.parameter(f32({3}));
                   return {b.complex(x, x)};
                 }});
  all.push_back({"bitcast_convert", [](Builder& b) -> Values {
                   Value x = b.parameter(f32({3}));
                   Value bytes = b.bitcast_convert(x, {ElementType::kU8, {3, 4}});
                   return {bytes, b.bitcast_convert(bytes, s32({3}))};
                 }});
}

void add_constants(std::vector<Module>& all) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (ElementType element : {ElementType::kF8E4M3FN, ElementType::kF8E4M3FNUZ, ElementType::kF8E5M2,
                              ElementType::kF8E5M2FNUZ, ElementType::kF8E8M0FNU, ElementType::kF16, ElementType::kBF16,
                              ElementType::kF32, ElementType::kF64, ElementType::kC64, ElementType::kC128}) {
    all.push_back({"constant", [=](Builder& b) -> Values {
                     const Type type{element, {2}};
                     return {b.constant(0.1, type),       b.constant(infinity, type),
                             b.constant(-infinity, type), b.constant(std::numeric_limits<double>::quiet_NaN(), type),
                             b.constant(1e-5, type),      b.constant(-7, type)};
                   }});
  }
  all.push_back({"constant", [](Builder& b) -> Values {
                   std::vector<int64_t> many(1000, -2);
                   std::vector<double> floats(1000, 0.5);
                   return {b.constant_u64(~uint64_t{0}, {ElementType::kU64, {}}),
                           b.constant(-1, {ElementType::kU8, {}}),
                           b.constant_complex(1, -0.0, {ElementType::kC64, {2}}),
                           b.constant(1, pred({2})),
                           b.constant_dense(std::vector<int64_t>{1, 2, 3, 4}, s32({2, 2})),
                           b.constant_dense(std::vector<int64_t>{1, 0}, pred({2})),
                           b.constant_dense(many, s32({1000})),
                           b.constant_dense(floats, f32({10, 100})),
                           b.constant_dense(std::vector<int64_t>{}, s32({0, 2})),
                           b.constant(1.0, f32({0})),
                           b.constant_dense(std::vector<double>{0.5, -0.0}, f32({2})),
                           b.iota(s64({2, 3}), 1)};
                 }});
}

void add_shape(std::vector<Module>& all) {
  all.push_back({"reshape", [](Builder& b) -> Values { return {b.reshape(b.parameter(f32({2, 3})), {3, 2})}; }});
  all.push_back(
      {"transpose", [](Builder& b) -> Values { return {b.transpose(b.parameter(f32({2, 3, 4})), {2, 0, 1})}; }});
  all.push_back({"broadcast_in_dim",
                 [](Builder& b) -> Values { return {b.broadcast_in_dim(b.parameter(f32({3})), {2, 3}, {1})}; }});
  all.push_back(
      {"slice", [](Builder& b) -> Values { return {b.slice(b.parameter(f32({6, 4})), {0, 1}, {6, 3}, {2, 1})}; }});
  all.push_back({"pad", [](Builder& b) -> Values {
                   return {b.pad(b.parameter(f32({6, 4})), b.parameter(f32({})), {1, -1}, {0, 2}, {0, 1})};
                 }});
  all.push_back({"reverse", [](Builder& b) -> Values { return {b.reverse(b.parameter(f32({6, 4})), {1})}; }});
  all.push_back({"concatenate", [](Builder& b) -> Values {
                   return {b.concatenate({b.parameter(f32({6, 4})), b.parameter(f32({6, 1}))}, 1)};
                 }});
  all.push_back({"dynamic_slice", [](Builder& b) -> Values {
                   Value x = b.parameter(f32({6, 4})), i = b.parameter(s32({}));
                   Value part = b.dynamic_slice(x, {i, i}, {2, 2});
                   return {part, b.dynamic_update_slice(x, part, {i, i})};
                 }});
}

void add_indexing(std::vector<Module>& all) {
  all.push_back({"gather", [](Builder& b) -> Values {
                   GatherDimensions d;
                   d.offset_dims = {1};
                   d.collapsed_slice_dims = {0};
                   d.start_index_map = {0};
                   d.index_vector_dim = 1;
                   return {b.gather(b.parameter(f32({6, 4})), b.parameter(s64({5})), d, {1, 4})};
                 }});
  all.push_back({"gather", [](Builder& b) -> Values {
                   GatherDimensions d;
                   d.collapsed_slice_dims = {1};
                   d.operand_batching_dims = {0};
                   d.start_indices_batching_dims = {0};
                   d.start_index_map = {1};
                   d.index_vector_dim = 2;
                   return {b.gather(b.parameter(f32({6, 4})), b.parameter(s64({6, 3})), d, {1, 1})};
                 }});
  all.push_back({"scatter", [](Builder& b) -> Values {
                   ScatterDimensions d;
                   d.update_window_dims = {1};
                   d.inserted_window_dims = {0};
                   d.scatter_dims_to_operand_dims = {0};
                   d.index_vector_dim = 1;
                   return b.scatter({b.parameter(f32({6, 4}))}, b.parameter(s64({5})), {b.parameter(f32({5, 4}))}, d,
                                    [&](const Values& a) -> Values { return {b.binary("add", a[0], a[1])}; });
                 }});
}

void add_reductions(std::vector<Module>& all) {
  all.push_back({"reduce", [](Builder& b) -> Values {
                   return {b.reduce("add", b.parameter(f32({6, 4})), b.constant(0.0, f32({})), {0})};
                 }});
  all.push_back({"reduce", [](Builder& b) -> Values {  // argmax
                   Value x = b.parameter(f32({6, 4}));
                   return b.reduce({x, b.iota(s64({6, 4}), 1)}, {b.constant(0.0, f32({})), b.constant(0, s64({}))}, {1},
                                   [&](const Values& a) -> Values {
                                     Value greater = b.compare(Comparison::kGt, a[2], a[0]);
                                     return {b.select(greater, a[2], a[0]), b.select(greater, a[3], a[1])};
                                   });
                 }});
  all.push_back({"reduce_window", [](Builder& b) -> Values {
                   return b.reduce_window({b.parameter(f32({6, 4}))}, {b.constant(0.0, f32({}))},
                                          window({2, 2}, {2, 1}),
                                          [&](const Values& a) -> Values { return {b.binary("add", a[0], a[1])}; });
                 }});
  all.push_back({"select_and_scatter", [](Builder& b) -> Values {
                   return {b.select_and_scatter(
                       b.parameter(f32({6, 4})), b.parameter(f32({3, 4})), b.constant(0.0, f32({})),
                       window({2, 2}, {2, 1}),
                       [&](const Values& a) -> Values { return {b.compare(Comparison::kGe, a[0], a[1])}; },
                       [&](const Values& a) -> Values { return {b.binary("add", a[0], a[1])}; })};
                 }});
  all.push_back({"sort", [](Builder& b) -> Values {
                   return b.sort({b.parameter(f32({6, 4})), b.iota(s32({6, 4}), 1)}, 1, true,
                                 [&](const Values& a) -> Values { return {b.compare(Comparison::kLt, a[0], a[1])}; });
                 }});
  all.push_back({"chlo.top_k", [](Builder& b) -> Values {
                   auto [values, indices] = b.top_k(b.parameter(f32({6, 4})), 2);
                   return {values, indices};
                 }});
}

void add_linalg(std::vector<Module>& all) {
  all.push_back({"dot_general", [](Builder& b) -> Values {
                   return {b.dot_general(b.parameter(f32({5, 2, 3})), b.parameter(f32({5, 3, 4})), {{0}, {0}, {2}, {1}},
                                         ElementType::kF32, "HIGHEST")};
                 }});
  all.push_back({"convolution", [](Builder& b) -> Values {
                   ConvolutionDimensions d;
                   d.input_spatial = d.kernel_spatial = d.output_spatial = {2, 3};
                   ConvolutionWindow w{{2, 1}, {{1, 1}, {0, -1}}, {1, 1}, {1, 2}, {false, true}, 2, 1};
                   return {b.convolution(b.parameter(f32({1, 4, 8, 8})), b.parameter(f32({6, 2, 3, 3})), d, w,
                                         ElementType::kF32)};
                 }});
  all.push_back({"cholesky", [](Builder& b) -> Values { return {b.cholesky(b.parameter(f32({2, 3, 3})), true)}; }});
  all.push_back({"triangular_solve", [](Builder& b) -> Values {
                   return {b.triangular_solve(b.parameter(f32({3, 3})), b.parameter(f32({3, 2})), true, true, false,
                                              "NO_TRANSPOSE")};
                 }});
  all.push_back({"fft", [](Builder& b) -> Values {
                   Value spectrum = b.fft(b.parameter(f32({2, 8})), "RFFT", {8});
                   return {b.fft(spectrum, "IRFFT", {8}), b.fft(spectrum, "FFT", {2, 5})};
                 }});
}

void add_control(std::vector<Module>& all) {
  all.push_back({"while", [](Builder& b) -> Values {
                   Value limit = b.constant(10, s32({}));
                   return b.while_loop(
                       {b.parameter(s32({})), b.parameter(f32({2}))},
                       [&](const Values& a) -> Values { return {b.compare(Comparison::kLt, a[0], limit)}; },
                       [&](const Values& a) -> Values {
                         return {b.binary("add", a[0], b.constant(1, s32({}))), b.binary("add", a[1], a[1])};
                       });
                 }});
  all.push_back({"if", [](Builder& b) -> Values {
                   Value p = b.parameter(pred({})), x = b.parameter(f32({2}));
                   return b.if_else(
                       p, [&](const Values&) -> Values { return {x, x}; },
                       [&](const Values&) -> Values { return {b.unary("negate", x), x}; });
                 }});
  for (ElementType element : {ElementType::kU8, ElementType::kU16, ElementType::kU32, ElementType::kU64}) {
    all.push_back({"rng_bit_generator", [element](Builder& b) -> Values {
                     auto [state, bits] =
                         b.rng_bit_generator("PHILOX", b.parameter({ElementType::kU64, {2}}), {element, {5}});
                     return {state, bits};
                   }});
  }
  all.push_back({"custom_call", [](Builder& b) -> Values {
                   return b.custom_call("Sharding", {b.parameter(f32({2}))}, {f32({2})},
                                        {{"mhlo.sharding", "\"{replicated}\""}});
                 }});
  const auto body = [](Builder& b) {
    return [&b](const Values& a) -> Values {
      const Value sum = b.binary("add", a[0], a[1]);
      return {sum, b.unary("tanh", sum)};
    };
  };
  all.push_back({"call", [body](Builder& b) -> Values {
                   Value x = b.parameter(f32({2}));
                   return b.call("sums", {x, x}, body(b));
                 }});
  all.push_back({"composite", [body](Builder& b) -> Values {
                   Value x = b.parameter(f32({2})), y = b.parameter(f32({2}));
                   return b.composite("test.outer",
                                      {{"eps", attribute(1e-5)},
                                       {"dims", attribute(Dims{0})},
                                       {"mask", attribute(std::vector<bool>{true, false})},
                                       {"names", attribute(std::vector<std::string>{"x", "y"})},
                                       {"scales", attribute(std::vector<double>{0.5, 1e300})},
                                       {"mode", attribute("tanh")},
                                       {"on", attribute(true)}},
                                      {x, y}, [&](const Values& a) -> Values {
                                        return b.composite("test.inner", {}, {a[1], a[0]}, body(b));
                                      });
                 }});
  all.push_back({"optimization_barrier", [](Builder& b) -> Values {
                   return b.optimization_barrier({b.parameter(f32({2})), b.parameter(s32({}))});
                 }});
}

}  // namespace

const std::vector<Module>& modules() {
  static const std::vector<Module> all = [] {
    std::vector<Module> all;
    add_elementwise(all);
    add_constants(all);
    add_shape(all);
    add_indexing(all);
    add_reductions(all);
    add_linalg(all);
    add_control(all);
    return all;
  }();
  return all;
}

}  // namespace tpjrt::hlo::test
