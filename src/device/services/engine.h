// What the device room asks of the engine, which is built on top of it.
//
// The engine installs itself at load. Nothing here starts a client until data or a device count is asked for.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/pending.h"

namespace tpjrt::device {

// A moment in a device's queue: reached when everything that was started before it is over. May be used from any thread.
class Moment {
 public:
  virtual ~Moment() = default;
  virtual bool reached() const = 0;
  // Throws the first error among what it waits for. Not with the GIL: see Engine::wait.
  virtual void wait() const = 0;
  // On std::chrono::steady_clock; once it was reached.
  virtual int64_t reached_at_ns() const = 0;
};

// A device's memory, in bytes of device buffers; what a running program needs besides is not in it. Zeros before the
// client is started.
struct MemoryUse {
  int64_t current = 0, peak = 0;
  int64_t allocated = 0, allocations = 0, frees = 0;  // since the start
  // What the plugin tells, by the names of PJRT_Device_MemoryStats' fields; empty where it tells nothing.
  std::map<std::string, int64_t> plugin;
};

// A tensor whose value is in memory already, or was never written.
struct Shown {
  graph::Value leaf;                   // of its storage; none where that was never written
  const at::Tensor* tensor = nullptr;  // lives as long as the call
  bool is_part = false;                // the tensor is a view of the leaf's memory, not all of it in its order
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual bool started() const = 0;
  virtual c10::DeviceIndex device_count() = 0;
  // The same, or what may be used before a client is started. Starts one only where nothing else could tell.
  virtual c10::DeviceIndex most_devices() = 0;
  // Runs whatever is pending for these cells; afterwards each holds a leaf. Not under graph_lock(). `cause` is what
  // metrics and explain() show, "copy to the host".
  virtual void sync(c10::ArrayRef<graph::Cell*> cells, const char* cause) = 0;
  // A leaf over the memory of a dense CPU tensor, whose strides become the leaf's form. `owned`: nobody else can write
  // the memory, so it may be used in place where the device computes in host memory.
  virtual graph::Value upload(const at::Tensor& dense, c10::DeviceIndex device, bool owned) = 0;
  // A leaf over the memory of a dense CPU tensor that others may see and write; the device never writes it. Takes the memory
  // out of the tensor's storage. Empty where the device can't use it in place: it has a memory of its own, or wants
  // another alignment.
  virtual graph::Value borrow(const at::Tensor& dense, c10::DeviceIndex device) = 0;
  // Does the device compute in the host's memory? Starts the client.
  virtual bool is_host_memory() = 0;
  // A CPU tensor with the leaf's form. Read only: it may be the device's own memory. `rank`: whose, of a world.
  virtual at::Tensor host_view(const graph::Value& leaf, size_t rank = 0) = 0;
  // Note [Agreement]: are the values that the ranks of a world have of this leaf known to be equal? May wait for them.
  virtual bool is_same_on_all_ranks(const graph::Value& leaf) = 0;
  // Runs a call on leaves while it is recorded, where the kernel that would run it later can do it now: the values are there, in
  // the host's memory, and all is small. `results`: leaves, in the signature's order; none where the call has written
  // into its operand's own. False, and nothing done, where it can't. Not under graph_lock().
  virtual bool run_at_once(const graph::Signature& signature, c10::ArrayRef<Shown> operands,
                           c10::ArrayRef<graph::Number> numbers, c10::SmallVectorImpl<graph::Value>& results) = 0;
  // Copies `from`, a CPU tensor where `shown` has none, into the part of its storage that `to` is. Returns false, and changes
  // nothing, where run_at_once() would. Not under graph_lock().
  virtual bool copy_at_once(const Shown& to, const Shown& from) = 0;
  // Do PyTorch's CPU kernels run calls on the device's own memory now? Not where graphs are compiled when first met, and not where
  // somebody is told of each graph.
  virtual bool runs_kernels() = 0;
  using KernelOnMemory = c10::function_ref<std::vector<at::Tensor>(c10::ArrayRef<at::Tensor> memory)>;
  // Then: calls `kernel` with the leaves' memory as CPU tensors of the leaves' forms, which it must not write, and gives a leaf
  // for each tensor that it returns. Throws what the kernel throws. Not under graph_lock().
  virtual void run_kernel(c10::ArrayRef<graph::Value> leaves, KernelOnMemory kernel, c10::DeviceIndex device,
                          c10::SmallVectorImpl<graph::Value>& results) = 0;
  // So many calls have run at once and are read now, as by a sync that found nothing left to do.
  virtual void count_at_once(uint32_t calls, const char* cause, bool is_all) = 0;
  // A leaf with a pending value that rests on data alone: on no placeholder and no random draw. Empty for another. The value stays
  // pending. Not under graph_lock().
  virtual graph::Value known(const graph::Value& value) = 0;
  // Reads part of a leaf's memory.
  virtual void read(const graph::Value& leaf, int64_t offset, int64_t nbytes, void* to) = 0;
  // Whether the call can be lowered; if not, why. Fills signature.lowering. `numbers` are those of the first such call,
  // without the random key. May take the GIL.
  virtual bool lowers(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers, std::string& reason) = 0;
  // Starts what graph::pending(since, least) gives: since ever, all of it. What came since a node is one round of a loop, and
  // one program; otherwise each component is.
  virtual void start(const char* cause, uint64_t since, const graph::Least& least) = 0;
  // After everything that was started on the device so far.
  virtual std::shared_ptr<Moment> now(c10::DeviceIndex device) = 0;
  // moment.wait() without the GIL.
  virtual void wait(const Moment& moment) = 0;
  virtual MemoryUse memory(c10::DeviceIndex device) = 0;
  virtual void reset_peak_memory(c10::DeviceIndex device) = 0;
  // Bytes that are free and bytes in all; nothing where the plugin doesn't tell. Starts the client.
  virtual std::optional<std::pair<size_t, size_t>> memory_info(c10::DeviceIndex device) = 0;
  // Raises PyTorch's OutOfMemoryError where a value of so many bytes is more than the device's memory. Starts the client.
  virtual void check_capacity(size_t nbytes, c10::DeviceIndex device) = 0;
};

Engine& engine();
void install_engine(Engine* engine);

}  // namespace tpjrt::device
