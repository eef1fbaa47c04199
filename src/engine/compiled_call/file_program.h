// A program in a file, called with torch's tensors through the session's client.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch_pjrt/program.h>

#include <string>
#include <vector>

namespace tpjrt::engine {

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
