// Layers of recurrent networks (python/torch_pjrt/decompositions/recurrent_layer.py) by PyTorch's kernels, in C++.
#pragma once

#include <vector>

#include "engine/run/host_arguments.h"

namespace tpjrt::engine {

// What the layer's definition means. It is the same formula, but what no step needs of the one before is done for all at once.
std::vector<at::Tensor> recurrent_layer(const HostArguments& call);
std::vector<at::Tensor> recurrent_layer_backward(const HostArguments& call);

}  // namespace tpjrt::engine
