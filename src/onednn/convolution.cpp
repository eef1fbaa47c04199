// frozen.convolution: a convolution, what is added to its result, and relu or relu6, as python/torch_pjrt/files/freezing.py says it.
//
// Operands: images, weight, perhaps a bias, perhaps images that are added. Images lie with the channels last.
#include <xla/ffi/api/ffi.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "onednn/prepared.h"

namespace tpjrt::onednn {
namespace {

namespace ffi = xla::ffi;
using dnnl::memory;

memory::dims dims_of(ffi::Span<const int64_t> span) { return {span.begin(), span.end()}; }

// oneDNN would do it on its way, but makes NaN 0.
template <bool kSix>
void cut(float* values, int64_t count) {
#pragma omp parallel for simd if (count > 1 << 15)
  for (int64_t i = 0; i < count; ++i) {
    const float value = values[i] < 0 ? 0 : values[i];
    values[i] = kSix && value > 6 ? 6 : value;
  }
}

void convolve(ffi::RemainingArgs operands, const ffi::Dictionary& attributes, ffi::AnyBuffer result) {
  std::vector<ffi::AnyBuffer> given;
  for (size_t i = 0; i < operands.size(); ++i) given.push_back(operands.get<ffi::AnyBuffer>(i).value());
  const auto ints = [&](const char* name) { return dims_of(attributes.get<ffi::Span<const int64_t>>(name).value()); };
  Form form;
  form.images = dims_of(given.at(0).dimensions());
  form.weight = dims_of(given.at(1).dimensions());
  form.result = dims_of(result.dimensions());
  form.stride = ints("stride");
  form.padding = ints("padding");
  form.dilation = ints("dilation");
  form.has_bias = attributes.get<bool>("has_bias").value();
  form.has_added = given.size() > (form.has_bias ? 3 : 2);
  form.digest = attributes.get<std::string_view>("weight").value();
  if (const int64_t groups = attributes.get<int64_t>("groups").value(); groups > 1) {
    form.weight[0] /= groups;
    form.weight.insert(form.weight.begin(), groups);
  }
  const std::shared_ptr<const Prepared> ready = prepared(form, given[1].untyped_data());
  const auto over = [](const memory::desc& desc, const ffi::AnyBuffer& buffer) {
    return memory(desc, engine(), buffer.untyped_data());
  };
  thread_local std::vector<char> scratch;
  const memory::desc wanted = ready->description.scratchpad_desc();
  constexpr size_t kLine = 64;
  if (scratch.size() < wanted.get_size() + kLine) scratch.resize(wanted.get_size() + kLine);
  char* aligned = scratch.data() + (kLine - reinterpret_cast<uintptr_t>(scratch.data()) % kLine) % kLine;
  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, over(ready->description.src_desc(), given[0])},
                                            {DNNL_ARG_WEIGHTS, ready->weight},
                                            {DNNL_ARG_DST, over(ready->description.dst_desc(), result)},
                                            {DNNL_ARG_SCRATCHPAD, memory(wanted, engine(), aligned)}};
  if (form.has_bias) arguments.emplace(DNNL_ARG_BIAS, over(ready->description.bias_desc(), given[2]));
  if (form.has_added) {
    arguments.emplace(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1,
                      over(ready->description.dst_desc(), given.back()));
  }
  dnnl::stream stream(engine());
  ready->run.execute(stream, arguments);
  stream.wait();
  const auto activation = attributes.get<std::string_view>("activation").value();
  const auto count = static_cast<int64_t>(result.element_count());
  auto* values = static_cast<float*>(result.untyped_data());
  if (activation == "relu") cut<false>(values, count);
  if (activation == "relu6") cut<true>(values, count);
}

ffi::Error convolution(ffi::RemainingArgs operands, ffi::Dictionary attributes, ffi::Result<ffi::AnyBuffer> result) {
  try {
    convolve(operands, attributes, *result);
    return ffi::Error::Success();
  } catch (const std::exception& error) {
    return ffi::Error::Internal(std::string("oneDNN: ") + error.what());
  }
}

}  // namespace
}  // namespace tpjrt::onednn

extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* torch_pjrt_frozen_convolution(
    XLA_FFI_CallFrame* frame);
XLA_FFI_DEFINE_HANDLER_SYMBOL(torch_pjrt_frozen_convolution, tpjrt::onednn::convolution,
                              xla::ffi::Ffi::Bind().RemainingArgs().Attrs().Ret<xla::ffi::AnyBuffer>());
