// Counts the mappings in /proc.
#include "engine/memory/mappings.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>

namespace tpjrt::engine {

bool are_mappings_scarce() {
  static const int64_t limit = [] {
    int64_t most = 0;
    std::ifstream("/proc/sys/vm/max_map_count") >> most;
    return most;
  }();
  std::ifstream maps("/proc/self/maps");
  if (limit <= 0 || !maps) return false;
  const std::istreambuf_iterator<char> begin(maps), end;
  return 2 * std::count(begin, end, '\n') > limit;
}

}  // namespace tpjrt::engine
