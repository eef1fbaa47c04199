// The one owner of the client, the programs and the counters: the engine behind the device.
//
// Locks: `lock_` serialises syncs (recursive: a lowering may record, and recording may sync); graph_lock() is taken inside
// it for moments. The GIL is never waited for while `lock_` is held by a thread that did not have it before: whoever syncs
// lets go of the GIL first.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device/engine.h"
#include "engine/compiler.h"
#include "engine/cuts.h"
#include "engine/program.h"
#include "engine/queue.h"
#include "engine/requirements.h"
#include "engine/run_log.h"
#include "pjrt/client.h"

namespace tpjrt::engine {

struct Metrics {
  std::atomic<uint64_t> graphs_compiled{0}, graphs_loaded_from_disk{0}, executions{0};
  std::atomic<uint64_t> graphs_interpreted{0}, nodes_executed{0};
  std::atomic<int64_t> compile_ns{0}, prepare_ns{0}, execute_ns{0};

  void count_sync(const char* cause);
  std::map<std::string, uint64_t> syncs_by_cause() const;
  uint64_t syncs() const;
  void reset();

 private:
  mutable std::mutex lock_;
  std::map<std::string, uint64_t, std::less<>> causes_;
};

// One plugin that may serve the device, in order of preference.
struct PluginChoice {
  std::string name, path;
};
// Finds plugins; throws with the cure when there are none. Installed by the Python room.
using PluginSource = std::vector<PluginChoice> (*)();
// Lets go of the GIL while `work` runs, if this thread holds it. Installed by the Python room.
using GilRelease = void (*)(const std::function<void()>& work);
// Throws where a signal's handler raised in this thread. Installed by the Python room; called every 50 ms while a thread
// waits for the device.
using SignalCheck = void (*)();
// Is told of each program before it is compiled. Called under the engine's lock: it must not sync.
using ProgramListener = std::function<void(const std::string& graph, const std::string& stablehlo)>;

// Was this process forked from one that used the device? Then it can't use it, and check_process throws.
bool in_forked_child();
void check_process();

class Context final : public device::Engine {
 public:
  static Context& instance();

  void install(PluginSource plugins, GilRelease gil, SignalCheck signals);
  // Starts the client now, with this plugin. Throws when one is running already from another plugin.
  void init(const PluginChoice& plugin);
  pjrt::Client& client();
  const PluginChoice& plugin();

  // device::Engine
  bool started() const override { return client_ != nullptr; }
  c10::DeviceIndex device_count() override;
  c10::DeviceIndex most_devices() override;
  void sync(c10::ArrayRef<graph::Cell*> cells, const char* cause) override;
  graph::Value upload(const at::Tensor& dense, c10::DeviceIndex device, bool owned) override;
  graph::Value borrow(const at::Tensor& dense, c10::DeviceIndex device) override;
  bool is_host_memory() override { return client().is_host_memory(); }
  at::Tensor host_view(const graph::Value& leaf) override;
  // The same for one that is ready.
  at::Tensor host_tensor(const graph::Node& leaf);
  void read(const graph::Value& leaf, int64_t offset, int64_t nbytes, void* to) override;
  bool lowers(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers, std::string& reason) override;
  void sync_all(const char* cause) override;
  void sync_large(const char* cause, uint64_t until) override;
  void sync_rest(const char* cause, uint64_t since, graph::Amount least) override;
  std::shared_ptr<device::Moment> now(c10::DeviceIndex device) override;
  void wait(const device::Moment& moment) override;
  device::MemoryUse memory(c10::DeviceIndex device) override;
  void reset_peak_memory(c10::DeviceIndex device) override;

  // How programs are compiled for this client. `small`: no kernel of it is worth several threads.
  struct Traits {         // of a program, which XLA:CPU is told of
    bool small = false;   // of small tensors
    bool writes = false;  // into tensors, mostly
  };
  pjrt::CompileOptions compile_options(int device_ordinal, Traits traits);
  // Finds or compiles the program of a walk. Under the engine's lock.
  std::shared_ptr<Program> program_for(const Walk& walk);
  // Lets go of the half of all programs that was not used for longest, when what is under way is done.
  void drop_older_programs();
  // Work for one thread at a time, without the GIL.
  void exclusively(const std::function<void()>& work);
  void without_gil(const std::function<void()>& work);
  // Something was started on the device, and is over when `done` is.
  void started(size_t device, pjrt::Event done);
  // The one way from StableHLO to an executable, through the disk cache; counts. `ops`: the size of the graph. Throws
  // pjrt::Error where the plugin refuses the program. From any thread.
  CompiledText compile_text(const std::string& stablehlo, const pjrt::CompileOptions& options, size_t ops);
  // The module that these values are; for XLA:CPU: with what is worked around there.
  std::string stablehlo(const std::vector<graph::Value>& results, bool for_cpu);
  // One at a time; an empty one ends it.
  void set_program_listener(ProgramListener listener);
  // For the benchmarks: all of a sync up to the call of execute.
  int64_t prepare_only(c10::ArrayRef<graph::Cell*> cells);

  Metrics metrics;
  Requirements requirements;
  RunLog run_log;
  // The user's line, if the run log is on: before the GIL is let go.
  device::Location logged_location() const { return run_log.is_on() ? device::user_location() : device::Location{}; }

 private:
  Context() = default;
  bool is_cpu() { return client().platform_name() == "cpu"; }
  void run_large(const char* cause, uint64_t until, const device::Location& where);
  void run(const char* cause, c10::ArrayRef<graph::Cell*> cells, const device::Location& where);
  // `program`: null where it isn't known yet.
  void run(const Walk& walk, std::shared_ptr<Program> program, const char* cause, const device::Location& where);
  std::shared_ptr<pjrt::Buffer> to_device(const at::Tensor& dense, c10::DeviceIndex device, bool owned);
  // Runs all but the last part of a graph that is cut in parts, if it is one.
  bool run_parts(const Walk& walk, const device::Location& where);
  std::shared_ptr<Program> for_host(const Walk& walk, std::shared_ptr<Program> program);
  std::optional<int64_t> interpret(const Walk& walk);
  std::shared_ptr<Program> compile(const Walk& walk);
  void make_room();
  void bind(const Walk& walk, const Program& program);
  int64_t execute(const Walk& walk, const Program& program);  // gives the nanoseconds
  void settle(const Walk& walk, const Program& program);

  std::recursive_mutex lock_;
  std::mutex start_lock_;
  PluginSource plugin_source_ = nullptr;
  GilRelease gil_release_ = nullptr;
  ProgramListener program_listener_;  // under lock_
  PluginChoice plugin_;
  std::shared_ptr<pjrt::Client> client_;
  std::atomic<c10::DeviceIndex> most_devices_ = 0;  // known without a client
  std::atomic<bool> start_failed_ = false;
  Compiler compiler_;
  std::vector<std::unique_ptr<Queue>> queues_;  // by device
  ProgramCache programs_;
  Cuts cuts_;

  int running_ = 0;  // syncs within each other, under lock_
  uint32_t compiles_since_look_ = 0;

  // Reused by every sync, so that a known graph allocates nothing here.
  Walk walk_;
  std::vector<PJRT_Buffer*> arguments_;
  std::vector<int64_t> kept_;  // arguments that must not be donated
  NumberArguments packed_;
  std::vector<std::shared_ptr<pjrt::Buffer>> outputs_;
  std::vector<const pjrt::Buffer*> donated_;
};

}  // namespace tpjrt::engine
