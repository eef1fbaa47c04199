// c10d's store, in which the processes of torch.distributed met, as that of a plugin's client.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>

#include "pjrt/key_values.h"

namespace tpjrt::engine {

// Its keys are under "pjrt/".
std::shared_ptr<pjrt::KeyValueStore> key_values_in(c10::intrusive_ptr<c10d::Store> store);

}  // namespace tpjrt::engine
