// One stablehlo.convolution for each of the two contractions.
#include "ops/contraction/contraction.h"

#include <utility>

#include "ops/rule/dims.h"
#include "ops/rule/precision.h"

namespace tpjrt::ops {

namespace {

// Returns the padding behind an input of `size` elements (zeros between them counted) for a window of `taps`, moved
// in `out` steps, that starts `low` before them. A negative result is the part that the window doesn't reach.
int64_t high_padding(int64_t size, int64_t low, int64_t taps, int64_t step, int64_t out) {
  return (out - 1) * step + taps - size - low;
}

hlo::ConvolutionDimensions plain_dimensions(size_t spatial) {
  hlo::ConvolutionDimensions d;
  d.input_spatial = d.kernel_spatial = d.output_spatial = range(2, static_cast<int64_t>(spatial) + 2);
  return d;
}

hlo::ConvolutionWindow window_of(const Dims& strides, const Dims& lhs_dilation, const Dims& rhs_dilation) {
  hlo::ConvolutionWindow window;
  window.strides = strides;
  window.lhs_dilation = lhs_dilation;
  window.rhs_dilation = rhs_dilation;
  return window;
}

Value convolve(Emit& e, const Value& lhs, const Value& rhs, const hlo::ConvolutionDimensions& dims,
               const hlo::ConvolutionWindow& window) {
  return e.convolution(lhs, rhs, dims, window, lhs.element(), convolution_precision(e, lhs.element()));
}

}  // namespace

Dims spatial_of(const Dims& dims) { return {dims.begin() + 2, dims.end()}; }

int64_t high_of(const Motion& m, size_t i, int64_t in, int64_t kernel, int64_t out) {
  return high_padding((in - 1) * m.spread[i] + 1, m.low[i], m.dilation[i] * (kernel - 1) + 1, m.stride[i], out);
}

Value correlate_whole(Emit& e, const Value& x, const Value& w, bool swapped, const Motion& m, const Dims& out) {
  hlo::ConvolutionWindow window = window_of(m.stride, m.spread, m.dilation);
  window.feature_groups = m.groups;
  for (size_t i = 0; i < m.low.size(); ++i) {
    const int64_t low = m.low[i];
    int64_t high = high_of(m, i, x.dims()[i + 2], w.dims()[i + 2], out[i + 2]);
    // The padding is symmetric where the window allows it, because libraries expect that.
    if (high <= low && low - high < m.stride[i]) high = low;
    window.padding.emplace_back(low, high);
  }
  hlo::ConvolutionDimensions dims = plain_dimensions(m.low.size());
  if (swapped) std::swap(dims.kernel_input_feature, dims.kernel_output_feature);
  return convolve(e, x, w, dims, window);
}

// The contraction runs over the batch, so stride and dilation change places.
Value correlate_kernel_whole(Emit& e, const Value& x, const Value& y, const Motion& m, const Dims& kernel,
                             Groups groups) {
  hlo::ConvolutionWindow window = window_of(m.dilation, m.spread, m.stride);
  for (size_t i = 0; i < m.low.size(); ++i) {
    const int64_t taps = m.stride[i] * (y.dims()[i + 2] - 1) + 1;
    window.padding.emplace_back(m.low[i], high_padding(x.dims()[i + 2], m.low[i], taps, m.dilation[i], kernel[i + 2]));
  }
  hlo::ConvolutionDimensions dims = plain_dimensions(m.low.size());
  std::swap(dims.kernel_input_feature, dims.kernel_output_feature);
  std::swap(dims.output_batch, dims.output_feature);
  if (groups == Groups::kOfFeatures) {
    window.feature_groups = m.groups;
  } else {
    window.batch_groups = m.groups;
    std::swap(dims.input_batch, dims.input_feature);
  }
  return convolve(e, x, y, dims, window);
}

const Correlation kWhole{correlate_whole,
                         [](Emit& e, const Value& x, const Value& y, const Motion& m, const Dims& kernel) {
                           return correlate_kernel_whole(e, x, y, m, kernel, Groups::kOfBatch);
                         }};

}  // namespace tpjrt::ops
