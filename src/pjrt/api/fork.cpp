// Detects fork().
#include "pjrt/api/fork.h"

#include <pthread.h>

#include <atomic>
#include <mutex>

namespace tpjrt::pjrt {

namespace {

std::atomic<bool> forked{false};

}  // namespace

bool in_forked_child() noexcept { return forked.load(std::memory_order_relaxed); }

void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); }); });
}

const char* const kForked =
    "this process was forked from one in which the device \"pjrt\" was in use already, and can't use it: the plugin's "
    "threads were not forked with it. Start processes that use the device with "
    "torch.multiprocessing.get_context(\"spawn\") or (\"forkserver\"), the workers of a DataLoader with "
    "multiprocessing_context=\"spawn\", or fork before the device is first used";

}  // namespace tpjrt::pjrt
