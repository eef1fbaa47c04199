// The engine's own error: a bug in torch-pjrt, never the user's fault. Carries the graph where there is one.
#pragma once

#include <stdexcept>
#include <string>

namespace tpjrt::graph {

struct InternalError : std::logic_error {
  using std::logic_error::logic_error;
};

// Thrown when the value of a placeholder is asked for: a decomposition or a trace depends on data.
struct DependsOnData : std::runtime_error {
  explicit DependsOnData(const std::string& text, const void* placeholder = nullptr)
      : std::runtime_error(text), placeholder(placeholder) {}
  const void* placeholder;  // the leaf, to be compared, never followed; null where none is to blame
};

}  // namespace tpjrt::graph
