// Ctrl-C on its way through code that takes exceptions for answers.
//
// Where Meta or a decomposition raises, the recorder tries another way. A KeyboardInterrupt (or SystemExit) that Python
// raises in there is no such answer: it has to reach the user.
#pragma once

namespace tpjrt::device {

// Is the exception that is being handled no error of the program's? Installed by the Python room.
using InterruptTest = bool (*)();
void install_interrupt_test(InterruptTest test);
// Is this Python's main thread, which is the process's? Signal handlers run there, and nowhere else.
bool in_main_thread();
// Runs the handlers of signals that wait, if this thread may: what they raise, as KeyboardInterrupt, is thrown. For whoever waits,
// each 50 ms or so. Takes the GIL. Installed by the Python room.
using SignalCheck = void (*)();
void install_signal_check(SignalCheck check);
void check_signals();
// In a catch block: throws the exception on if it is an interrupt.
void let_interrupts_pass();

}  // namespace tpjrt::device
