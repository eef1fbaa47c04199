// A traced function: one program whose arguments are given at each call. Calling it records nothing and walks nothing.
//
// It is made from a trace (Note [Traces]): a function was run on placeholders (tensors on the device without data), and
// what their storages and its results hold afterwards is the program. Arguments are bound by where their memory lies
// (Note [Bound memory]): a CPU tensor's memory is used in place, and the buffer over it is kept for the next call, so a
// parameter costs a comparison. An argument whose storage the trace changed is updated where it lies. Results alias
// arguments and each other exactly as they did in the trace.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/bound_pack.h"
#include "engine/launch.h"
#include "engine/program.h"
#include "engine/supplied_result.h"
#include "graph/node.h"

namespace tpjrt::engine {

class Session;

class CompiledGraph {
 public:
  using Number = std::variant<std::monostate, int64_t, double, bool>;  // monostate: None
  // What an argument must be for this program: a tensor on `device` of these sizes and strides, or this very number.
  struct Argument {
    bool is_tensor = false;
    c10::Device device = c10::kCPU;
    c10::ScalarType dtype = c10::kFloat;
    graph::Sizes sizes, strides;
    bool conjugate = false, negative = false;  // what its memory says is lazily so
    Number number;
    // Of the trace, let go of once the program is made: the tensor that stands for the argument's memory, and the leaf
    // that its storage held first.
    at::Tensor placeholder;
    graph::NodePtr leaf;

    // A dense argument is traced as it is. Of another, the trace sees its memory from the first to the last element (on
    // the CPU, where that needs no copy) or a dense copy (on the device).
    static Argument tensor(c10::Device device, c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides);
    static Argument of(Number number);
    // The argument as the traced function sees it.
    at::Tensor traced() const;
  };
  // One result as the trace gave it, and the device that the caller wants it on.
  struct Result {
    at::Tensor traced;
    c10::Device device = c10::kCPU;
  };
  // One argument of a call. `tensor` null: a number.
  struct Given {
    const at::Tensor* tensor = nullptr;
    Number number;
  };

  // Compiles. Not under graph_lock(). Each call draws random numbers from the default generator of `random_device`.
  // `also`: what is computed, for the sake of what it requires, and given to nobody.
  CompiledGraph(Session& session, std::vector<Argument> arguments, const std::vector<Result>& results,
                c10::Device random_device, const std::vector<at::Tensor>& also = {});

  bool matches(const std::vector<Given>& given) const;
  // Runs the program; `given` matches. Results on the CPU are there on return, those on the device may be on the way.
  // Lets go of the GIL. Thread-safe.
  void call(const std::vector<Given>& given, std::vector<at::Tensor>& results);

  const std::vector<uint32_t>& mutated() const { return mutated_; }  // which arguments

 private:
  struct Bound {                    // the state of one argument that the program takes
    uint32_t argument = 0;          // of the call
    graph::TypePtr form = nullptr;  // of its buffer
    std::shared_ptr<const pjrt::BufferType> type;
    int64_t result = -1;      // of the program: its new value
    bool donated = false;     // that result may be written over it
    graph::NodePtr constant;  // not an argument of the call but a leaf with data
    // Of the last call:
    const void* memory = nullptr;
    std::shared_ptr<pjrt::Buffer> buffer;
    graph::Value leaf;  // of an argument on the device
    at::Tensor staged;  // during a call: the argument while it is computed, or a copy that can be used
  };
  struct Return {
    enum class Source : uint8_t { kArgument, kStorage };
    Source source = Source::kStorage;
    uint32_t index = 0;  // of the argument, or into storages_
    c10::ScalarType dtype = c10::kFloat;
    graph::Sizes sizes, strides;
    int64_t offset = 0;  // in elements of dtype, from the argument's own offset
    bool whole = false;  // the argument itself
    int64_t twin = -1;   // the earlier result that is this very tensor, which autograd must see: it then copies
  };
  struct Key {               // a random key, new in every call: two of numbers_
    uint32_t number, first;  // the same as the key at `first`
  };
  struct Storage {
    uint32_t result = 0;  // of the program
    graph::TypePtr form = nullptr;
    c10::Device device = c10::kCPU;
    int64_t supplied = -1;  // into supplied_
  };

  void trace_results(const std::vector<Result>& results, std::vector<graph::Value>& values);
  std::vector<uint32_t> choose_supplied(const std::vector<graph::Value>& values);
  void find_keys();
  void bind_leaves(const Walk& walk, const std::vector<int64_t>& new_values);
  static at::Tensor memory_of(const Bound& bound, const at::Tensor& tensor);
  void ready_device_arguments(const std::vector<Given>& given);
  void ready_cuda_arguments(const std::vector<Given>& given);
  PJRT_Buffer* bind(Bound& bound, const at::Tensor& tensor);
  PJRT_Buffer* bind_host(Bound& bound, const at::Tensor& tensor);
  PJRT_Buffer* bind_cuda(Bound& bound, const at::Tensor& tensor);
  void check_copy(const Bound& bound, const void* memory, size_t alignment) const;
  void count_copy(size_t bytes);
  void bind_numbers();
  void run(const std::vector<Given>& given);
  void update(const std::vector<Given>& given);
  void give(const std::vector<Given>& given, std::vector<at::Tensor>& results);
  void release(bool went_well);

  Session& session_;
  std::vector<Argument> arguments_;
  std::vector<Bound> bound_;              // in the program's order
  std::vector<SuppliedResult> supplied_;  // after these
  std::vector<BoundPack> packs_;          // last
  std::vector<uint32_t> mutated_;
  std::vector<Return> returns_;
  std::vector<Storage> storages_;
  std::shared_ptr<Program> program_;
  std::vector<graph::Number> numbers_;
  std::vector<Key> keys_;
  c10::Device random_device_;        // whose generator gives them
  bool waits_ = false;               // the CPU's tensors are written, or asserted: the call ends when the program does
  bool on_device_ = false;           // some argument lies on the device
  std::optional<c10::Device> cuda_;  // some argument or result lies there
  c10::DeviceIndex device_ = 0;

  std::mutex lock_;  // all below, and `Of the last call`
  Launch launch_;
  std::optional<pjrt::StreamHandle> order_;  // what the first argument on CUDA is made with (Note [CUDA tensors])
  NumberArguments packed_;
  int calls_ = 0;             // up to 2
  int64_t copied_bytes_ = 0;  // in this call, of arguments and results
};

// Of a trace: has the argument's storage another value than the leaf it began with?
bool is_changed(const CompiledGraph::Argument& argument);
// Of a trace: were the two tensors computed by the same calls from the same values? False where that is not obvious.
bool is_same(const at::Tensor& a, const at::Tensor& b);
// Of a trace: which arguments' first values do these tensors depend on?
std::vector<bool> reached(const std::vector<CompiledGraph::Argument>& arguments, const std::vector<at::Tensor>& from);

}  // namespace tpjrt::engine
