// What the ranks of a world take part in together.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tpjrt::engine {

// How often a rank took part in collectives of a kind, and with how many bytes of its own.
struct Collective {
  uint64_t calls = 0, bytes = 0;
};
using Collectives = std::map<std::string, Collective>;  // by kind: "all_reduce"

}  // namespace tpjrt::engine
