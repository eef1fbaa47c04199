// A program as readable tables.
#pragma once

#include <string>

#include "runner/inside.h"

namespace tpjrt::runner {

std::string describe(const torch_pjrt::Program::Inside& inside);

}  // namespace tpjrt::runner
