// The installed hooks of a foreign trace.
#include "device/services/foreign_trace.h"

namespace tpjrt::device {

namespace {

ForeignTrace installed{};

}  // namespace

void install_foreign_trace(ForeignTrace trace) { installed = trace; }
const ForeignTrace& foreign_trace() { return installed; }

void raise_value_needed(const graph::DependsOnData& error, const char* cause) {
  std::string text;
  if (error.placeholder && installed.value_needed) text = installed.value_needed(error.placeholder, cause);
  if (text.empty()) throw error;
  throw graph::DependsOnData(text, error.placeholder);
}

}  // namespace tpjrt::device
