// The table of handlers, and their registration with a client.
#include "kernels/cpu/handlers.h"

#include <cstdlib>
#include <string_view>

#include "kernels/cpu/aten_call.h"
#include "pjrt/ffi.h"

namespace tpjrt::kernels {
namespace {

const std::map<std::string, XLA_FFI_Handler*>& all() {
  static const std::map<std::string, XLA_FFI_Handler*> handlers{
      {kAtenTarget, aten_call},
      {"torch_pjrt.matrix_product", product},
      {"torch_pjrt.convolution", convolution},
      {"torch_pjrt.convolution_of_input", convolution_of_input},
      {"torch_pjrt.convolution_of_weight", convolution_of_weight},
      {"torch_pjrt.frozen_convolution", frozen_convolution},
      {"torch_pjrt.batch_norm", batch_norm},
      {"torch_pjrt.batch_norm_backward", batch_norm_backward},
      {"torch_pjrt.write", write},
      {"torch_pjrt.stored", stored},
      {"torch_pjrt.softmax", softmax},
      {"torch_pjrt.softmax_backward", softmax_backward},
      {"torch_pjrt.layer_norm", layer_norm},
      {"torch_pjrt.layer_norm_backward", layer_norm_backward},
      {"torch_pjrt.reduce_rows", reduce_rows},
  };
  return handlers;
}

}  // namespace

bool are_cpu_kernels_wanted() {
  const char* given = std::getenv("TORCH_PJRT_LIBRARY_KERNELS");
  return given == nullptr || std::string_view(given) != "0";
}

bool give_cpu_kernels(pjrt::Client& client) {
  if (!are_cpu_kernels_wanted()) return false;
  try {
    pjrt::register_handlers(client, all());
  } catch (const pjrt::Error&) {
    return false;
  }
  for (const auto& [name, handler] : all()) pjrt::add_place(name, "the kernel '" + name + "'");
  return true;
}

}  // namespace tpjrt::kernels
