// Starts executables.
#include "engine/session/launch.h"

#include <ATen/Parallel.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "engine/memory/cuda.h"
#include "engine/session/key_values.h"
#include "engine/session/refusal.h"
#include "engine/session/session.h"
#include "kernels/cpu/team.h"

namespace tpjrt::engine {

void Launch::clear() {
  arguments.clear();
  in_world.clear();
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
  if (executable.client().is_host_memory()) {
    kernels::set_team_size(executable.replicas() > 1 ? 1 : at::get_num_threads());
  }
  for (const c10::Stream& lender : launch.lenders) cuda::check_not_captured(lender);
  for (const pjrt::Buffer* buffer : launch.donated) buffer->set_counted(false);
  try {
    if (executable.replicas() > 1) {
      // All devices must get launches in the same order, whoever starts them: otherwise two collectives would wait for
      // each other.
      const std::lock_guard in_order(session.world_lock());
      session.await_few_in_world();
      std::vector<pjrt::Event> done;
      executable.execute_in_world(launch.in_world, launch.kept, launch.results, done);
      if (until == Until::kReady) {
        for (const pjrt::Event& event : done) event.await(/*interruptible=*/false);
      }
      for (pjrt::Event& event : done) session.enqueue(0, std::move(event), program.largest);
      session.started_in_world();
    } else if (until == Until::kReady) {
      executable.execute_and_wait(launch.arguments, launch.kept, launch.results);
    } else {
      pjrt::Event done(executable.client().api(), nullptr);
      executable.execute(launch.arguments, launch.kept, launch.results, &done);
      session.enqueue(executable.device_index(), std::move(done), program.largest);
    }
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
