// A program as tables, for people to read.
#pragma once

#include <string>

#include "runner/inside.h"

namespace tpjrt::runner {

std::string describe(const torch_pjrt::Program::Inside& inside);

}  // namespace tpjrt::runner
