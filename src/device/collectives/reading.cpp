// Checks whether there is one value to read, and throws the error if there isn't.
#include "device/collectives/reading.h"

#include <c10/util/Exception.h>

#include "device/services/engine.h"
#include "graph/world/world.h"

namespace tpjrt::device::world {

bool has_one_value(const graph::Value& leaf) { return !graph::in_world() || engine().is_same_on_all_ranks(leaf); }

void check_one_value(const graph::Value& leaf, const char* what) {
  TORCH_CHECK(
      has_one_value(leaf), what, ": the ", graph::world_size().load(),
      " ranks of this world have values of their own, and Python runs once for all of them. Reduce it first, as "
      "full_tensor() of a DTensor or torch.distributed.all_reduce do; torch_pjrt.distributed.rank_values(x) "
      "lists each rank's, and print(x) shows the first rank's");
}

}  // namespace tpjrt::device::world
