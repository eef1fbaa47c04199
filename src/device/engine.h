// What the device room asks of the engine, which is built on top of it.
//
// The engine installs itself at load. Nothing here starts a client until data or a device count is asked for.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "graph/node.h"

namespace tpjrt::device {

class Engine {
 public:
  virtual ~Engine() = default;
  virtual c10::DeviceIndex device_count() = 0;
  // Runs whatever is pending for these cells; afterwards each holds a leaf. Not under graph_lock(). `cause` is what
  // metrics and explain() show, "copy to the host".
  virtual void sync(c10::ArrayRef<graph::Cell*> cells, const char* cause) = 0;
  // A leaf over the memory of a dense CPU tensor, whose strides become the leaf's form. `owned`: nobody else can write
  // the memory, so it may be used in place where the device computes in host memory.
  virtual graph::Value upload(const at::Tensor& dense, c10::DeviceIndex device, bool owned) = 0;
  // A CPU tensor with the leaf's form. Read only: it may be the device's own memory.
  virtual at::Tensor host_view(const graph::Value& leaf) = 0;
  // Reads part of a leaf's memory.
  virtual void read(const graph::Value& leaf, int64_t offset, int64_t nbytes, void* to) = 0;
  // Whether the call can be lowered; if not, why. Fills signature.lowering. `numbers` are those of the first such call,
  // without the random key. May take the GIL.
  virtual bool lowers(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers, std::string& reason) = 0;
  // Blocks until everything that was started on the device is done.
  virtual void wait(c10::DeviceIndex device) = 0;
};

Engine& engine();
void install_engine(Engine* engine);

}  // namespace tpjrt::device
