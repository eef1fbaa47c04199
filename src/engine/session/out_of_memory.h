// PyTorch's OutOfMemoryError: what could not be allocated, what is in use, and which line asked for the most.
//
// Note [Out of memory]: a program whose own memory is more than its device has is not started, so that everything stays as
// it was. What a plugin refuses when a program is to be started leaves everything as it was, too. What it reports
// afterwards (XLA's CPU client where the system refuses memory that it has, as under `ulimit -v`) is raised once, by
// whoever reads or waits next, and the queue (engine/session/queue.h) knows which program it was.
#pragma once

#include <memory>
#include <string>

#include "graph/tape/walk.h"
#include "pjrt/api/error.h"

namespace tpjrt::engine {

// The call of a program with the largest result: most of the memory goes there.
struct LargestResult {
  std::string op, file;  // file: empty where no line is known
  int line = 0;
  size_t nbytes = 0;
  size_t program_nbytes = 0;  // what the whole program needs; 0 where it isn't known

  static std::shared_ptr<const LargestResult> of(const graph::Walk& walk, size_t program_nbytes = 0);
  std::string told() const;  // a sentence
};

// `nbytes`: 0 where it isn't known. `more`: sentences.
[[noreturn]] void throw_out_of_memory(size_t nbytes, c10::DeviceIndex device, const std::string& more);
// As PyTorch's error, if it is for want of memory; else returns. `origin` may be null.
void raise_out_of_memory(const pjrt::Error& error, c10::DeviceIndex device, const LargestResult* origin);

}  // namespace tpjrt::engine
