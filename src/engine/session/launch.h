// Runs a program once. Syncs and compiled calls both start executables here, and nowhere else.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/executable/program.h"

namespace tpjrt::engine {

class Session;

// Inputs and outputs of one run of a program. The caller fills it; for one thread.
struct Launch {
  std::vector<const pjrt::Buffer*> arguments;
  std::vector<int64_t> kept;                 // indices of arguments that must not be donated
  std::vector<const pjrt::Buffer*> donated;  // device memory that the program takes over
  std::vector<c10::Stream> lenders;          // streams of CUDA arguments, which wait for the program
  std::vector<std::shared_ptr<pjrt::Buffer>> results;
  // The run that the program's assertions belong to; null: one of its own.
  std::shared_ptr<RunChecks> run;

  void clear();
  void add_lender(const std::optional<c10::Stream>& stream);
};

// When launch() returns. kReady: results are complete, and failures of the running program are thrown.
enum class Until : uint8_t { kStarted, kReady };

// Runs the program. If it can't run, throws with the op and the user's line that need the most memory, and with
// `consequence`, a sentence. Arguments may be lost then.
void launch(Session& session, const Program& program, Launch& launch, Until until, std::string_view consequence);

}  // namespace tpjrt::engine
