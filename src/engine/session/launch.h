// Running a program once: the one place where an executable is started, by syncs and by compiled calls.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/program/program.h"

namespace tpjrt::engine {

class Session;

// What one run of a program is given, and gives. Filled by who runs it, for one thread.
struct Launch {
  std::vector<PJRT_Buffer*> arguments;
  std::vector<const pjrt::Buffer*> in_world;  // in their place, where the program runs on a world's devices
  std::vector<int64_t> kept;                  // arguments that must not be donated
  std::vector<const pjrt::Buffer*> donated;   // memory of the device that the program takes over
  std::vector<c10::Stream> lenders;           // of CUDA memory among the arguments: they wait for the program
  std::vector<std::shared_ptr<pjrt::Buffer>> results;
  // What the program requires of its data, beside what the run that it is part of does. Null: nothing.
  std::shared_ptr<RunChecks> run;

  void clear();
  void add_lender(const std::optional<c10::Stream>& stream);
};

// Ready: the results are there, and what fails while the program runs is thrown.
enum class Until : uint8_t { kStarted, kReady };

// What can't be run throws with the op and the user's line that need the most memory, and `consequence`, a sentence. Then
// arguments may be gone.
void launch(Session& session, const Program& program, Launch& launch, Until until, std::string_view consequence);

}  // namespace tpjrt::engine
