// Passes warnings to the installed function, or to standard error.
#include "disk/warning.h"

#include <atomic>
#include <cstdio>

namespace tpjrt::disk {
namespace {

std::atomic<Warning> installed{nullptr};

}  // namespace

void install_warning(Warning warning) { installed = warning; }

void warn_of(const std::string& message) {
  if (const Warning warning = installed) return warning(message);
  std::fprintf(stderr, "warning: %s\n", message.c_str());
}

}  // namespace tpjrt::disk
