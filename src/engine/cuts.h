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
};

class Cuts {
 public:
  // How a graph without a program is cut, now and whenever it comes again; null: it is compiled as one.
  const Cut* find(const Walk& walk, bool may_interpret);

 private:
  Growth growth_;
  Variety variety_;
  std::unordered_map<uint64_t, Cut> cuts_;  // by hash; nothing is remembered of a graph that isn't cut
};

}  // namespace tpjrt::engine
