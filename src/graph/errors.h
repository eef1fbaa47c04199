// Errors that rooms distinguish.
#pragma once

#include <c10/util/Exception.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace tpjrt::graph {

// An internal error: a bug in torch-pjrt, never the user's fault. Its message has the graph, if there is one.
struct InternalError : std::logic_error {
  using std::logic_error::logic_error;
};

// Thrown when a placeholder's value is read: a decomposition or a trace depends on data.
struct DependsOnData : std::runtime_error {
  explicit DependsOnData(const std::string& text, const void* placeholder = nullptr)
      : std::runtime_error(text), placeholder(placeholder) {}
  const void* placeholder;  // the leaf, to be compared, never dereferenced; null if unknown
};

// A call for which PyTorch has no kernel on such a device. Raised when it is recorded, even if the host could run it.
struct NotOnDevice : c10::NotImplementedError {
  explicit NotOnDevice(std::string message)
      : c10::NotImplementedError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, std::move(message)) {}
};

}  // namespace tpjrt::graph
