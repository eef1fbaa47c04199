// The engine's interface for the device room; the engine is built on top of that room.
//
// The engine installs itself at load. No function here starts a client until data or a device count is asked for.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/node.h"

namespace tpjrt::device {

// A moment in a device's queue, reached when everything that was started before it is complete. May be used from any
// thread.
class Moment {
 public:
  virtual ~Moment() = default;
  virtual bool reached() const = 0;
  // Throws the first error among the work that it waits for. Not with the GIL: see Engine::wait.
  virtual void wait() const = 0;
  // A time of std::chrono::steady_clock, valid once the moment was reached.
  virtual int64_t reached_at_ns() const = 0;
};

// A device's memory, in bytes of device buffers, without a running program's scratch memory. Zeros before the client
// is started.
struct MemoryUse {
  int64_t current = 0, peak = 0;
  int64_t allocated = 0, allocations = 0, frees = 0;  // since the start
  // The plugin's statistics, by the names of PJRT_Device_MemoryStats' fields; empty if it reports none.
  std::map<std::string, int64_t> plugin;
};

// A tensor whose value is in memory already, or was never written.
struct Shown {
  graph::Value leaf;                   // of its storage; empty if that was never written
  const at::Tensor* tensor = nullptr;  // lives as long as the call
  bool is_part = false;                // the tensor is a view of the leaf's memory, not all of it in its order
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual bool started() const = 0;
  virtual c10::DeviceIndex device_count() = 0;
  // Returns the device count, or before a client is started the number of devices that may be used then. Starts a
  // client only if there is no other way to know.
  virtual c10::DeviceIndex most_devices() = 0;
  // Runs all pending work of these slots; afterwards each holds a leaf. Not under graph_lock(). metrics and explain()
  // show `cause`, such as "copy to the host".
  virtual void sync(c10::ArrayRef<graph::StorageSlot*> slots, const char* cause) = 0;
  // Returns a leaf over the memory of a dense CPU tensor, whose strides become the leaf's form. `owned`: nothing else
  // can write the memory, so it may be used in place if the device computes in host memory.
  virtual graph::Value upload(const at::Tensor& dense, c10::DeviceIndex device, bool owned) = 0;
  // Returns a leaf over the memory of a dense CPU tensor that others may see and write; the device never writes it.
  // Takes the memory out of the tensor's storage. Returns an empty value if the device can't use it in place: it has
  // a memory of its own, or needs another alignment.
  virtual graph::Value borrow(const at::Tensor& dense, c10::DeviceIndex device) = 0;
  // Reports a call that ran on the host, and so cut the graph. Returns whether that copied values as well.
  virtual bool report_host_call(const std::string& op, const char* reason) = 0;
  // Returns a CPU tensor with the leaf's form. It must not be written: it may be the device's own memory. `rank`
  // selects the rank of a world.
  virtual at::Tensor host_view(const graph::Value& leaf, size_t rank = 0) = 0;
  // Note [Replication analysis]: returns whether the ranks of a world are known to have equal values of this leaf. May
  // wait for the values.
  virtual bool is_same_on_all_ranks(const graph::Value& leaf) = 0;
  // Runs a call on leaves immediately, with the kernel that would run it later, if the values exist in the host's
  // memory and all are small. `results`: leaves, in the signature's order; none if the call has written into its
  // operand's own. Returns false, and does nothing, if it can't. Not under graph_lock().
  virtual bool run_eagerly(const graph::Signature& signature, c10::ArrayRef<Shown> operands,
                           c10::ArrayRef<graph::ScalarValue> scalars, c10::SmallVectorImpl<graph::Value>& results) = 0;
  // Copies `from`, a CPU tensor where `shown` has none, into the part of its storage that `to` is. Returns false, and
  // changes nothing, where run_eagerly() would. Not under graph_lock().
  virtual bool copy_eagerly(const Shown& to, const Shown& from) = 0;
  // Returns whether PyTorch's CPU kernels run calls on the device's own memory now. They don't if an observer is
  // notified of each graph, or if graphs are compiled when they are first seen and programs call no libraries.
  virtual bool runs_kernels() = 0;
  using KernelOnMemory = c10::function_ref<std::vector<at::Tensor>(c10::ArrayRef<at::Tensor> memory)>;
  // Calls `kernel` with the leaves' memory as CPU tensors of the leaves' forms, which it must not write, and returns
  // a leaf for each tensor that it returns. Only if runs_kernels(). Throws the kernel's exceptions. Not under
  // graph_lock().
  virtual void run_kernel(c10::ArrayRef<graph::Value> leaves, KernelOnMemory kernel, c10::DeviceIndex device,
                          c10::SmallVectorImpl<graph::Value>& results) = 0;
  // Counts calls that have run immediately and are read now, like a sync that found nothing left to do.
  virtual void count_eager_calls(uint32_t calls, const char* cause, bool is_all) = 0;
  // Returns a leaf with a pending value that depends on data alone, on no placeholder and no random draw; otherwise
  // empty. The value stays pending. Not under graph_lock().
  virtual graph::Value known(const graph::Value& value) = 0;
  // Reads part of a leaf's memory.
  virtual void read(const graph::Value& leaf, int64_t offset, int64_t nbytes, void* to) = 0;
  // Returns whether the call can be lowered; if not, `reason` says why. Fills signature.lowering. `numbers` are those
  // of the first such call, without the random key. May take the GIL.
  virtual bool lowers(const graph::Signature& signature, c10::ArrayRef<graph::ScalarValue> scalars,
                      std::string& reason) = 0;
  // Starts the work that graph::pending(since, least) returns; kEver means all of it. Work since a node is one
  // iteration of a loop, and one program; otherwise each component is a program.
  virtual void start(const char* cause, uint64_t since, const graph::Least& least) = 0;
  // Returns the moment after everything that was started on the device so far.
  virtual std::shared_ptr<Moment> now(c10::DeviceIndex device) = 0;
  // Calls moment.wait() without the GIL.
  virtual void wait(const Moment& moment) = 0;
  virtual MemoryUse memory(c10::DeviceIndex device) = 0;
  virtual void reset_peak_memory(c10::DeviceIndex device) = 0;
  // Returns free bytes and total bytes, or nothing if the plugin doesn't report them. Starts the client.
  virtual std::optional<std::pair<size_t, size_t>> memory_info(c10::DeviceIndex device) = 0;
  // Throws PyTorch's OutOfMemoryError if a value of so many bytes exceeds the device's memory. Starts the client.
  virtual void check_capacity(size_t nbytes, c10::DeviceIndex device) = 0;
};

Engine& engine();
void install_engine(Engine* engine);

}  // namespace tpjrt::device
