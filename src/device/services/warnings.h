// Which warnings of PyTorch's own code reach the user.
#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <vector>

namespace tpjrt::device {

// A warning of a call that PyTorch's shape function and the host's kernel both give reaches the user once. Made before a call is outlined, on the thread that records it. Passes warnings on; after `host_begins()` not those
// that were passed on before, each of them as often as it was.
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

// Drops the warnings of this thread while it lives: of calls that are not the user's.
class Unheard final : public c10::WarningHandler {
 public:
  Unheard() : guard_(this) {}
  void process(const c10::Warning& /*warning*/) override {}

 private:
  c10::WarningUtils::WarningHandlerGuard guard_;
};

}  // namespace tpjrt::device
