// The graph as readable text, one node a line.
#pragma once

#include <string>
#include <vector>

#include "graph/node.h"

namespace tpjrt::graph {

// Prints the graph of these values, which the caller keeps alive:
//   %0 = f32[2, 3] leaf
//   %1 = f32[3, 2] pjrt::view(base=%0, sizes=[3, 2], strides=[1, 3], offset=0)
//   return %1
std::string print(const std::vector<Value>& results);
// Returns the shortest text that parses to the same scalar: "0.1", "2.0", "3".
std::string to_string(const ScalarValue& number);

}  // namespace tpjrt::graph
