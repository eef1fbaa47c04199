// The engine behind the device: runs the graphs that were recorded, when their values are read.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "device/services/engine.h"
#include "engine/cut/cuts.h"
#include "engine/memory/device_data.h"
#include "engine/run/kernel/kernel_call.h"
#include "engine/session/launch.h"
#include "engine/session/session.h"
#include "engine/tier/forms.h"
#include "engine/tier/policy.h"

namespace tpjrt::engine {

class LazyEngine final : public device::Engine {
 public:
  static LazyEngine& instance();
  // Makes it the device's engine.
  void install();

  bool started() const override { return session_.started_client() != nullptr; }
  c10::DeviceIndex device_count() override { return session_.device_count(); }
  c10::DeviceIndex most_devices() override { return session_.most_devices(); }
  void sync(c10::ArrayRef<graph::Cell*> cells, const char* cause) override;
  graph::Value upload(const at::Tensor& dense, c10::DeviceIndex device, bool owned) override;
  graph::Value borrow(const at::Tensor& dense, c10::DeviceIndex device) override;
  bool is_host_memory() override { return session_.client().is_host_memory(); }
  at::Tensor host_view(const graph::Value& leaf, size_t rank = 0) override;
  bool is_same_on_all_ranks(const graph::Value& leaf) override;
  bool run_at_once(const graph::Signature& signature, c10::ArrayRef<device::Shown> operands,
                   c10::ArrayRef<graph::Number> numbers, c10::SmallVectorImpl<graph::Value>& results) override;
  bool copy_at_once(const device::Shown& to, const device::Shown& from) override;
  bool runs_kernels() override { return may_run_at_once(); }
  void run_kernel(c10::ArrayRef<graph::Value> leaves, KernelOnMemory kernel, c10::DeviceIndex device,
                  c10::SmallVectorImpl<graph::Value>& results) override;
  void count_at_once(uint32_t calls, const char* cause, bool is_all) override;
  graph::Value known(const graph::Value& value) override;
  void read(const graph::Value& leaf, int64_t offset, int64_t nbytes, void* to) override;
  bool lowers(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers, std::string& reason) override;
  void start(const char* cause, uint64_t since, const graph::Least& least) override {
    start(cause, since, least, session_.logged_location());
  }
  std::shared_ptr<device::Moment> now(c10::DeviceIndex device) override { return session_.now(device); }
  void wait(const device::Moment& moment) override { session_.wait(moment); }
  device::MemoryUse memory(c10::DeviceIndex device) override;
  void reset_peak_memory(c10::DeviceIndex device) override;
  std::optional<std::pair<size_t, size_t>> memory_info(c10::DeviceIndex device) override {
    return session_.memory_info(device);
  }
  void check_capacity(size_t nbytes, c10::DeviceIndex device) override;

  // For the benchmarks: all of a sync up to the call of execute.
  int64_t prepare_only(c10::ArrayRef<graph::Cell*> cells);

 private:
  // What one sync works with. A sync within a sync (a lowering that records and reads) has its own.
  struct Sync {
    graph::Walk walk;
    NumberArguments numbers;
    Launch launch;
  };

  // What a call that runs at once works with.
  struct AtOnce {
    bool busy = false;
    graph::NodePtr node;  // nobody else's
    std::vector<at::Tensor> operands, results;
    torch::jit::Stack stack;
    std::unordered_map<graph::TypePtr, std::shared_ptr<const pjrt::BufferType>> types;
  };

  explicit LazyEngine(Session& session);
  void start(const char* cause, uint64_t since, const graph::Least& least, const device::Location& where);
  void run(const char* cause, c10::ArrayRef<graph::Cell*> cells, const device::Location& where);
  // `program`: null where it isn't known yet. `is_part`: of a graph that is cut, so that it comes back.
  void run(const graph::Walk& walk, std::shared_ptr<Program> program, bool is_part, const char* cause,
           const device::Location& where, Sync& sync);
  // Runs all but the last part of a graph that is cut in parts, if it is one.
  bool run_parts(const device::Location& where, Sync& sync);
  void launch_bound(const graph::Walk& walk, const Program& program, Sync& sync);
  // Note [Tiers], Note [Growing graphs]. May this graph without a program run so, and by whom?
  // A program that others run as well, with its collectives: it stays whole, and is compiled.
  bool needs_other_processes(const graph::Walk& walk);
  std::optional<CallsBy> may_run_by_calls(const graph::Walk& walk, bool is_part);
  CallsBy calls_by();
  // PyTorch's device whose kernels run calls of the client's `device`: CUDA where it has them, else the CPU.
  c10::Device kernels_of(c10::DeviceIndex device);
  // What runs a graph: a program, or its calls, for which a program without an executable stands. Null: it is to be compiled.
  struct Chosen {
    std::shared_ptr<Program> program;
    std::shared_ptr<const CallsPlan> calls;
    std::vector<bool> on_host;  // where calls are programs: ByOneCall
  };
  // Of a graph without a program: its calls, or what was compiled of it meanwhile.
  Chosen by_calls_or_compiled(const graph::Walk& walk, CallsBy by);
  // Note [At once].
  bool may_run_at_once();
  struct OneCall {
    const graph::Signature& signature;
    c10::ArrayRef<device::Shown> operands;
    c10::ArrayRef<graph::Number> numbers;
    c10::SmallVectorImpl<graph::Value>& results;
  };
  at::Tensor shown_memory(const device::Shown& shown);
  bool run_at_once(const OneCall& one);  // under the session's lock
  // Gives the bytes that were copied between the host and the device. None: PyTorch lacks memory, and nothing was changed.
  std::optional<uint64_t> run_calls(const graph::Walk& walk, const Chosen& chosen, Sync& sync);
  struct Interpreted {
    bool lacks_memory = false;  // PyTorch does, and nothing was changed
    uint64_t copied = 0;        // bytes, to and from a device with a memory of its own
    size_t alone = 0;           // calls that were programs, since the host has no kernel for them
  };
  // By PyTorch's kernels and programs of one call.
  Interpreted interpret(const graph::Walk& walk, const CallsPlan& plan);
  Interpreted interpret_on_host(const graph::Walk& walk, const CallsPlan& plan);
  // Note [Calls on CUDA].
  Interpreted interpret_on_cuda(const graph::Walk& walk, const CallsPlan& plan);
  // Requirements of programs of single calls while a graph is interpreted.
  struct CallChecks {
    std::shared_ptr<RunChecks> run;  // null: nothing
    std::vector<uint32_t> calls;     // of each requirement, the call of the graph whose it is
  };
  // One call, as the graph of it; `call`: its place in that which is run by calls. `leaves` are its operands; gives leaves, one a result that there is.
  std::vector<graph::NodePtr> run_alone(const graph::Node& node, uint32_t call,
                                        c10::SmallVectorImpl<graph::Value>& leaves, CallChecks& checks, Until until);
  void bind(const graph::Walk& walk, const Program& program, Sync& sync);
  static void settle(const graph::Walk& walk, const Program& program, Launch& launch);
  static void settle(const graph::Walk& walk, const Program& program, const CallChecks& checks,
                     std::vector<std::shared_ptr<DeviceData>>& results);

  std::shared_ptr<pjrt::Buffer> to_device(const at::Tensor& dense, c10::DeviceIndex device, bool owned);
  // Takes the memory out of a storage, which has `left` from then on.
  std::shared_ptr<pjrt::Buffer> buffer_over(const c10::Storage& storage, c10::DataPtr left,
                                            const std::shared_ptr<const pjrt::BufferType>& type,
                                            c10::DeviceIndex device);
  // As borrow does, for as long as the runtime reads it; nothing is taken from the tensor.
  graph::Value lend(const at::Tensor& dense, c10::DeviceIndex device);
  // Raises what the leaf's values rest on in vain, or what no value has any more (Note [Requirements]).
  void raise_unmet(const graph::Value& leaf);
  // What host_view gives, of a leaf that is ready.
  at::Tensor host_tensor(const graph::Node& leaf, size_t rank = 0);
  // A leaf's values for calls: where they lie in the host's memory, a tensor that stays with the leaf and must not outlive it.
  at::Tensor kept_tensor(const graph::Node& leaf);
  // A leaf's data of a result of a call, which nobody else has.
  std::shared_ptr<DeviceData> keep(at::Tensor result, const std::shared_ptr<const pjrt::BufferType>& type,
                                   c10::DeviceIndex device);

  Session& session_;
  // Under the session's lock:
  Cuts cuts_;
  MetGraphs met_;
  Forms forms_;
  int running_ = 0;  // syncs within each other
  AtOnce at_once_;
  Sync sync_;  // reused, so that a known graph allocates nothing here
};

}  // namespace tpjrt::engine
