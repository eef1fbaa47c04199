// frozen.product: rows times a matrix, plus an optional bias, as specified in python/torch_pjrt/files/freezing.py.
#include <string_view>
#include <utility>

#include "onednn/call.h"

namespace tpjrt::onednn {
namespace {

using dnnl::memory;

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

TPJRT_ONEDNN_HANDLER(torch_pjrt_frozen_product, multiply);
