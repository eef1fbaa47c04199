// Layers of LSTMs by oneDNN.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace tpjrt::kernels {

// Returns the size of the workspace that torch_pjrt::lstm_layer keeps for its backward. Only oneDNN knows it, so a layer
// of zeros is computed.
int64_t lstm_workspace_bytes(int64_t length, int64_t batch, int64_t features, int64_t hidden, c10::ScalarType dtype);

}  // namespace tpjrt::kernels
