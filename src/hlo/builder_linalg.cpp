// dot_general, convolution, cholesky, triangular_solve, fft.
#include "hlo/builder_text.h"

namespace tpjrt::hlo {

namespace {

// Formats "[b, f, 0, 1]": a letter or a spatial number for each dimension.
std::string labels(std::string_view op, int64_t first, char first_label, int64_t second, char second_label,
                   const Dims& spatial) {
  const size_t rank = spatial.size() + 2;
  std::vector<std::string> entries(rank);
  auto put = [&](int64_t at, std::string label) {
    check(at >= 0 && static_cast<size_t>(at) < rank && entries[static_cast<size_t>(at)].empty(), op,
          "dimension numbers do not name each dimension once");
    entries[static_cast<size_t>(at)] = std::move(label);
  };
  put(first, std::string(1, first_label));
  put(second, std::string(1, second_label));
  for (size_t i = 0; i < spatial.size(); ++i) put(spatial[i], std::to_string(i));
  std::string text = "[";
  for (size_t i = 0; i < rank; ++i) text += (i ? ", " : "") + entries[i];
  return text + "]";
}

std::string matrices(const Dims& dims) { return cat("of matrices ", dims); }

}  // namespace

Value Builder::dot_general(const Value& lhs_matrix, const Value& rhs_matrix, const DotDimensions& dimensions,
                           ElementType result, std::string_view precision) {
  DotDimensions d = dimensions;
  // A matrix that is transposed outside of the function and again inside of it would be copied twice.
  const auto without_transpose = [&](const Value& matrix, Dims& contracting) {
    const auto argument = impl_->transposed_arguments.find(matrix.id);
    if (argument == impl_->transposed_arguments.end() || !d.lhs_batch.empty() || contracting.size() != 1) return matrix;
    contracting[0] = 1 - contracting[0];
    return argument->second;
  };
  const Value lhs = without_transpose(lhs_matrix, d.lhs_contracting);
  const Value rhs = without_transpose(rhs_matrix, d.rhs_contracting);
  auto joined = [](Dims a, const Dims& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  const Dims lhs_named = joined(d.lhs_batch, d.lhs_contracting), rhs_named = joined(d.rhs_batch, d.rhs_contracting);
  check_dimensions("dot_general", "lhs dimensions", lhs_named, lhs.rank());
  check_dimensions("dot_general", "rhs dimensions", rhs_named, rhs.rank());
  check(d.lhs_batch.size() == d.rhs_batch.size() && lhs_named.size() == rhs_named.size(), "dot_general", "dimensions ",
        lhs_named, " and ", rhs_named);
  for (size_t i = 0; i < lhs_named.size(); ++i) {
    check(lhs.dim(lhs_named[i]) == rhs.dim(rhs_named[i]), "dot_general", "dimension ", lhs_named[i], " of ", lhs.type,
          " against dimension ", rhs_named[i], " of ", rhs.type);
  }
  Type type{result, {}};
  for (int64_t b : d.lhs_batch) type.dims.push_back(lhs.dim(b));
  for (int64_t size : joined(without(lhs.dims(), lhs_named), without(rhs.dims(), rhs_named))) type.dims.push_back(size);
  const auto batching = [&] {
    return d.lhs_batch.empty() ? "" : cat("batching_dims = ", d.lhs_batch, " x ", d.rhs_batch, ", ");
  };
  return impl_->emit(type, "stablehlo.dot_general ", impl_->uses("dot_general", lhs, rhs), ", ", batching,
                     "contracting_dims = ", d.lhs_contracting, " x ", d.rhs_contracting, ", precision = [", precision,
                     ", ", precision, "] : ", arrow({&lhs.type, &rhs.type}, type));
}

Value Builder::convolution(const Value& lhs, const Value& rhs, const ConvolutionDimensions& d,
                           const ConvolutionWindow& w, ElementType result, std::string_view precision) {
  const size_t spatial = d.input_spatial.size();
  check(lhs.dims().size() == spatial + 2 && rhs.dims().size() == spatial + 2 && d.kernel_spatial.size() == spatial &&
            d.output_spatial.size() == spatial,
        "convolution", "dimension numbers for ", spatial, " spatial dimensions, operands ", types({lhs, rhs}));
  check(w.strides.size() == spatial && w.padding.size() == spatial && w.lhs_dilation.size() == spatial &&
            w.rhs_dilation.size() == spatial && (w.reversal.empty() || w.reversal.size() == spatial),
        "convolution", "the window needs one entry for each of ", spatial, " spatial dimensions");
  std::string numbers =
      cat(labels("convolution", d.input_batch, 'b', d.input_feature, 'f', d.input_spatial), "x",
          labels("convolution", d.kernel_input_feature, 'i', d.kernel_output_feature, 'o', d.kernel_spatial), "->",
          labels("convolution", d.output_batch, 'b', d.output_feature, 'f', d.output_spatial));
  check(lhs.dim(d.input_feature) == rhs.dim(d.kernel_input_feature) * w.feature_groups, "convolution",
        "input features of ", lhs.type, " against ", rhs.type, " in ", w.feature_groups, " groups");
  check(w.batch_groups > 0 && lhs.dim(d.input_batch) % w.batch_groups == 0 &&
            rhs.dim(d.kernel_output_feature) % (w.feature_groups * w.batch_groups) == 0,
        "convolution", "groups do not divide ", types({lhs, rhs}));
  Type type{result, Dims(spatial + 2)};
  type.dims[static_cast<size_t>(d.output_batch)] = lhs.dim(d.input_batch) / w.batch_groups;
  type.dims[static_cast<size_t>(d.output_feature)] = rhs.dim(d.kernel_output_feature);
  std::string padding, reversal;
  for (size_t i = 0; i < spatial; ++i) {
    int64_t in = lhs.dim(d.input_spatial[i]), kernel = rhs.dim(d.kernel_spatial[i]);
    check(w.strides[i] > 0 && w.lhs_dilation[i] > 0 && w.rhs_dilation[i] > 0, "convolution",
          "strides and dilations must be positive in spatial dimension ", i);
    int64_t padded = (in == 0 ? 0 : (in - 1) * w.lhs_dilation[i] + 1) + w.padding[i].first + w.padding[i].second;
    int64_t window = kernel == 0 ? 0 : (kernel - 1) * w.rhs_dilation[i] + 1;
    type.dims[static_cast<size_t>(d.output_spatial[i])] = padded < window ? 0 : (padded - window) / w.strides[i] + 1;
    padding += cat(i ? ", " : "", "[", w.padding[i].first, ", ", w.padding[i].second, "]");
    if (!w.reversal.empty()) reversal += cat(i ? ", " : ", reverse = [", w.reversal[i] ? "true" : "false");
  }
  if (!reversal.empty()) reversal += "]";
  std::string window = spatial == 0
                           ? ""
                           : cat("stride = ", w.strides, ", pad = [", padding, "], lhs_dilate = ", w.lhs_dilation,
                                 ", rhs_dilate = ", w.rhs_dilation, reversal);
  return impl_->emit(type, "stablehlo.convolution(", impl_->uses("convolution", lhs, rhs), ") dim_numbers = ", numbers,
                     ", window = {", window, "} {batch_group_count = ", w.batch_groups,
                     " : i64, feature_group_count = ", w.feature_groups,
                     " : i64, precision_config = [#stablehlo<precision ", precision, ">, #stablehlo<precision ",
                     precision, ">]} : ", arrow({&lhs.type, &rhs.type}, type));
}

Value Builder::cholesky(const Value& x, bool lower) {
  check(x.rank() >= 2 && x.dim(x.rank() - 1) == x.dim(x.rank() - 2), "cholesky", "needs a square matrix, has ", x.type);
  return impl_->emit(x.type, "stablehlo.cholesky ", impl_->use("cholesky", x), ", lower = ", lower ? "true" : "false",
                     " : ", x.type);
}

Value Builder::triangular_solve(const Value& a, const Value& b, bool left_side, bool lower, bool unit_diagonal,
                                std::string_view transpose_a) {
  const int64_t rank = a.rank();
  check(rank >= 2 && b.rank() == rank && a.element() == b.element() && a.dim(rank - 1) == a.dim(rank - 2) &&
            b.dim(left_side ? rank - 2 : rank - 1) == a.dim(rank - 1),
        "triangular_solve", matrices(a.dims()), " and ", b.dims());
  for (int64_t i = 0; i + 2 < rank; ++i) {
    check(a.dim(i) == b.dim(i), "triangular_solve", matrices(a.dims()), " and ", b.dims());
  }
  auto flag = [](bool x) { return x ? "true" : "false"; };
  return impl_->emit(b.type, "\"stablehlo.triangular_solve\"(", impl_->uses("triangular_solve", a, b),
                     ") <{left_side = ", flag(left_side), ", lower = ", flag(lower),
                     ", transpose_a = #stablehlo<transpose ", transpose_a, ">, unit_diagonal = ", flag(unit_diagonal),
                     "}> : ", arrow({&a.type, &b.type}, b.type));
}

Value Builder::fft(const Value& x, std::string_view kind, const Dims& length) {
  const auto n = static_cast<int64_t>(length.size());
  check(n >= 1 && n <= 3 && n <= x.rank(), "fft", "length ", length, " for ", x.type);
  const bool real_in = kind == "RFFT", real_out = kind == "IRFFT";
  check(real_in ? x.element() == ElementType::kF32 || x.element() == ElementType::kF64 : is_complex(x.element()), "fft",
        kind, " does not take ", x.type);
  Type result = x.type;
  if (real_in) result.element = x.element() == ElementType::kF32 ? ElementType::kC64 : ElementType::kC128;
  if (real_out) result.element = real_element(x.element());
  for (int64_t i = 0; i < n; ++i) {
    int64_t wanted = length[static_cast<size_t>(i)];
    int64_t& size = result.dims[static_cast<size_t>(x.rank() - n + i)];
    const bool halved = i == n - 1;
    check(size == (real_out && halved ? wanted / 2 + 1 : wanted), "fft", kind, " of length ", length, " for ", x.type);
    size = real_in && halved ? wanted / 2 + 1 : wanted;
  }
  return impl_->emit(result, "stablehlo.fft ", impl_->use("fft", x), ", type = ", kind, ", length = ", length, " : ",
                     arrow({&x.type}, result));
}

}  // namespace tpjrt::hlo
