// What was met before, by form; what was not used for the longest time goes first.
#include "onednn/prepared.h"

#include <algorithm>
#include <map>
#include <mutex>

namespace tpjrt::onednn {
namespace {

using dnnl::memory;

memory::desc images(const memory::dims& sizes, memory::data_type type) {
  return {sizes, type, memory::format_tag::nhwc};
}

std::shared_ptr<const Prepared> prepare(const Form& form, const void* given) {
  memory::dims less_one = form.dilation;  // oneDNN counts what lies between
  for (auto& each : less_one) --each;
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);  // threads run one primitive at once
  if (form.has_added) {
    dnnl::post_ops after;
    after.append_binary(dnnl::algorithm::binary_add, images(form.result, form.type));
    attributes.set_post_ops(after);
  }
  const memory::desc any(form.weight, form.type, memory::format_tag::any);
  const memory::desc bias =
      form.has_bias ? memory::desc({form.result[1]}, form.type, memory::format_tag::a) : memory::desc();
  auto made = std::make_shared<Prepared>();
  made->description = dnnl::convolution_forward::primitive_desc(
      engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, images(form.images, form.type),
      any, bias, images(form.result, form.type), form.stride, less_one, form.padding, form.padding, attributes);
  made->run = dnnl::convolution_forward(made->description);
  const auto rows = form.weight.size() == 5 ? memory::format_tag::goihw : memory::format_tag::oihw;
  memory from({form.weight, form.type, rows}, engine(), const_cast<void*>(given));
  made->weight = memory(made->description.weights_desc(), engine());
  dnnl::stream stream(engine());
  dnnl::reorder(from, made->weight).execute(stream, from, made->weight);
  stream.wait();
  return made;
}

struct Kept {
  std::shared_ptr<const Prepared> prepared;
  uint64_t used = 0;
};

}  // namespace

const dnnl::engine& engine() {
  static const auto& one = *new dnnl::engine(dnnl::engine::kind::cpu, 0);  // handlers may run while the process ends
  return one;
}

std::shared_ptr<const Prepared> prepared(const Form& form, const void* weight) {
  static auto& lock = *new std::mutex;
  static auto& kept = *new std::map<Form, Kept>;
  static size_t bytes = 0;
  static uint64_t calls = 0;
  const std::lock_guard guard(lock);
  Kept& one = kept[form];
  one.used = ++calls;
  if (one.prepared) return one.prepared;
  try {
    one.prepared = prepare(form, weight);
  } catch (...) {
    kept.erase(form);
    throw;
  }
  std::shared_ptr<const Prepared> result = one.prepared;
  bytes += result->weight.get_desc().get_size();
  while (bytes > kMostBytes && kept.size() > 1) {
    const auto oldest = std::min_element(kept.begin(), kept.end(),
                                         [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
    bytes -= oldest->second.prepared->weight.get_desc().get_size();
    kept.erase(oldest);
  }
  return result;
}

}  // namespace tpjrt::onednn
