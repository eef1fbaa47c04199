// Starts executables.
#include "engine/session/launch.h"

#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/memory/cuda.h"
#include "engine/session/key_values.h"
#include "engine/session/out_of_memory.h"
#include "engine/session/rejected_program.h"
#include "engine/session/session.h"
#include "kernels/cpu/team.h"

namespace tpjrt::engine {

void Launch::clear() {
  arguments.clear();
  kept.clear();
  donated.clear();
  lenders.clear();
  results.clear();
  run.reset();
}

void Launch::add_lender(const std::optional<c10::Stream>& stream) {
  if (stream && std::ranges::find(lenders, *stream) == lenders.end()) lenders.push_back(*stream);
}

void launch(Session& session, const Program& program, Launch& launch, Until until, std::string_view consequence) {
  RECORD_FUNCTION("pjrt::execute", {});
  const pjrt::Executable& executable = *program.executable;
  const auto device = static_cast<c10::DeviceIndex>(executable.device_index());
  if (program.memory_size > session.capacity(device)) {
    throw_out_of_memory(program.memory_size, device,
                        program.largest->description() + " Nothing was changed: tensors keep their pending values.");
  }
  // A world's replicas compute side by side with one thread each (Note [One team]).
  if (session.target() == ops::Target::kCpuWithKernels) {
    kernels::set_team_size(executable.replicas() > 1 ? 1 : at::get_num_threads());
  }
  for (const c10::Stream& lender : launch.lenders) cuda::check_not_captured(lender);
  for (const pjrt::Buffer* buffer : launch.donated) buffer->set_counted(false);
  try {
    // All devices of a world must get launches in the same order, whoever starts them: otherwise two collectives would
    // wait for each other.
    const bool in_world = executable.replicas() > 1;
    std::unique_lock in_order(session.world_lock(), std::defer_lock);
    if (in_world) in_order.lock();
    if (in_world) session.await_few_in_world();
    if (until == Until::kReady) {
      executable.execute_and_wait(launch.arguments, launch.kept, launch.results);
    } else {
      std::vector<pjrt::Event> done;
      executable.execute(launch.arguments, launch.kept, launch.results, &done);
      for (pjrt::Event& event : done) session.enqueue(executable.device_index(), std::move(event), program.largest);
    }
    if (in_world) session.started_in_world();
  } catch (const pjrt::Error& error) {
    for (const pjrt::Buffer* buffer : launch.donated) buffer->set_counted(!buffer->is_deleted());
    rethrow_interrupt();
    throw_failure(program, error, consequence);
  }
  if (!launch.results.empty()) {
    try {
      for (const c10::Stream& lender : launch.lenders) cuda::stream_waits(*launch.results.front(), lender);
    } catch (const pjrt::Error& error) {  // already failed
      if (error.is_out_of_memory()) session.await(*launch.results.front());
      throw_failure(program, error, consequence);
    }
  }
  if (program.assertions) {
    launch.run = session.assertions.started(program.assertions, launch.results.back(), std::move(launch.run));
  }
  if (!program.collectives.empty()) session.metrics.count(program.collectives);
  session.metrics.executions++;
  session.metrics.nodes_executed += program.num_calls;
}

}  // namespace tpjrt::engine
