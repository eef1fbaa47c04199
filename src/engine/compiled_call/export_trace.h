// Exports a trace as a program for a file.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "engine/compiled_call/trace.h"
#include "engine/session/program_table.h"

namespace tpjrt::engine {

class Session;

struct ExportedTrace {
  std::vector<ExportedText> texts;  // by platform
  // For each argument of the program: the trace's argument, or -1 - i for constant i. The random state follows them.
  std::vector<int64_t> parameters;
  std::vector<at::Tensor> constants;  // tensors that the trace uses but neither received nor made
  // The arguments whose new values follow the results, in this order.
  std::vector<int64_t> updated;
};

// Lowers the trace. `results` are the program's first results, row-major. Must not be called under graph_lock().
ExportedTrace export_trace(Session& session, const Trace& trace, const std::vector<at::Tensor>& results);

}  // namespace tpjrt::engine
