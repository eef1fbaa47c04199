// Starts the client, and provides the services around it.
#include "engine/session/session.h"

#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <future>
#include <thread>

#include "device/backend/accelerator.h"
#include "device/services/python_hooks.h"
#include "device/start/eager.h"
#include "engine/executable/interruptible.h"
#include "engine/executable/progress.h"
#include "engine/executable/unfinished.h"
#include "engine/session/key_values.h"
#include "engine/session/out_of_memory.h"
#include "graph/signature.h"
#include "graph/world.h"
#include "kernels/cpu/handlers.h"
#include "ops/contraction/contraction.h"
#include "pjrt/api/api.h"
#include "pjrt/buffer.h"
#include "pjrt/memory.h"

namespace tpjrt::engine {
namespace {

// A plugin waits for the other processes on its own threads, so the thread that handles Ctrl-C waits beside it. The
// plugin returns once the store has ended its waits. One that doesn't return is abandoned, as no plugin can be stopped.
std::shared_ptr<pjrt::Client> create_interruptibly(const pjrt::Api& api, pjrt::Options options, pjrt::Node node) {
  const std::shared_ptr<pjrt::KeyValueStore> store = node.store;
  std::promise<std::shared_ptr<pjrt::Client>> promise;
  const auto made = promise.get_future().share();
  std::thread([&api, options = std::move(options), node = std::move(node), promise = std::move(promise),
               unfinished = std::make_unique<Unfinished>()]() mutable {
    try {
      promise.set_value(pjrt::Client::create(api, std::move(options), node));
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  }).detach();
  try {
    await_with_hook(made, [] { return false; });
  } catch (...) {
    end_waits(*store);
    if (made.wait_for(std::chrono::seconds(1)) != std::future_status::ready) end_despite_unfinished();
    throw;
  }
  return made.get();
}

std::shared_ptr<pjrt::Client> create_client(const PluginChoice& plugin, const std::optional<pjrt::Node>& node) {
  // XLA's INFO log goes to stderr by default. Like jax, this shows only warnings and errors unless asked for more.
  setenv("TF_CPP_MIN_LOG_LEVEL", "1", /*overwrite=*/0);
  const pjrt::Api& api = pjrt::Api::load(plugin.path);
  pjrt::Options options = client_options(plugin);
  if (graph::in_world() && is_cpu_plugin(plugin)) {
    const auto size = static_cast<int64_t>(graph::world_size());
    // Replicas block threads while they wait for each other. XLA makes as many threads as NPROC says there are
    // processors.
    setenv("NPROC", std::to_string(2 * size).c_str(), /*overwrite=*/1);
    auto& count = options["cpu_device_count"];  // 1 unless somebody set it
    if (!std::getenv("TORCH_PJRT_CPU_DEVICES") && count == pjrt::Options::mapped_type(int64_t{1})) count = size;
  }
  if (!node) return pjrt::Client::create(api, options, graph::world_size());
  pjrt::Node own = *node;
  own.visible_device = own_gpu(options, own);
  return create_interruptibly(api, std::move(options), std::move(own));
}

graph::PrecisionSettings precision_settings_of(const std::string& platform) {
  if (platform == "cpu") return graph::PrecisionSettings::kNone;
  return platform == "cuda" || platform == "rocm" ? graph::PrecisionSettings::kCuda : graph::PrecisionSettings::kOther;
}

// Returns the free and the total memory of a device, if known.
std::optional<std::pair<size_t, size_t>> memory_sizes(const pjrt::Client& client, size_t device) {
  if (!client.devices().at(device).is_ours) return std::nullopt;
  if (client.is_host_memory()) {
    const pjrt::HostMemory memory = pjrt::host_memory();
    return std::pair(memory.available, memory.total);
  }
  const auto reported = client.memory_stats(device);
  const auto limit = reported.find("bytes_limit");
  if (limit == reported.end() || limit->second <= 0) return std::nullopt;
  const int64_t free = std::max<int64_t>(limit->second - reported.at("bytes_in_use"), 0);
  return std::pair(static_cast<size_t>(free), static_cast<size_t>(limit->second));
}

// Returns the number of processes that torchrun has started on this host, one for each GPU. They start the client
// together at init_process_group, but choose and count devices before it.
std::optional<c10::DeviceIndex> gpus_of_launcher(const std::vector<PluginChoice>& choices) {
  const char* on_host = std::getenv("LOCAL_WORLD_SIZE");
  if (!on_host || !std::getenv("RANK") || choices.empty() || !is_gpu_plugin(choices.front())) return std::nullopt;
  return static_cast<c10::DeviceIndex>(std::max(1, std::atoi(on_host)));
}

}  // namespace

bool in_forked_child() { return pjrt::in_forked_child(); }

// Must be called before any lock: a forked child may find locks held forever by a thread that only the parent has.
void check_process() { TORCH_CHECK(!pjrt::in_forked_child(), "pjrt: ", pjrt::kForked); }

Session& Session::instance() {
  static auto* session = new Session;  // leaked: plugins' threads outlive static destructors
  return *session;
}

void Session::install(PluginSource plugins, GilRelease gil, SignalCheck signals) {
  plugin_source_ = plugins;
  gil_release_ = gil;
  pjrt::install_wait_hook(signals);
}

void Session::without_gil(c10::function_ref<void()> work) {
  if (gil_release_) {
    gil_release_(work);
  } else {
    work();
  }
}

void Session::exclusively(c10::function_ref<void()> work) {
  check_process();
  std::vector<Wait> waits;
  without_gil([&] {
    std::lock_guard guard(lock_);
    ++depth_;
    const auto leave = c10::make_scope_exit([&] {
      if (--depth_ == 0) std::swap(waits, waits_);
    });
    work();
  });
  for (const Wait& wait : waits) report(wait);
}

void Session::init(const PluginChoice& plugin) {
  check_process();
  without_gil([&] {
    std::lock_guard guard(start_lock_);
    TORCH_CHECK(!client_ || plugin_.path == plugin.path, "torch_pjrt.init: the plugin '", plugin_.name, "' (",
                plugin_.path,
                ") is running already, and a process has one; choose the plugin before the first use of the device");
    if (client_) return;
    // A forked child starts every graph immediately, so its first call raises that it can't run any.
    static std::once_flag once;
    std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { device::most_nodes = 0; }); });
    std::shared_ptr<pjrt::Client> client = create_client(plugin, node_);
    queues_.clear();
    capacities_.clear();
    for (size_t i = 0; i < client->devices().size(); ++i) {
      queues_.push_back(std::make_unique<Queue>(static_cast<c10::DeviceIndex>(i)));
      const auto sizes = memory_sizes(*client, i);
      capacities_.push_back(sizes ? sizes->second : SIZE_MAX);
    }
    graph::precision_settings() = precision_settings_of(client->platform_name());
    plugin_ = plugin;
    target_ = client->platform_name() == "cuda" ? ops::Target::kCuda : ops::Target::kAny;
    if (is_cpu(*client)) {
      const bool has_kernels = client->is_host_memory() && kernels::give_cpu_kernels(*client);
      target_ = has_kernels ? ops::Target::kCpuWithKernels : ops::Target::kCpu;
    }
    client_ = std::move(client);
  });
}

pjrt::Client& Session::client() {
  check_process();
  if (client_) return *client_;
  TORCH_INTERNAL_ASSERT(plugin_source_, "torch_pjrt: no plugin source");
  std::string failures;
  for (const PluginChoice& choice : plugin_source_()) {
    try {
      init(choice);
      if (!client_->devices().empty()) return *client_;
      failures += "\n  " + choice.name + ": no device";
      client_.reset();
    } catch (const std::exception& error) {
      failures += "\n  " + choice.name + " (" + choice.path + "): " + error.what();
    }
  }
  start_failed_ = true;
  TORCH_CHECK(false, "torch_pjrt: no PJRT plugin could be started:", failures);
}

const PluginChoice& Session::plugin() {
  client();
  return plugin_;
}

ops::Target Session::target() {
  if (client_) return target_;
  if (const auto expected = expected_target_.load()) return *expected;
  const std::vector<PluginChoice> choices = plugin_source_();
  ops::Target target = ops::Target::kAny;
  if (!choices.empty() && is_cpu_plugin(choices.front())) {
    target = kernels::are_cpu_kernels_wanted() ? ops::Target::kCpuWithKernels : ops::Target::kCpu;
  } else if (!choices.empty() && is_cuda_plugin(choices.front())) {
    target = ops::Target::kCuda;
    graph::precision_settings() = graph::PrecisionSettings::kCuda;  // for calls recorded before there is a client
  }
  expected_target_ = target;
  return target;
}

bool Session::calls_libraries() { return target() == ops::Target::kCpuWithKernels && !graph::in_world(); }

c10::DeviceIndex Session::device_count() {
  if (!client_) {
    if (const auto reported = gpus_of_launcher(plugin_source_())) return *reported;
    client();  // not called if there is one: a forked child may count devices
  }
  if (client_->replicas() > 1) return 1;
  return static_cast<c10::DeviceIndex>(client_->devices().size());
}

c10::DeviceIndex Session::most_devices() {
  if (client_ || start_failed_) return device_count();
  if (most_devices_ > 0) return most_devices_;
  const std::vector<PluginChoice> choices = plugin_source_();
  if (choices.empty()) return 0;
  c10::DeviceIndex most = 1;
  if (is_cpu_plugin(choices.front())) {
    const pjrt::Options options = client_options(choices.front());
    const auto* count = std::get_if<int64_t>(&options.at("cpu_device_count"));
    if (!count) return device_count();
    most = static_cast<c10::DeviceIndex>(*count);
  } else if (!device::has_other_accelerator()) {
    return device_count();
  }
  return most_devices_ = most;
}

CompiledText Session::compile_text(const std::string& stablehlo, const pjrt::CompileOptions& options, size_t ops,
                                   Compiling compiling, const std::function<bool()>& enough) {
  RECORD_FUNCTION("pjrt::compile", {});
  return compiler_.compile(client(), stablehlo, options, ops, compiling, enough);
}

void Session::enqueue(size_t device, pjrt::Event done, std::shared_ptr<const LargestResult> origin) {
  queues_[device]->push(std::move(done), std::move(origin));
}

std::shared_ptr<device::Moment> Session::now(c10::DeviceIndex device) {
  check_process();
  const auto index = static_cast<size_t>(std::max<int>(device, 0));
  return client_ && index < queues_.size() ? queues_[index]->now() : Queue(device).now();
}

void Session::begin_world(size_t size) {
  if (size == graph::world_size()) return;
  // Counting devices starts a client. It is replaced by one with the world's options, unless it is in use.
  if (client_ && client_.use_count() == 1) client_.reset();
  TORCH_CHECK(!client_, "torch.distributed.init_process_group('pjrt'): a world of ", size,
              " ranks in one process has to begin before the device is used, and it has been: a tensor of it lies on ",
              graph::world_size().load(), graph::in_world() ? " devices" : " device",
              ". Call init_process_group first in the program");
  graph::world_size() = size;
  expected_target_ = std::nullopt;
  try {
    client();
    TORCH_CHECK(client_->devices().size() >= size, "torch.distributed.init_process_group('pjrt'): a world of ", size,
                " ranks in one process needs as many devices, and plugin '", plugin_.name, "' shows ",
                client_->devices().size(), ". Pass a smaller world_size",
                is_cpu(*client_) ? ", or set TORCH_PJRT_CPU_DEVICES" : "");
  } catch (...) {
    graph::world_size() = 1;
    client_.reset();
    throw;
  }
}

bool Session::begin_processes(const std::function<pjrt::Node()>& place) {
  const std::vector<PluginChoice> choices = plugin_source_();
  if (choices.empty() || !is_gpu_plugin(client_ ? plugin_ : choices.front())) return false;
  pjrt::Node node = place();
  if (client_) {
    if (!node_) return false;
    TORCH_CHECK(node_->id == node.id && node_->count == node.count, "torch.distributed.init_process_group: rank ",
                node.id, " of ", node.count, ", and the device's client began as rank ", node_->id, " of ",
                node_->count, ", which it stays; start the processes anew");
    return true;
  }
  node_ = std::move(node);
  try {
    init(choices.front());
  } catch (const std::exception& error) {
    const std::string place = std::to_string(node_->id) + " of " + std::to_string(node_->count);
    node_.reset();
    device::let_interrupts_pass();
    const auto* reported = dynamic_cast<const pjrt::Error*>(&error);
    const bool is_late = reported != nullptr && reported->code == pjrt::ErrorCode::kDeadlineExceeded;
    if (!is_late && choices.size() > 1) return false;  // no GPU here: try the next plugin
    TORCH_CHECK(false, "torch.distributed.init_process_group: plugin '", choices.front().name,
                "' could not begin as process ", place, ": ", error.what(),
                "\nAll processes have to call it; where they have no GPU, set TORCH_PJRT_PLUGIN=xla_cpu_pjrt");
  }
  return true;
}

void Session::await_few_in_world() {
  constexpr size_t kMost = 16;
  while (in_world_.size() >= kMost) {
    try {
      in_world_.front()->wait();
    } catch (const pjrt::Error&) {
      // Failed work has ended, too. Whoever reads its results gets the error.
    } catch (const c10::OutOfMemoryError&) {
      // Likewise.
    }
    in_world_.pop_front();
  }
}

void Session::started_in_world() {
  in_world_.push_back(now(0));
  while (!in_world_.empty() && in_world_.front()->reached()) in_world_.pop_front();
}

void Session::await_all() {
  for (const auto& queue : queues_) {
    try {
      queue->now()->wait();
    } catch (const pjrt::Error&) {
      // Failed work has ended, too. Whoever reads its results gets the error.
    } catch (const c10::OutOfMemoryError&) {
      // Likewise.
    }
  }
}

void Session::await(const pjrt::Buffer& buffer) {
  RECORD_FUNCTION("pjrt::wait", {});
  try {
    buffer.await();
  } catch (const pjrt::Error& error) {
    if (!error.is_out_of_memory()) throw;
    const auto& queue = queues_[buffer.device_index()];
    auto origin = queue->report_lacking();
    if (!origin) {  // results fail before their program's event is ready
      queue->await_lacking();
      origin = queue->report_lacking();
    }
    raise_out_of_memory(error, static_cast<c10::DeviceIndex>(buffer.device_index()), origin.get());
  }
}

std::optional<std::pair<size_t, size_t>> Session::memory_info(c10::DeviceIndex device) {
  const auto index = static_cast<size_t>(std::max<int>(device, 0));
  if (index >= client().devices().size()) return std::nullopt;
  return memory_sizes(client(), index);
}

size_t Session::capacity(c10::DeviceIndex device) {
  (void)client();
  const auto index = static_cast<size_t>(std::max<int>(device, 0));
  return index < capacities_.size() ? capacities_[index] : SIZE_MAX;
}

void Session::wait(const device::Moment& moment) {
  without_gil([&] {
    try {
      moment.wait();
    } catch (const c10::OutOfMemoryError&) {
      for (const auto& queue : queues_) (void)queue->report_lacking();  // some ran past `moment`
      throw;
    }
    assertions.raise_unreported();
  });
}

}  // namespace tpjrt::engine
