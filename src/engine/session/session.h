// What runs programs: the client of one plugin, its programs, and what is counted and told of them.
//
// The lazy engine and compiled calls stand on it, side by side. Nothing here knows of storages and pending work.
//
// Locks: exclusively() serialises what makes and looks up programs (recursive: a lowering may record, and recording may
// sync); graph_lock() is taken inside it for moments. The GIL is never waited for while the lock is held by a thread
// that did not have it before: exclusively() lets go of the GIL first.
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
#include "device/services/location.h"
#include "engine/log/metrics.h"
#include "engine/log/run_log.h"
#include "engine/lower/program/requirements.h"
#include "engine/program/compiler.h"
#include "engine/program/progress.h"
#include "engine/program/xla_options.h"
#include "engine/session/programs.h"
#include "engine/session/queue.h"
#include "pjrt/client.h"

namespace tpjrt::engine {

// Finds plugins, in order of preference; throws with the cure when there are none. Installed by the Python room.
using PluginSource = std::vector<PluginChoice> (*)();
// Lets go of the GIL while `work` runs, if this thread holds it. Installed by the Python room.
using GilRelease = void (*)(c10::function_ref<void()> work);
// Throws where a signal's handler raised in this thread. Installed by the Python room; called every 50 ms while a thread
// waits for the device.
using SignalCheck = void (*)();

// Was this process forked from one that used the device? Then it can't use it, and check_process throws.
bool in_forked_child();
void check_process();

class Session {
 public:
  static Session& instance();

  void install(PluginSource plugins, GilRelease gil, SignalCheck signals);
  // Makes the first `size` devices a world (Note [World], graph/world/world.h), and starts the client. Throws where it has started
  // without, or the plugin has fewer devices.
  void begin_world(size_t size);
  // The client is one process's part of a client of several, of a plugin for GPUs, and starts now. False where the plugin is for
  // others, or the client has started alone. Throws where it can't start, or is part of others. `place`: asked for where the plugin
  // is for GPUs, by all processes.
  bool begin_processes(const std::function<pjrt::Node()>& place);
  // Which of how many processes have the client together; none where it is this one's alone.
  std::optional<std::pair<int, int>> process() const {
    return node_ ? std::optional(std::pair(node_->id, node_->count)) : std::nullopt;
  }
  const std::optional<pjrt::Node>& node() const { return node_; }
  // Starts the client now, with this plugin. Throws when one is running already from another plugin.
  void init(const PluginChoice& plugin);
  // Null before it is started. A forked child may ask it what needs no plugin.
  pjrt::Client* started_client() const { return client_.get(); }
  // These start it.
  pjrt::Client& client();
  const PluginChoice& plugin();
  // Whose forms programs will have: before a client is started, as the first plugin's name says.
  ops::Target target();
  // Would a convolution of that dtype, its weight frozen, be the CPU's library's (Note [Whose convolutions])?
  bool freezes_convolutions(c10::ScalarType dtype);
  // Are those of that dtype the library's where the weight isn't frozen, unless they are small?
  bool has_library_convolutions(c10::ScalarType dtype);
  // Is one by oneDNN right, and worth its call? By the stride and size of the result's last dimension.
  static bool is_convolution_worth_a_call(c10::ScalarType dtype, int64_t multiplications, int64_t stride, int64_t size);
  c10::DeviceIndex device_count();
  // The same, or what may be used before a client is started. Starts one only where nothing else could tell.
  c10::DeviceIndex most_devices();

  // Work for one thread at a time, without the GIL.
  void exclusively(c10::function_ref<void()> work);
  void without_gil(c10::function_ref<void()> work);
  // Told of as soon as this thread lets go of the lock, which it holds.
  void tell_later(const Wait& wait) { waits_.push_back(wait); }

  // The one way from StableHLO to an executable, through the disk cache. `ops`: the size of the graph. Throws
  // pjrt::Error where the plugin refuses the program. Nothing once `enough` is true. From any thread.
  CompiledText compile_text(
      const std::string& stablehlo, const pjrt::CompileOptions& options, size_t ops,
      Compiling compiling = Compiling::kAwaited, const std::function<bool()>& enough = [] { return false; });
  // Note [Tiers]: has an earlier process compiled this graph?
  bool is_paid(const std::string& graph) { return compiler_.is_paid(client(), graph); }
  void set_paid(const std::string& graph) { compiler_.set_paid(client(), graph); }
  // Something was started on the device, and is over when `done` is. `origin`: see Queue::push.
  void enqueue(size_t device, pjrt::Event done, std::shared_ptr<const LargestResult> origin);
  // Launches of a world, under this lock: a plugin for CPUs has threads for so many at a time, and the process ends where
  // replicas wait for others that have none. Waits until there are few; one more was started.
  std::mutex& world_lock() { return world_lock_; }
  void await_few_in_world();
  void started_in_world();
  // After everything that was started on the device so far.
  std::shared_ptr<device::Moment> now(c10::DeviceIndex device);
  // Until what is under way on all devices is over, well or badly.
  void await_all();
  // Until the buffer's value is there; where that lacked memory, tells which program it was.
  void await(const pjrt::Buffer& buffer);
  // moment.wait() without the GIL; then raises what programs required in vain.
  void wait(const device::Moment& moment);

  // A device's memory: bytes that are free and bytes in all; nothing where the plugin doesn't tell. Starts the client.
  std::optional<std::pair<size_t, size_t>> memory_info(c10::DeviceIndex device);
  // Bytes of it in all, as they were when the client was started; SIZE_MAX where that isn't known.
  size_t capacity(c10::DeviceIndex device);

  Programs programs{*this};  // under the lock
  Metrics metrics;
  Requirements requirements;
  RunLog run_log;
  // The user's line, if the run log is on: before the GIL is let go.
  device::Location logged_location() const { return run_log.is_on() ? device::user_location() : device::Location{}; }

 private:
  Session() = default;

  std::recursive_mutex lock_;
  int depth_ = 0;            // how often its thread holds the lock
  std::vector<Wait> waits_;  // that thread's, not told of yet
  std::mutex start_lock_;
  PluginSource plugin_source_ = nullptr;
  GilRelease gil_release_ = nullptr;
  PluginChoice plugin_;
  ops::Target target_ = ops::Target::kAny;  // of the client
  std::shared_ptr<pjrt::Client> client_;
  std::optional<pjrt::Node> node_;
  std::atomic<c10::DeviceIndex> most_devices_ = 0;  // known without a client
  std::atomic<std::optional<ops::Target>> expected_target_;
  std::atomic<bool> start_failed_ = false;
  Compiler compiler_;
  std::vector<std::unique_ptr<Queue>> queues_;  // by device
  std::vector<size_t> capacities_;              // by device
  std::mutex world_lock_;
  std::deque<std::shared_ptr<device::Moment>> in_world_;  // launches under way, under world_lock_
};

}  // namespace tpjrt::engine
