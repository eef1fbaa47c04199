// The pieces of address space that a process may have mapped, of which programs take many.
#pragma once

namespace tpjrt::engine {

// Note [Mappings]: XLA:CPU maps the code, the constants and the unwind tables of each kernel apart: some ninety pieces for a
// program of a hundred calls, of the 65,530 that Linux grants a process (vm.max_map_count). When these run out, XLA can't
// link a program, and leaves the unwind tables of memory that is gone registered: the next C++ exception ends the
// process. So programs are let go of long before.
//
// Is half of what the system grants in use? False where it sets no limit. Takes milliseconds.
bool are_mappings_scarce();

}  // namespace tpjrt::engine
