// One argument of a compiled call: maps the tensor that the caller passes to the buffer that the program reads.
//
// Note [Bound memory]: arguments are bound according to where their memory is, with one class for each place. CPU
// memory is used in place, and the buffer over it is kept for the next call, so that binding a parameter costs one
// comparison. A tensor on the device supplies its own buffer after its pending work has run. CUDA memory is used in
// place, after the work that is queued on its stream. A new place needs a new class and a case in bound_argument().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/compiled_call/trace.h"
#include "engine/lower/module/assertions.h"
#include "engine/replication/replication.h"
#include "engine/session/launch.h"
#include "pjrt/client.h"
#include "pjrt/stream.h"

namespace tpjrt::engine {

// One argument of a call: a tensor, or a scalar if `tensor` is null. Borrowed from the caller.
struct Given {
  const at::Tensor* tensor = nullptr;
  PlainScalar number;
};

class BoundArgument;

// State that the arguments and results of one call share.
struct CallState {
  pjrt::Client& client;
  const std::vector<Given>& given;
  Launch& launch;
  const size_t device;                         // runs the program: index into the client's devices
  std::vector<BoundArgument*>& holding;        // arguments to release after a successful call
  std::vector<graph::StorageSlot*> pending{};  // storage slots to sync before anything is bound
  std::optional<c10::Device> queued{};         // the CUDA device of some argument: the plugin waits for its stream
  std::optional<pjrt::StreamHandle> order{};   // creates the first CUDA argument's buffer (Note [CUDA tensors])
  int64_t copied_bytes = 0;                    // arguments and results
  const std::vector<Replication>* replicated =
      nullptr;              // in a world: one per result of the program (Note [Replication analysis])
  bool any_checks = false;  // some argument depends on assertions that may fail
  const std::vector<ChecksPtr>* checks = nullptr;  // one for each of the program's results; null: none

  const at::Tensor& tensor(uint32_t argument) const { return *given[argument].tensor; }
  void count_copy(size_t bytes);  // between host and device
  // Makes a leaf that owns a result of the program.
  graph::NodePtr leaf_of_result(graph::TypePtr form, std::shared_ptr<pjrt::Buffer> buffer, size_t result) const;
};

// Used by one call at a time: ready() of all, bind() in the program's order, then update() once the program was
// started. Afterwards release() is called for the arguments that called hold(), or for all of them if the call failed.
class BoundArgument {
 public:
  virtual ~BoundArgument() = default;
  BoundArgument(const BoundArgument&) = delete;
  BoundArgument& operator=(const BoundArgument&) = delete;

  // Returns true if ready() has work to do.
  virtual bool is_readied() const { return false; }
  virtual void ready(CallState& /*call*/) {}
  // Returns the value of a constant, or that ready() found for a tensor on the device; else empty. Call it under
  // graph_lock().
  virtual graph::Value value() const { return {}; }
  // Returns the buffer that the program takes. It stays alive until release().
  virtual const pjrt::Buffer& bind(CallState& call) = 0;
  // Returns which ranks of a world agree on the bound value; null if all do.
  virtual Replication replication() const { return nullptr; }
  // Returns the runtime assertions that the bound values depend on.
  virtual ChecksPtr checks() const { return nullptr; }
  // Stores the new value, `output`, in the argument's memory unless the program wrote it there already.
  virtual void update(CallState& call, std::shared_ptr<pjrt::Buffer>& output) = 0;
  // Ends the call, which failed if `went_well` is false. Keeps buffers that the next call can use.
  virtual void release(bool went_well) = 0;

  // The program's result that holds the new value; -1 if the argument is not updated.
  int64_t result() const { return result_; }

 protected:
  BoundArgument(uint32_t argument, graph::TypePtr form, int64_t result);

  // Requests release(). Most arguments need none, and a hundred needless calls would be measurable.
  void hold(CallState& call) { call.holding.push_back(this); }
  const at::Tensor& tensor_of(const CallState& call) const { return call.tensor(argument_); }
  // Returns the part of the tensor's memory that the program sees.
  at::Tensor memory_of(const at::Tensor& tensor) const;
  // Called before a copy that every call repeats. Throws in strict mode.
  void check_copy(const void* memory, size_t alignment) const;

  uint32_t argument_;    // index among the call's arguments
  graph::TypePtr form_;  // type of the memory that the program sees
  std::shared_ptr<const pjrt::BufferType> type_;
  int64_t result_;
};

// Binds an argument of the call. `donated`: the program may write the new value over the argument's memory.
// `in_place`: memory of the CPU is used as it is, because programs share it and the call waits.
std::unique_ptr<BoundArgument> bound_argument(c10::Device device, uint32_t argument, graph::TypePtr form,
                                              int64_t result, bool donated, bool in_place);
// Binds a leaf with data that is no argument of the call.
std::unique_ptr<BoundArgument> bound_constant(graph::NodePtr leaf);

// One function for each place; called by bound_argument().
std::unique_ptr<BoundArgument> bound_on_cpu(uint32_t argument, graph::TypePtr form, int64_t result, bool donated,
                                            bool in_place);
std::unique_ptr<BoundArgument> bound_on_cuda(uint32_t argument, graph::TypePtr form, int64_t result);
std::unique_ptr<BoundArgument> bound_on_device(uint32_t argument, graph::TypePtr form, int64_t result, bool donated);

}  // namespace tpjrt::engine
