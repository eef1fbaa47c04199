// Filters of the warnings of PyTorch's own code.
#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <vector>

namespace tpjrt::device {

// Passes a warning that both PyTorch's shape function and the host's kernel give for a call to the user only once.
// Made before a call is outlined, on the thread that records it. After `host_begins()` it drops warnings that were
// passed on before, each as often as it was.
class HeardOnce final : public c10::WarningHandler {
 public:
  HeardOnce();
  void host_begins() { on_host_ = true; }
  void process(const c10::Warning& warning) override;

 private:
  c10::WarningHandler* next_;
  std::vector<std::string> heard_;
  bool on_host_ = false;
  c10::WarningUtils::WarningHandlerGuard guard_;
};

// Drops the warnings of this thread while it lives, for calls that are not the user's.
class Unheard final : public c10::WarningHandler {
 public:
  Unheard() : guard_(this) {}
  void process(const c10::Warning& /*warning*/) override {}

 private:
  c10::WarningUtils::WarningHandlerGuard guard_;
};

}  // namespace tpjrt::device
