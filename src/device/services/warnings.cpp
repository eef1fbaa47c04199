// Filters warnings of a call that were passed on already.
#include "device/services/warnings.h"

#include <algorithm>

namespace tpjrt::device {

HeardOnce::HeardOnce() : next_(c10::WarningUtils::get_warning_handler()), guard_(this) {}

void HeardOnce::process(const c10::Warning& warning) {
  if (!on_host_) {
    heard_.push_back(warning.msg());
  } else if (const auto it = std::ranges::find(heard_, warning.msg()); it != heard_.end()) {
    heard_.erase(it);
    return;
  }
  next_->process(warning);
}

}  // namespace tpjrt::device
