// A program in a file, called with torch's tensors through the session's client.
//
// Exports a trace as a program for a file.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch_pjrt/program.h>

#include <cstdint>
#include <string>
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

class Session;

// May be used from any thread. Releases the GIL while it works. Throws torch_pjrt::Error, or c10::OutOfMemoryError if
// there is too little memory.
class FileProgram {
 public:
  // Opens the program and starts the session's client. `options.plugin` is ignored.
  FileProgram(Session& session, const std::string& path, const torch_pjrt::Options& options);

  const torch_pjrt::Program& program() const { return program_; }
  // Runs an entry on tensors on the CPU or the device, of any strides. Results are row-major, on the device if
  // `on_device`.
  std::vector<at::Tensor> call(const std::string& entry, const std::vector<at::Tensor>& arguments,
                               bool on_device) const;
  at::Tensor state(const std::string& name) const;  // on the CPU
  void set_state(const std::string& name, const at::Tensor& value) const;

 private:
  Session& session_;
  int device_;
  torch_pjrt::Program program_;
};

}  // namespace tpjrt::engine
