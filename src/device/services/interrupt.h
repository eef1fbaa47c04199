// Lets Ctrl-C pass through code that handles exceptions.
//
// If Meta or a decomposition throws, the recorder tries another way. A KeyboardInterrupt (or SystemExit) that Python
// raises there must reach the user instead.
#pragma once

namespace tpjrt::device {

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

}  // namespace tpjrt::device
