// Flags of the process and of its threads.
#include "device/services/modes.h"

#include <atomic>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace tpjrt::device {
namespace {

std::atomic<bool>& strict_flag() {
  static std::atomic<bool> flag{[] {
    const char* value = std::getenv("TORCH_PJRT_STRICT");
    return value && *value && std::string_view(value) != "0";
  }()};
  return flag;
}

thread_local bool is_tracing = false;
thread_local int lazy_scopes = 0;
thread_local const c10::OperatorHandle* outlined_op = nullptr;

}  // namespace

bool strict() { return strict_flag(); }
void set_strict(bool on) { strict_flag() = on; }

bool tracing() { return is_tracing; }
void set_tracing(bool on) { is_tracing = on; }

StaysLazy::StaysLazy() { ++lazy_scopes; }
StaysLazy::~StaysLazy() { --lazy_scopes; }
bool stays_lazy() { return lazy_scopes > 0; }

Outlining::Outlining(const c10::OperatorHandle& op) : outer_(std::exchange(outlined_op, &op)) {}
Outlining::~Outlining() { outlined_op = outer_; }
const c10::OperatorHandle* outlined() { return outlined_op; }

}  // namespace tpjrt::device
