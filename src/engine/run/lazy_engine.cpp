// The parts of the engine's interface other than syncs and transfers.
#include "engine/run/lazy_engine.h"

#include <algorithm>
#include <string>

#include "device/host/host.h"
#include "engine/lower/call_lowering.h"
#include "engine/run/kernel/kernel_call.h"

namespace tpjrt::engine {

LazyEngine::LazyEngine(Session& session) : session_(session) {}

LazyEngine& LazyEngine::instance() {
  static auto* engine = new LazyEngine(Session::instance());  // leaked, like the session
  return *engine;
}

void LazyEngine::install() {
  device::install_engine(this);
  device::install_host_listener([](const std::string& op, const char* reason) {
    RunLog& log = Session::instance().run_log;
    if (log.is_on()) log.ran_on_host(op, reason);
  });
}

bool LazyEngine::lowers(const graph::Signature& signature, c10::ArrayRef<graph::ScalarValue> scalars,
                        std::string& reason) {
  return find_lowering(signature, scalars, session_.target(), reason);
}

device::MemoryUse LazyEngine::memory(c10::DeviceIndex device) {
  device::MemoryUse use;
  const auto index = static_cast<size_t>(std::max<int>(device, 0));
  const pjrt::Client* client = session_.started_client();
  if (!client || index >= client->devices().size()) return use;
  const pjrt::MemoryUse& counted = client->memory(index);
  use.current = counted.current_bytes();
  use.peak = counted.peak_bytes();
  use.allocated = counted.allocated_bytes();
  use.allocations = counted.allocations();
  use.frees = counted.frees();
  use.plugin = client->memory_stats(index);
  return use;
}

void LazyEngine::check_capacity(size_t nbytes, c10::DeviceIndex device) {
  if (nbytes <= session_.capacity(device)) return;
  const device::Location where = device::user_location();
  throw_out_of_memory(nbytes, device,
                      where.file.empty() ? "" : "Asked for at " + where.file + ":" + std::to_string(where.line) + ".");
}

void LazyEngine::reset_peak_memory(c10::DeviceIndex device) {
  const auto index = static_cast<size_t>(std::max<int>(device, 0));
  const pjrt::Client* client = session_.started_client();
  if (client && index < client->devices().size()) client->memory(index).reset_peak();
}

}  // namespace tpjrt::engine
