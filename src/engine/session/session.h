// Runs programs: the client of one plugin, its programs, and their metrics and logs.
//
// The lazy engine and compiled calls both use it. It knows nothing of storages and pending work.
//
// Locks: exclusively() serializes the lookup and the making of programs. It is recursive, because a lowering may
// record, and recording may sync. graph_lock() is taken briefly inside of it. A thread that holds the lock never waits
// for a GIL that it did not have before: exclusively() releases the GIL first.
#pragma once

#include <c10/util/FunctionRef.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/services/engine.h"
#include "device/services/python_hooks.h"
#include "engine/executable/compiler.h"
#include "engine/executable/progress.h"
#include "engine/executable/xla_options.h"
#include "engine/log/metrics.h"
#include "engine/log/run_log.h"
#include "engine/lower/module/assertions.h"
#include "engine/session/program_table.h"
#include "engine/session/queue.h"
#include "pjrt/client.h"

namespace tpjrt::engine {

// Returns the plugins in order of preference. Throws with the cure if there are none. Installed by the Python room.
using PluginSource = std::vector<PluginChoice> (*)();
// Releases the GIL while `work` runs, if this thread holds it. Installed by the Python room.
using GilRelease = void (*)(c10::function_ref<void()> work);
// Throws if a signal handler raised in this thread. Installed by the Python room; called every 50 ms while a thread
// waits for the device.
using SignalCheck = void (*)();

// Returns true if this process was forked from one that used the device. It can't use the device then, and
// check_process throws.
bool in_forked_child();
void check_process();

class Session {
 public:
  static Session& instance();

  void install(PluginSource plugins, GilRelease gil, SignalCheck signals);
  // Makes the first `size` devices a world (Note [World], graph/world.h), and starts the client. Throws if the
  // client is running without a world, or if the plugin has fewer devices.
  void begin_world(size_t size);
  // Starts the client as this process's part of a client of several processes, for GPU plugins. Returns false for other
  // plugins, or if the client runs alone already. Throws if it can't start, or if it was started with another rank or
  // number of processes. `place` is called for GPU plugins, by all processes.
  bool begin_processes(const std::function<pjrt::Node()>& place);
  // Returns this process's number and the number of processes that share the client; empty if the client is this one's
  // alone.
  std::optional<std::pair<int, int>> process() const {
    return node_ ? std::optional(std::pair(node_->id, node_->count)) : std::nullopt;
  }
  const std::optional<pjrt::Node>& node() const { return node_; }
  // Starts the client with this plugin. Throws if one is running with another plugin.
  void init(const PluginChoice& plugin);
  // Returns the client, or null before it is started. A forked child may use it for what needs no plugin.
  pjrt::Client* started_client() const { return client_.get(); }
  // These two start the client.
  pjrt::Client& client();
  const PluginChoice& plugin();
  // Returns the target of lowerings. Before a client is started it is guessed from the first plugin's name.
  ops::Target target();
  // Returns true if programs may call the CPU's libraries (Note [Claims]).
  bool calls_libraries();
  c10::DeviceIndex device_count();
  // Returns the device count or, before a client is started, how many devices may be used then. Starts a client only if
  // there is no other way to know.
  c10::DeviceIndex most_devices();

  // Runs work in one thread at a time, without the GIL.
  void exclusively(c10::function_ref<void()> work);
  void without_gil(c10::function_ref<void()> work);
  // Queues a progress message, printed when this thread releases the lock, which it holds.
  void report_later(const Wait& wait) { waits_.push_back(wait); }

  // Compiles StableHLO through the disk cache; every executable is made here. `ops`: the size of the graph. Throws
  // pjrt::Error if the plugin rejects the program. Returns nothing once `enough` returns true. Thread-safe.
  CompiledText compile_text(
      const std::string& stablehlo, const pjrt::CompileOptions& options, size_t ops,
      Compiling compiling = Compiling::kAwaited, const std::function<bool()>& enough = [] { return false; });
  // Returns true if an earlier process has compiled this graph (Note [Tiers]).
  bool is_amortized(const std::string& graph) { return compiler_.is_amortized(client(), graph); }
  void set_amortized(const std::string& graph) { compiler_.set_amortized(client(), graph); }
  // Adds work that was started on the device and ends when `done` is ready. `origin`: see Queue::push.
  void enqueue(size_t device, pjrt::Event done, std::shared_ptr<const LargestResult> origin);
  // Launches of a world hold this lock. A CPU plugin has threads for a limited number of launches, and the process
  // aborts if replicas wait for others that have no thread. await_few_in_world() waits until few are running, and
  // started_in_world() counts one more.
  std::mutex& world_lock() { return world_lock_; }
  void await_few_in_world();
  void started_in_world();
  // Returns the moment after everything that was started on the device so far.
  std::shared_ptr<device::Moment> now(c10::DeviceIndex device);
  // Waits until all running work on all devices has ended, successfully or not.
  void await_all();
  // Waits for the buffer's value. If memory ran out, throws and names the program.
  void await(const pjrt::Buffer& buffer);
  // Calls moment.wait() without the GIL, then raises failed runtime assertions.
  void wait(const device::Moment& moment);

  // Returns a device's free and total bytes, or nothing if the plugin doesn't report them. Starts the client.
  std::optional<std::pair<size_t, size_t>> memory_info(c10::DeviceIndex device);
  // Returns the device's total bytes when the client was started; SIZE_MAX if unknown.
  size_t capacity(c10::DeviceIndex device);

  ProgramTable programs{*this};  // guarded by the lock
  Metrics metrics;
  Assertions assertions;
  RunLog run_log;
  // Returns the user's line if the run log is on. Call it before the GIL is released.
  device::Location logged_location() const { return run_log.is_on() ? device::user_location() : device::Location{}; }

 private:
  Session() = default;

  std::recursive_mutex lock_;
  int depth_ = 0;            // recursion depth of the lock
  std::vector<Wait> waits_;  // unreported waits of the thread that holds it
  std::mutex start_lock_;
  PluginSource plugin_source_ = nullptr;
  GilRelease gil_release_ = nullptr;
  PluginChoice plugin_;
  ops::Target target_ = ops::Target::kAny;  // the client's
  std::shared_ptr<pjrt::Client> client_;
  std::optional<pjrt::Node> node_;
  std::atomic<c10::DeviceIndex> most_devices_ = 0;  // known without a client
  std::atomic<std::optional<ops::Target>> expected_target_;
  std::atomic<bool> start_failed_ = false;
  Compiler compiler_;
  std::vector<std::unique_ptr<Queue>> queues_;  // by device
  std::vector<size_t> capacities_;              // by device
  std::mutex world_lock_;
  std::deque<std::shared_ptr<device::Moment>> in_world_;  // running launches; guarded by world_lock_
};

}  // namespace tpjrt::engine
