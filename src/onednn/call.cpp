// Runs a call, and words the errors where oneDNN refuses it.
#include "onednn/call.h"

#include <cstdint>
#include <unordered_map>

namespace tpjrt::onednn {

using dnnl::memory;

Call::Call(ffi::RemainingArgs given, const ffi::Dictionary& attributes, ffi::AnyBuffer into)
    : result(into), has_bias(attributes.get<bool>("has_bias").value()) {
  for (size_t i = 0; i < given.size(); ++i) operands.push_back(given.get<ffi::AnyBuffer>(i).value());
}

memory::data_type Call::type() const {
  switch (result.element_type()) {
    case ffi::F32: return memory::data_type::f32;
    case ffi::BF16: return memory::data_type::bf16;
    default: throw std::invalid_argument("it is for float32 and bfloat16");
  }
}

void Call::run(const Prepared& ready) const {
  const auto over = [](const memory::desc& desc, const ffi::AnyBuffer& buffer) {
    return memory(desc, engine(), buffer.untyped_data());
  };
  thread_local std::vector<char> scratch;
  constexpr size_t kLine = 64;
  const size_t size = ready.scratch.get_size() + kLine;
  if (scratch.size() < size) scratch.resize(size);
  char* aligned = scratch.data() + (kLine - reinterpret_cast<uintptr_t>(scratch.data()) % kLine) % kLine;
  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, over(ready.source, operands.at(0))},
                                            {DNNL_ARG_WEIGHTS, *ready.weight},
                                            {DNNL_ARG_DST, over(ready.result, result)},
                                            {DNNL_ARG_SCRATCHPAD, memory(ready.scratch, engine(), aligned)}};
  if (has_bias) arguments.emplace(DNNL_ARG_BIAS, over(ready.bias, operands.at(2)));
  if (has_added()) {
    arguments.emplace(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, over(ready.result, operands.back()));
  }
  dnnl::stream stream(engine());
  ready.run.execute(stream, arguments);
  stream.wait();
}

std::string said_of(const std::exception& error) {
  const std::string what = std::string("oneDNN: ") + error.what();
  const auto* own = dynamic_cast<const dnnl::error*>(&error);
  if (own == nullptr || own->status != dnnl_unimplemented) return what;
  return what +
         ", as this processor lacks the instructions (bfloat16 needs AVX-512): export the model in float32, or without "
         "torch_pjrt.kernels.onednn";
}

}  // namespace tpjrt::onednn
