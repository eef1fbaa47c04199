// A trace as a program that leaves this process: for a file.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/call/trace.h"
#include "engine/session/programs.h"

namespace tpjrt::engine {

class Session;

struct ExportedTrace {
  std::vector<ExportedText> texts;  // by platform
  // Of each argument of the program: the trace's argument, or -1 - i: constant i. The random state comes after them.
  std::vector<int64_t> parameters;
  std::vector<at::Tensor> constants;  // what the trace uses and neither was given nor made
  // The arguments whose new values come after the results, in this order.
  std::vector<int64_t> updated;
};

// `results` are the first of the program's, row-major. Not under graph_lock().
ExportedTrace export_trace(Session& session, const Trace& trace, const std::vector<at::Tensor>& results);

}  // namespace tpjrt::engine
