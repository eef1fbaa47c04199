// The process's memory mappings, of which the system grants a limited number.
//
// Note [Mappings]: XLA:CPU maps code, constants and unwind tables of each kernel separately: about ninety mappings for
// a program of a hundred calls. Linux grants a process 65,530 (vm.max_map_count). When they run out, XLA can't link a
// program, and leaves unwind tables registered whose memory is gone: the next C++ exception ends the process. So
// programs are dropped long before.
#pragma once

namespace tpjrt::engine {

// Returns true if half of the system's limit is in use; false if there is no limit. Takes milliseconds.
bool are_mappings_scarce();

}  // namespace tpjrt::engine
