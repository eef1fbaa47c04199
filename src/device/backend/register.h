// Makes "pjrt" a torch device: storage, guard, hooks, own kernels and the recorder. Once per process.
#pragma once

namespace tpjrt::device {
void register_device();
}
