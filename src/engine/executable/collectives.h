// Statistics of collectives.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tpjrt::engine {

// The number of collectives of one kind, and the bytes that each rank contributed.
struct Collective {
  uint64_t calls = 0, bytes = 0;
};
using Collectives = std::map<std::string, Collective>;  // by kind, such as "all_reduce"

}  // namespace tpjrt::engine
