// The graph as text that a person can read, one node a line.
#pragma once

#include <string>
#include <vector>

#include "graph/node.h"

namespace tpjrt::graph {

// %0 = f32[2, 3] leaf
// %1 = f32[3, 2] pjrt::view(base=%0, sizes=[3, 2], strides=[1, 3], offset=0)
// return %1
// Call it with the values kept alive.
std::string print(const std::vector<Value>& results);
// The shortest text that reads back as the same number: "0.1", "2.0", "3".
std::string to_string(const Number& number);

// Throws std::logic_error, with the graph printed, when a node's operands, types or numbers don't fit its signature.
void check(const std::vector<Value>& results);

}  // namespace tpjrt::graph
