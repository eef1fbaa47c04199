// Errors that rooms tell apart.
#pragma once

#include <c10/util/Exception.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace tpjrt::graph {

// The engine's own error: a bug in torch-pjrt, never the user's fault. Carries the graph where there is one.
struct InternalError : std::logic_error {
  using std::logic_error::logic_error;
};

// Thrown when the value of a placeholder is asked for: a decomposition or a trace depends on data.
struct DependsOnData : std::runtime_error {
  explicit DependsOnData(const std::string& text, const void* placeholder = nullptr)
      : std::runtime_error(text), placeholder(placeholder) {}
  const void* placeholder;  // the leaf, to be compared, never followed; null where none is to blame
};

// Of a call that PyTorch has no kernel for on such a device: raised where it is recorded, also where the host could run it.
struct NotOnDevice : c10::NotImplementedError {
  explicit NotOnDevice(std::string message)
      : c10::NotImplementedError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, std::move(message)) {}
};

}  // namespace tpjrt::graph
