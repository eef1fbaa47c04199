// Hooks that the Python room installs (interrupts, the user's line, log lines, subclasses), and filters of warnings.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <string>
#include <vector>

namespace tpjrt::device {

// Interrupts. If Meta or a decomposition throws, the recorder tries another way. A KeyboardInterrupt (or SystemExit)
// that Python raises there must reach the user instead.

// Returns whether the exception being handled is an interrupt instead of an error of the program. Installed by the
// Python room.
using InterruptTest = bool (*)();
void install_interrupt_test(InterruptTest test);
// Returns whether this is Python's main thread, which is the process's. Signal handlers run only there.
bool in_main_thread();
// Runs the handlers of pending signals if this thread may, and throws their exceptions, such as KeyboardInterrupt. To
// be called while waiting, about every 50 ms. Takes the GIL. Installed by the Python room.
using SignalCheck = void (*)();
void install_signal_check(SignalCheck check);
void check_signals();
// Must be called in a catch block: rethrows the exception if it is an interrupt.
void let_interrupts_pass();

struct Location {
  std::string file;
  int line = 0;
};
using LocationSource = Location (*)();

void install_location_source(LocationSource source);
// Overrides the location in this thread, until it is set to the empty location. For traced code.
void set_location(Location location);
// Returns an empty location if no Python frame is running (the autograd engine's thread). Takes the GIL.
Location user_location();

// Logs to the logger of that name at level WARNING, or to stderr if the program has set up no logging. Takes the GIL.
// Installed by the Python room.
using MessageSink = void (*)(const char* logger, const std::string& line);
void install_message_sink(MessageSink sink);
void inform(const char* logger, const std::string& line);

enum class Subclass {
  kNone,     // a plain tensor, or a stand-in for one while PyTorch traces
  kDTensor,  // supports ops for which PyTorch, or adapt/dtensor.py, has a strategy
  kOther,
};

// Installed by the Python room.
using SubclassSource = Subclass (*)(const at::Tensor& tensor);
void install_subclass_source(SubclassSource source);
Subclass subclass_of(const at::Tensor& tensor);
inline bool is_subclass(const at::Tensor& tensor) { return subclass_of(tensor) != Subclass::kNone; }

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
