// The installed hooks, and the filter of warnings that were passed on already.
#include "device/services/python_hooks.h"

#include <c10/util/Exception.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace tpjrt::device {

namespace {

std::atomic<LocationSource> location_source{nullptr};
thread_local Location traced_location;
std::atomic<InterruptTest> interrupt_test{nullptr};
std::atomic<SignalCheck> signal_check{nullptr};
std::atomic<MessageSink> sink{nullptr};
std::atomic<SubclassSource> subclass_source{nullptr};

}  // namespace

void install_location_source(LocationSource source) { location_source = source; }
void set_location(Location location) { traced_location = std::move(location); }
Location user_location() {
  if (!traced_location.file.empty()) return traced_location;
  const LocationSource source = location_source;
  return source ? source() : Location{};
}

void install_interrupt_test(InterruptTest test) { interrupt_test = test; }
bool in_main_thread() {
  static thread_local const bool is_main = syscall(SYS_gettid) == getpid();
  return is_main;
}
void install_signal_check(SignalCheck check) { signal_check = check; }
void check_signals() {
  if (const SignalCheck check = signal_check) check();
}
void let_interrupts_pass() {
  const InterruptTest test = interrupt_test;
  if (test && test()) throw;
}

void install_message_sink(MessageSink installed) { sink = installed; }
void inform(const char* logger, const std::string& line) {
  if (const MessageSink sink_now = sink) sink_now(logger, line);
}

void install_subclass_source(SubclassSource source) { subclass_source = source; }
Subclass subclass_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(c10::DispatchKey::Python)) return Subclass::kNone;
  const SubclassSource source = subclass_source;
  return source ? source(tensor) : Subclass::kNone;
}

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
