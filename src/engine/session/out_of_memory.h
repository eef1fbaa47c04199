// PyTorch's OutOfMemoryError: the failed allocation, the memory in use, and the line that needs the most.
//
// Note [Out of memory]: a program that needs more memory than its device has is not started, so nothing changes.
// Nothing changes either if a plugin rejects a program at its start. A plugin may also report lack of memory later
// (XLA's CPU client does if the system refuses memory that it has, as under `ulimit -v`). Such an error is raised once,
// by the next read or wait, and the queue (engine/session/queue.h) knows the program that caused it.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <memory>
#include <string>

#include "graph/fingerprint/walk.h"
#include "pjrt/api/error.h"

namespace tpjrt::engine {

// The call of a program with the largest result, which takes most of the memory.
struct LargestResult {
  std::string op, file;  // file: empty if the line is unknown
  int line = 0;
  size_t nbytes = 0;
  size_t program_nbytes = 0;  // memory of the whole program; 0: unknown

  static std::shared_ptr<const LargestResult> of(const graph::Walk& walk, size_t program_nbytes = 0);
  std::string description() const;  // a sentence for users
};

// Throws. `nbytes`: 0 if unknown. `more`: further sentences.
[[noreturn]] void throw_out_of_memory(size_t nbytes, c10::DeviceIndex device, const std::string& more);
// Throws PyTorch's error if `error` is about lack of memory; otherwise returns. `origin` may be null.
void raise_out_of_memory(const pjrt::Error& error, c10::DeviceIndex device, const LargestResult* origin);

}  // namespace tpjrt::engine
