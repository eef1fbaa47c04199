// What PyTorch's profiler asks of a device that it has no tracer for.
#pragma once

namespace tpjrt::python {
void install_profiler();
}
