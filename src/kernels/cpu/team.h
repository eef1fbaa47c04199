// The threads with which kernels compute.
//
// Note [One team]: OpenMP gives each thread that calls it a team of threads of its own. XLA calls handlers in
// whichever of its threads is free, several at once, so each of these would get a team as large as the machine.
// Therefore one thread owns a team and runs the handlers' work one after the other, while XLA's threads wait. Work
// that isn't worth several threads runs in XLA's thread alone. If only one thread is allowed, all work does.
#pragma once

#include <functional>

namespace tpjrt::kernels {

// Sets how many threads programs may compute with that are launched from now on: torch.set_num_threads of the
// launching thread.
void set_team_size(int threads);

// Runs `work` and waits for it; throws its exception. `large`: worth several threads. Must not be called from within
// work.
void compute(bool large, const std::function<void()>& work);

}  // namespace tpjrt::kernels
