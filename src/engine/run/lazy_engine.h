// The engine behind the device: runs recorded graphs when their values are read.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "device/services/engine.h"
#include "engine/kernel/kernel_call.h"
#include "engine/memory/device_data.h"
#include "engine/session/launch.h"
#include "engine/session/session.h"
#include "engine/tier/graph_keys.h"
#include "engine/tier/policy.h"

namespace tpjrt::engine {

class LazyEngine final : public device::Engine {
 public:
  static LazyEngine& instance();
  // Makes this the device's engine.
  void install();

  bool started() const override { return session_.started_client() != nullptr; }
  c10::DeviceIndex device_count() override { return session_.device_count(); }
  c10::DeviceIndex most_devices() override { return session_.most_devices(); }
  void sync(c10::ArrayRef<graph::StorageSlot*> slots, const char* cause) override;
  graph::Value upload(const at::Tensor& dense, c10::DeviceIndex device, bool owned) override;
  graph::Value borrow(const at::Tensor& dense, c10::DeviceIndex device) override;
  bool report_host_call(const std::string& op, const char* reason) override;
  at::Tensor host_view(const graph::Value& leaf, size_t rank = 0) override;
  bool is_same_on_all_ranks(const graph::Value& leaf) override;
  bool run_eagerly(const graph::Signature& signature, c10::ArrayRef<device::Shown> operands,
                   c10::ArrayRef<graph::ScalarValue> scalars, c10::SmallVectorImpl<graph::Value>& results) override;
  bool copy_eagerly(const device::Shown& to, const device::Shown& from) override;
  bool runs_kernels() override;
  void run_kernel(c10::ArrayRef<graph::Value> leaves, KernelOnMemory kernel, c10::DeviceIndex device,
                  c10::SmallVectorImpl<graph::Value>& results) override;
  void count_eager_calls(uint32_t calls, const char* cause, bool is_all) override;
  graph::Value known(const graph::Value& value) override;
  void read(const graph::Value& leaf, int64_t offset, int64_t nbytes, void* to) override;
  bool lowers(const graph::Signature& signature, c10::ArrayRef<graph::ScalarValue> scalars,
              std::string& reason) override;
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

  // For benchmarks: runs a sync up to the call of execute. Returns nanoseconds.
  int64_t prepare_only(c10::ArrayRef<graph::StorageSlot*> slots);

 private:
  // The working memory of one sync. A nested sync (of a lowering that records and reads) has its own.
  struct Sync {
    graph::Walk walk;
    ScalarArguments scalars;
    Launch launch;
  };

  // The working memory of a call on the eager fast path.
  struct FastPath {
    bool busy = false;
    std::vector<at::Tensor> operands, results;
    torch::jit::Stack stack;
    std::unordered_map<graph::TypePtr, std::shared_ptr<const pjrt::BufferType>> types;
  };

  explicit LazyEngine(Session& session);
  void start(const char* cause, uint64_t since, const graph::Least& least, const device::Location& where);
  void run(const char* cause, c10::ArrayRef<graph::StorageSlot*> slots, const device::Location& where);
  // Runs a graph. `program`: null if unknown. `is_part`: the graph is part of a cut graph, so that it recurs.
  void run(const graph::Walk& walk, std::shared_ptr<Program> program, bool is_part, const char* cause,
           const device::Location& where, Sync& sync);
  // Runs all but the last part if the graph is cut into parts. Returns false if it is not cut.
  bool run_parts(const device::Location& where, Sync& sync);
  void launch_bound(const graph::Walk& walk, const Program& program, Sync& sync);
  // Returns true if the graph is one program on all ranks, of a world or with its collectives in several processes: it
  // is neither cut nor interpreted.
  bool runs_on_all_ranks(const graph::Walk& walk);
  // Returns true if a graph without a program may be interpreted, so that it need not be compiled now (Note [Tiers],
  // Note [Dynamic shapes]).
  bool may_interpret(const graph::Walk& walk, bool is_part);
  InterpretBy interpret_by();
  // Returns PyTorch's device whose kernels run calls of the client's `device`: CUDA if PyTorch has kernels for it,
  // otherwise the CPU.
  c10::Device kernels_of(c10::DeviceIndex device);
  // How a graph runs: a program, or interpreted with a program that has no executable. Null: it is compiled first.
  struct Chosen {
    std::shared_ptr<Program> program;
    std::shared_ptr<const CallsPlan> calls;
  };
  // Decides how a graph without a program runs: interpreted, which may begin its compile, or as its compiled program.
  Chosen interpreted_or_compiled(const graph::Walk& walk);
  // Returns true if the eager fast path is enabled (Note [Eager fast path]).
  bool may_run_eagerly();
  struct OneCall {
    const graph::Signature& signature;
    c10::ArrayRef<device::Shown> operands;
    c10::ArrayRef<graph::ScalarValue> scalars;
    c10::SmallVectorImpl<graph::Value>& results;
  };
  at::Tensor shown_memory(const device::Shown& shown);
  bool run_eagerly(const OneCall& one);  // call under the session's lock
  // Interprets a graph. Returns the bytes copied between host and device, or nothing if PyTorch lacks memory and
  // nothing changed.
  std::optional<uint64_t> run_calls(const graph::Walk& walk, const CallsPlan& plan);
  struct Interpreted {
    bool lacks_memory = false;  // PyTorch lacks it, and nothing changed
    uint64_t copied = 0;        // bytes to and from a device with its own memory
    size_t alone = 0;           // single-op programs, for lack of a host kernel
  };
  // Run a graph with PyTorch's kernels and single-op programs.
  Interpreted interpret(const graph::Walk& walk, const CallsPlan& plan);
  Interpreted interpret_on_host(const graph::Walk& walk, const CallsPlan& plan);
  // Interprets on CUDA (Note [Interpreter tier on CUDA]).
  Interpreted interpret_on_cuda(const graph::Walk& walk, const CallsPlan& plan);
  // Runtime assertions of single-op programs during an interpreted run.
  struct CallChecks {
    std::shared_ptr<RunChecks> run;  // null: none
    std::vector<uint32_t> calls;     // for each assertion the graph's call that it belongs to
  };
  // Runs one call as a graph of its own. `call`: its index in the interpreted graph. `leaves` are its operands. Returns
  // a leaf for each defined result.
  std::vector<graph::NodePtr> run_alone(const graph::Node& node, uint32_t call,
                                        c10::SmallVectorImpl<graph::Value>& leaves, CallChecks& checks, Until until);
  void bind(const graph::Walk& walk, const Program& program, Sync& sync);
  static void settle(const graph::Walk& walk, const Program& program, Launch& launch);
  static void settle(const graph::Walk& walk, const Program& program, const CallChecks& checks,
                     std::vector<std::shared_ptr<DeviceData>>& results);

  std::shared_ptr<pjrt::Buffer> to_device(const at::Tensor& dense, c10::DeviceIndex device, bool owned);
  // Takes the memory out of a storage, which then owns `left`.
  std::shared_ptr<pjrt::Buffer> buffer_over(const c10::Storage& storage, c10::DataPtr left,
                                            const std::shared_ptr<const pjrt::BufferType>& type,
                                            c10::DeviceIndex device);
  // Like borrow(), while the runtime reads the memory. The tensor keeps its memory.
  graph::Value lend(const at::Tensor& dense, c10::DeviceIndex device);
  // Raises a failed assertion that the leaf's values depend on, or one that no value carries any more (Note
  // [Runtime assertions]).
  void raise_failed(const graph::Value& leaf);
  // Returns the tensor of host_view() for a leaf that is ready.
  at::Tensor host_tensor(const graph::Node& leaf, size_t rank = 0);
  // Returns a leaf's values for interpreted calls: a tensor over its host memory that stays with the leaf and must not
  // outlive it.
  at::Tensor kept_tensor(const graph::Node& leaf);
  // Returns the leaf data of a call's result that nobody else holds.
  std::shared_ptr<DeviceData> keep(at::Tensor result, const std::shared_ptr<const pjrt::BufferType>& type,
                                   c10::DeviceIndex device);

  Session& session_;
  // Guarded by the session's lock:
  GraphProfiles profiles_;
  int running_ = 0;  // nesting depth of syncs
  FastPath fast_path_;
  Sync sync_;  // reused, so that known graphs allocate nothing here
};

}  // namespace tpjrt::engine
