// What is raised, and what is said.
#include "device/world/reading.h"

#include <c10/util/Exception.h>

#include "device/services/engine.h"
#include "graph/world/world.h"

namespace tpjrt::device::world {

void check_one_value(const graph::Value& leaf, const char* what) {
  if (!graph::in_world() || engine().is_same_on_all_ranks(leaf)) return;
  TORCH_CHECK(
      false, what, ": the ", graph::world_size().load(),
      " ranks of this world have values of their own, and Python runs once for all of them. Reduce it first, as "
      "full_tensor() of a DTensor or torch.distributed.all_reduce do; print(x) and x.cpu() show the first rank's");
}

void tell_that_first_is_shown(const graph::Value& leaf) {
  if (!graph::in_world() || engine().is_same_on_all_ranks(leaf)) return;
  TORCH_WARN_ONCE("a tensor that has a value of its own on each of the ", graph::world_size().load(),
                  " ranks of this world was copied to the host: it shows the first rank's. full_tensor() of a DTensor "
                  "has all of it");
}

}  // namespace tpjrt::device::world
