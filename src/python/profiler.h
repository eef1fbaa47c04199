// PyTorch's profiler interface, for a device without a tracer.
#pragma once

namespace tpjrt::python {
void install_profiler();
}
