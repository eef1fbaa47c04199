// One argument of a compiled call, between the tensor that is given and the program that takes its memory.
//
// Note [Bound memory]: arguments are bound by where their memory lies, one class a place. A CPU tensor's memory is used in
// place, and the buffer over it is kept for the next call, so that a parameter costs a comparison. A tensor on the device
// gives the buffer that it has, after what is pending for it has run. A tensor on CUDA is used in place, after what is
// queued on its stream. Who adds a place adds a class, and a case to bound_argument().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/call/trace.h"
#include "engine/lower/program/requirements.h"
#include "engine/session/launch.h"
#include "engine/world/agreement.h"
#include "pjrt/client.h"

namespace tpjrt::engine {

// One argument of a call. `tensor` null: a number. Borrowed from the caller.
struct Given {
  const at::Tensor* tensor = nullptr;
  PlainNumber number;
};

class BoundArgument;

// What the arguments and results of one call share.
struct CallState {
  pjrt::Client& client;
  const std::vector<Given>& given;
  Launch& launch;
  const size_t device;                        // that computes: index into the client's devices
  const bool waits;                           // the call ends when the program does
  std::vector<BoundArgument*>& holding;       // what has to be released when the call went well
  std::vector<graph::Cell*> pending{};        // what has to run before anything is bound
  std::optional<c10::Device> queued{};        // CUDA's, if some argument lies there: the plugin waits for its stream
  std::optional<pjrt::StreamHandle> order{};  // what the first argument on CUDA is made with (Note [CUDA tensors])
  int64_t copied_bytes = 0;                   // of arguments and results
  const std::vector<Agreement>* agreed = nullptr;  // of a world: of each of the program's results (Note [Agreement])
  bool any_checks = false;                         // some argument rests on requirements that may not be met
  const std::vector<ChecksPtr>* checks = nullptr;  // of each of the program's results; null: none

  const at::Tensor& tensor(uint32_t argument) const { return *given[argument].tensor; }
  void count_copy(size_t bytes);  // between host and device
  // A leaf of the program's result.
  graph::NodePtr leaf_of_result(graph::TypePtr form, std::shared_ptr<pjrt::Buffer> buffer, size_t result) const;
};

// Used by one call at a time: ready() of all, bind() in the program's order, update() once the program was started. Then
// release() of those that said by hold() that they hold something, after a call that failed of all.
class BoundArgument {
 public:
  virtual ~BoundArgument() = default;
  BoundArgument(const BoundArgument&) = delete;
  BoundArgument& operator=(const BoundArgument&) = delete;

  // Is there anything to make ready?
  virtual bool is_readied() const { return false; }
  virtual void ready(CallState& /*call*/) {}
  // What the program takes; alive until release().
  virtual const pjrt::Buffer& bind(CallState& call) = 0;
  // Of what was bound, on a world's ranks. Null: equal.
  virtual Agreement agreement() const { return nullptr; }
  // What the values that were bound rest on.
  virtual ChecksPtr checks() const { return nullptr; }
  // Puts the new value, `output`, where the argument's memory is, if it isn't there already.
  virtual void update(CallState& call, std::shared_ptr<pjrt::Buffer>& output) = 0;
  // The call is over, and failed if not `went_well`: keeps what the next one can use.
  virtual void release(bool went_well) = 0;

  // The program's result that is its new value; -1: none.
  int64_t result() const { return result_; }

 protected:
  BoundArgument(uint32_t argument, graph::TypePtr form, int64_t result);

  // Asks for release(). Most arguments need none, and a call of it for each of a hundred would be seen.
  void hold(CallState& call) { call.holding.push_back(this); }
  const at::Tensor& tensor_of(const CallState& call) const { return call.tensor(argument_); }
  // What the program sees of the tensor's memory.
  at::Tensor memory_of(const at::Tensor& tensor) const;
  // Before a copy in each call: an error where that is strict.
  void check_copy(const void* memory, size_t alignment) const;

  uint32_t argument_;    // of the call
  graph::TypePtr form_;  // of the memory as the program sees it
  std::shared_ptr<const pjrt::BufferType> type_;
  int64_t result_;
};

// `donated`: the new value may be written over the argument's memory.
std::unique_ptr<BoundArgument> bound_argument(c10::Device device, uint32_t argument, graph::TypePtr form,
                                              int64_t result, bool donated);
// Not an argument of the call but a leaf with data.
std::unique_ptr<BoundArgument> bound_constant(graph::NodePtr leaf);

// The three places. Made by bound_argument().
std::unique_ptr<BoundArgument> bound_on_cpu(uint32_t argument, graph::TypePtr form, int64_t result, bool donated);
std::unique_ptr<BoundArgument> bound_on_cuda(uint32_t argument, graph::TypePtr form, int64_t result);
std::unique_ptr<BoundArgument> bound_on_device(uint32_t argument, graph::TypePtr form, int64_t result, bool donated);

}  // namespace tpjrt::engine
