// Leads PyTorch's questions for the accelerator to functions of this file (Note [Two accelerators]).
#include "device/backend/accelerator.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "device/tensor/storage.h"
#include "linkage/redirect.h"

namespace tpjrt::device {

namespace {

std::optional<c10::DeviceType> other;  // the accelerator that PyTorch would have without this package
thread_local bool is_ours = false;

std::optional<c10::DeviceType> get_accelerator(bool /*checked*/) { return is_ours ? kPjrt : other; }
bool is_accelerator(c10::DeviceType type) { return type != kPjrt && at::isAccelerator(type); }

// Returns whether PyTorch's libraries call these functions now.
bool redirect_calls() {
  std::array redirections{
      linkage::Redirection{"_ZN2at11accelerator14getAcceleratorEb", reinterpret_cast<void*>(&get_accelerator)},
      linkage::Redirection{"_ZN2at11accelerator13isAcceleratorEN3c1010DeviceTypeE",
                           reinterpret_cast<void*>(&is_accelerator)},
  };
  const auto is_pytorchs = [](const linkage::Library& library) {
    return library.path.substr(library.path.rfind('/') + 1).starts_with("libtorch");
  };
  linkage::redirect(is_pytorchs, redirections);
  return std::ranges::all_of(redirections, [](const linkage::Redirection& each) { return each.count > 0; });
}

}  // namespace

bool has_other_accelerator() { return other.has_value(); }

bool set_accelerator_here(bool ours) { return std::exchange(is_ours, ours); }

void keep_accelerator() {
  other = at::getAccelerator();
  if (!other || redirect_calls()) return;
  TORCH_WARN(
      "\"pjrt\" becomes PyTorch's accelerator in place of '", c10::DeviceTypeName(*other, /*lower_case=*/true),
      "', whose tensors then have no backward() (pytorch/pytorch#161129): this build of PyTorch has no place where "
      "that could be kept from happening. TORCH_DEVICE_BACKEND_AUTOLOAD=0 leaves torch_pjrt out");
  other.reset();
}

}  // namespace tpjrt::device
