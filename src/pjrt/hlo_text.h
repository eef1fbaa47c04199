// Optimized programs as readable text.
//
// PJRT returns an optimized program only as a serialized HloModuleProto. This prints the parts that show what XLA made
// of a program: computations, instructions with types and operands, called computations, custom-call targets, source
// lines. It is not XLA's own printer, and its output can't be parsed back.
#pragma once

#include <string>
#include <string_view>

namespace tpjrt::pjrt {

// Returns the text of a program. `format` comes from Executable::optimized_program. Unknown formats are returned
// unchanged if they are text, otherwise as a note with their size. Never throws for malformed input: unreadable parts
// are left out.
std::string hlo_text(std::string_view program, std::string_view format);

}  // namespace tpjrt::pjrt
