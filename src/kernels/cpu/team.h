// The threads that kernels compute with.
//
// Note [One team]: an OpenMP library computes with a team of threads that belongs to the thread that calls it. XLA calls handlers in
// whichever of its threads is free, several at once, so that each of these would come to have a team as large as the machine. So
// there is one thread with a team, which does what handlers give it, one after the other, while XLA's threads wait; and what
// isn't worth several threads is done where XLA is, by that thread alone. With one thread allowed all of it is.
#pragma once

#include <functional>

namespace tpjrt::kernels {

// How many threads programs that are launched from now on may compute with: as torch.set_num_threads has it in the thread that
// launches.
void set_team_size(int threads);

// Runs `work` and waits for it; throws what it throws. `large`: worth several threads. Not from within work.
void compute(bool large, const std::function<void()>& work);

}  // namespace tpjrt::kernels
