// Which graphs are run in parts, and why.
#pragma once

#include <unordered_map>

#include "engine/growth.h"
#include "engine/parts.h"
#include "engine/variety.h"

namespace tpjrt::engine {

struct Cut {
  PartOfNode part;
  const char* cause;
  uint32_t left = UINT32_MAX;  // how often it is run so before it is compiled as one
};

class Cuts {
 public:
  // How a graph without a program is cut, now and when it comes again; null: it is compiled as one. `is_found_again`: was
  // a graph of that hash run more than once?
  const Cut* find(const Walk& walk, bool may_interpret, const std::function<bool(uint64_t)>& is_found_again);

 private:
  Growth growth_;
  Variety variety_;
  std::unordered_map<uint64_t, Cut> cuts_;  // by hash; nothing is remembered of a graph that isn't cut
};

}  // namespace tpjrt::engine
