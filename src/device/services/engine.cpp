// The installed engine.
#include "device/services/engine.h"

#include <c10/util/Exception.h>

#include <atomic>

namespace tpjrt::device {

namespace {

std::atomic<Engine*> installed_engine{nullptr};

}  // namespace

Engine& engine() {
  Engine* engine = installed_engine;
  TORCH_INTERNAL_ASSERT(engine, "pjrt: no engine is installed");
  return *engine;
}
void install_engine(Engine* engine) { installed_engine = engine; }

}  // namespace tpjrt::device
