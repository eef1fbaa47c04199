// A graph's name across processes.
#pragma once

#include <string>

#include "graph/fingerprint/walk.h"

namespace tpjrt::engine {

// Returns a text that is equal in all processes for graphs of equal fingerprints. It contains no addresses.
std::string identity(const graph::Walk& walk);

}  // namespace tpjrt::engine
