// The handlers frozen.convolution and frozen.product, as specified in python/torch_pjrt/files/freezing.py.
#include <cstdint>
#include <string_view>
#include <utility>

#include "onednn/prepared.h"

namespace tpjrt::onednn {

namespace {

using dnnl::memory;

// Applies relu or relu6. oneDNN could fuse it, but turns NaN into 0.
template <bool kSix>
void cut(float* values, int64_t count) {
#pragma omp parallel for simd if (count > 1 << 15)
  for (int64_t i = 0; i < count; ++i) {
    const float value = values[i] < 0 ? 0 : values[i];
    values[i] = kSix && value > 6 ? 6 : value;
  }
}

// Compares bfloat16 by its bits: greater positive numbers have greater bits, and NaN has greater ones than infinity.
template <bool kSix>
void cut(int16_t* values, int64_t count) {
  constexpr int16_t kInfinity = 0x7f80, kSixBits = 0x40c0, kAbsolute = 0x7fff;
#pragma omp parallel for simd if (count > 1 << 15)
  for (int64_t i = 0; i < count; ++i) {
    const int16_t value = values[i];
    const bool is_number = (value & kAbsolute) <= kInfinity;
    const int16_t most = kSix && is_number && value > kSixBits ? kSixBits : value;
    values[i] = is_number && value < 0 ? 0 : most;
  }
}

template <class Value>
void activate(std::string_view activation, const ffi::AnyBuffer& result) {
  const auto count = static_cast<int64_t>(result.element_count());
  auto* values = static_cast<Value*>(result.untyped_data());
  if (activation == "relu") cut<false>(values, count);
  if (activation == "relu6") cut<true>(values, count);
}

Prepared make_convolution(const Form& form) {
  const auto images = [&](const memory::dims& sizes) {
    return memory::desc(sizes, form.type, memory::format_tag::nhwc);
  };
  memory::dims less_one = form.dilation;  // oneDNN counts the elements between taps
  for (auto& each : less_one) --each;
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);  // threads may run one primitive concurrently
  Prepared made;
  made.source = images(form.source);
  made.result = images(form.result);
  if (form.has_added) {
    dnnl::post_ops after;
    after.append_binary(dnnl::algorithm::binary_add, made.result);
    attributes.set_post_ops(after);
  }
  if (form.has_bias) made.bias = {{form.result.at(1)}, form.type, memory::format_tag::a};
  const auto rows = form.weight.size() == 5 ? memory::format_tag::goihw : memory::format_tag::oihw;
  made.given_weight = {form.weight, form.type, rows};
  const dnnl::convolution_forward::primitive_desc description(
      engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, made.source,
      {form.weight, form.type, memory::format_tag::any}, made.bias, made.result, form.stride, less_one, form.padding,
      form.padding, attributes);
  made.run = dnnl::convolution_forward(description);
  made.scratch = description.scratchpad_desc();
  made.wanted_weight = description.weights_desc();
  return made;
}

void convolve(const Call& call, const ffi::Dictionary& attributes) {
  const auto ints = [&](const char* name) { return dims_of(attributes.get<ffi::Span<const int64_t>>(name).value()); };
  Form form;
  form.type = call.type();
  form.source = dims_of(call.operands.at(0).dimensions());
  form.weight = dims_of(call.operands.at(1).dimensions());
  form.result = dims_of(call.result.dimensions());
  form.stride = ints("stride");
  form.padding = ints("padding");
  form.dilation = ints("dilation");
  form.has_bias = call.has_bias;
  form.has_added = call.has_added();
  form.digest = attributes.get<std::string_view>("weight").value();
  if (const int64_t groups = attributes.get<int64_t>("groups").value(); groups > 1) {
    form.weight[0] /= groups;
    form.weight.insert(form.weight.begin(), groups);
  }
  call.run(*prepared(form, call.operands[1].untyped_data(), make_convolution));
  const auto activation = attributes.get<std::string_view>("activation").value();
  if (form.type == memory::data_type::f32) {
    activate<float>(activation, call.result);
  } else {
    activate<int16_t>(activation, call.result);
  }
}

Prepared make_product(const Form& form) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);  // threads may run one primitive concurrently
  const auto rows = [&](const memory::dims& sizes) { return memory::desc(sizes, form.type, memory::format_tag::ab); };
  Prepared made;
  made.source = rows(form.source);
  made.result = rows(form.result);
  if (form.has_bias) made.bias = rows({1, form.result[1]});
  made.given_weight = {form.weight, form.type, form.is_transposed ? memory::format_tag::ba : memory::format_tag::ab};
  const dnnl::matmul::primitive_desc description(
      engine(), made.source, {form.weight, form.type, memory::format_tag::any}, made.bias, made.result, attributes);
  made.run = dnnl::matmul(description);
  made.scratch = description.scratchpad_desc();
  made.wanted_weight = description.weights_desc();
  return made;
}

void multiply(const Call& call, const ffi::Dictionary& attributes) {
  Form form;
  form.type = call.type();
  form.weight = dims_of(call.operands.at(1).dimensions());
  form.is_transposed = attributes.get<bool>("turned").value();
  if (form.is_transposed) std::swap(form.weight.at(0), form.weight.at(1));
  const auto count = static_cast<int64_t>(call.operands[0].element_count());
  form.source = {count / form.weight.at(0), form.weight[0]};
  form.result = {form.source[0], form.weight.at(1)};
  form.has_bias = call.has_bias;
  form.digest = attributes.get<std::string_view>("weight").value();
  call.run(*prepared(form, call.operands[1].untyped_data(), make_product));
}

}  // namespace

}  // namespace tpjrt::onednn

// A convolution, an addition to its result, and relu or relu6. Images have the NHWC layout.
TPJRT_ONEDNN_HANDLER(torch_pjrt_frozen_convolution, convolve);

// Rows times a matrix, plus an optional bias.
TPJRT_ONEDNN_HANDLER(torch_pjrt_frozen_product, multiply);
