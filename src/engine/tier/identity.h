// A graph's name across processes.
#pragma once

#include <string>

#include "graph/tape/walk.h"

namespace tpjrt::engine {

// The same in each process for graphs of equal tapes; addresses have no part in it.
std::string identity(const graph::Walk& walk);

}  // namespace tpjrt::engine
