// Starts long graphs that are not read.
#include "device/start/eager.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "device/services/engine.h"
#include "device/services/modes.h"
#include "device/services/python_hooks.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {

namespace {

constexpr uint32_t kMostNodes = 20'000;

uint32_t initial() {
  const char* value = std::getenv("TORCH_PJRT_EAGER");
  return value && *value && std::string_view(value) != "0" ? 0 : kMostNodes;
}

}  // namespace

std::atomic<uint32_t> most_nodes{initial()};

bool eager() { return most_nodes.load(std::memory_order_relaxed) == 0; }
void set_eager(bool on) { most_nodes = on ? 0 : kMostNodes; }

void start_long_graph(const at::Tensor& tensor, const std::string& op) {
  if (stays_lazy() || tracing()) return;
  if (!eager()) {
    engine().sync({&storage_of(tensor)->slot}, "a graph long without a read");
    return;
  }
  engine().sync({&storage_of(tensor)->slot}, "eager mode");
  try {
    engine().wait(*engine().now(tensor.device().index()));
  } catch (const c10::Error&) {
    throw;  // PyTorch's own: its class separates an IndexError from a LinAlgError, and its text names the op
  } catch (const std::exception& error) {
    let_interrupts_pass();
    TORCH_CHECK(false, "[", op, "] failed: ", error.what());
  }
}

}  // namespace tpjrt::device
