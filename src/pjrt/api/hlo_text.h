// Optimized programs as text that people can read.
//
// PJRT hands out an optimized program as a serialized HloModuleProto only. This prints the part of it that tells what
// XLA made of a program: computations, instructions with their types and operands, called computations, custom-call
// targets, source lines. It is not XLA's own printer and its output can't be parsed back.
#pragma once

#include <string>
#include <string_view>

namespace tpjrt::pjrt {

// `format` is what Executable::optimized_program gave. A format with no printer here is returned as it is if it is
// text, and as a note with its size if not. Never throws for malformed input: what can't be read is left out.
std::string hlo_text(std::string_view program, std::string_view format);

}  // namespace tpjrt::pjrt
