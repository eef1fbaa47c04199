// The table of handlers, and their registration with a client.
#include "kernels/cpu/handlers.h"

#include <cstdlib>
#include <string_view>

#include "kernels/cpu/kept_call.h"
#include "pjrt/ffi.h"

namespace tpjrt::kernels {
namespace {

const std::map<std::string, XLA_FFI_Handler*>& all() {
  static const std::map<std::string, XLA_FFI_Handler*> handlers{
      {kAtenTarget, aten_call}, {"torch_pjrt.stored", stored}, {"torch_pjrt.zeros", zeros}};
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
