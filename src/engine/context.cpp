// Starting the client, and the small services of the engine.
#include "engine/context.h"

#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "device/accelerator.h"
#include "device/eager.h"
#include "device/host.h"
#include "engine/call_lowering.h"
#include "engine/emit_program.h"
#include "engine/errors.h"

namespace tpjrt::engine {

namespace {

// Of an environment variable, "name=value,name=value".
pjrt::Options options_in(const char* variable) {
  pjrt::Options options;
  const char* given = std::getenv(variable);
  std::stringstream text(given ? given : "");
  for (std::string item; std::getline(text, item, ',');) {
    const size_t at = item.find('=');
    TORCH_CHECK_VALUE(at != std::string::npos && at > 0, variable, ": '", item, "' is not name=value");
    const std::string name = item.substr(0, at), value = item.substr(at + 1);
    char *integer_end = nullptr, *real_end = nullptr;
    const long long integer = std::strtoll(value.c_str(), &integer_end, 10);
    const double real = std::strtod(value.c_str(), &real_end);
    if (value == "true" || value == "false") {
      options[name] = value == "true";
    } else if (!value.empty() && *integer_end == '\0') {
      options[name] = int64_t{integer};
    } else if (!value.empty() && *real_end == '\0') {
      options[name] = real;
    } else {
      options[name] = value;
    }
  }
  return options;
}

bool is_cpu_plugin(const PluginChoice& plugin) { return plugin.path.find("cpu") != std::string::npos; }

// The CPU plugin shows four devices by default, each with threads of its own; a CPU is one device here unless
// TORCH_PJRT_CPU_DEVICES says otherwise. Plugins for other hardware may refuse options they don't know.
pjrt::Options client_options(const PluginChoice& plugin) {
  pjrt::Options options = options_in("TORCH_PJRT_CLIENT_OPTIONS");
  if (is_cpu_plugin(plugin)) {
    const char* count = std::getenv("TORCH_PJRT_CPU_DEVICES");
    options.try_emplace("cpu_device_count", int64_t{count ? std::max(1, std::atoi(count)) : 1});
  }
  // CUDA's plugin takes three quarters of the GPU's memory at once. Where PyTorch uses that GPU too, it takes what it needs.
  const bool is_gpu = plugin.path.find("cuda") != std::string::npos || plugin.path.find("rocm") != std::string::npos;
  if (is_gpu && device::has_other_accelerator()) options.try_emplace("preallocate", false);
  return options;
}

std::shared_ptr<pjrt::Client> create_client(const PluginChoice& plugin) {
  // XLA's INFO log goes to stderr by default; as jax does, only warnings and errors are shown unless asked for.
  setenv("TF_CPP_MIN_LOG_LEVEL", "1", /*overwrite=*/0);
  const pjrt::Api& api = pjrt::Api::load(plugin.path);
  return pjrt::Client::create(api, client_options(plugin));
}

}  // namespace

bool in_forked_child() { return pjrt::in_forked_child(); }

// Before any lock: in a forked child another thread of the parent's may seem to hold it for ever.
void check_process() { TORCH_CHECK(!pjrt::in_forked_child(), "pjrt: ", pjrt::kForked); }

void Metrics::reset() {
  graphs_compiled = graphs_loaded_from_disk = executions = graphs_interpreted = nodes_executed = 0;
  compile_ns = prepare_ns = execute_ns = 0;
  std::lock_guard guard(lock_);
  causes_.clear();
}

void Metrics::count_sync(const char* cause) {
  std::lock_guard guard(lock_);
  auto it = causes_.find(std::string_view(cause));
  if (it == causes_.end()) it = causes_.emplace(cause, 0).first;
  it->second++;
}

uint64_t Metrics::syncs() const {
  std::lock_guard guard(lock_);
  uint64_t total = 0;
  for (const auto& [cause, count] : causes_) total += count;
  return total;
}

std::map<std::string, uint64_t> Metrics::syncs_by_cause() const {
  std::lock_guard guard(lock_);
  return {causes_.begin(), causes_.end()};
}

Context& Context::instance() {
  static auto* context = new Context;  // leaked: plugins' threads outlive static destructors
  return *context;
}

void Context::install(PluginSource plugins, GilRelease gil, SignalCheck signals) {
  plugin_source_ = plugins;
  gil_release_ = gil;
  pjrt::install_wait_hook(signals);
  device::install_engine(this);
  device::install_host_listener([](const std::string& op, const char* reason) {
    RunLog& log = instance().run_log;
    if (log.is_on()) log.ran_on_host(op, reason);
  });
}

void Context::without_gil(const std::function<void()>& work) {
  if (gil_release_) {
    gil_release_(work);
  } else {
    work();
  }
}

void Context::exclusively(const std::function<void()>& work) {
  check_process();
  without_gil([&] {
    std::lock_guard guard(lock_);
    work();
  });
}

void Context::started(size_t device, pjrt::Event done) { queues_[device]->push(std::move(done)); }

void Context::init(const PluginChoice& plugin) {
  check_process();
  without_gil([&] {
    std::lock_guard guard(start_lock_);
    TORCH_CHECK(!client_ || plugin_.path == plugin.path, "torch_pjrt.init: the plugin '", plugin_.name, "' (",
                plugin_.path,
                ") is running already, and a process has one; choose the plugin before the first use of the device");
    if (client_) return;
    // A forked child cuts every graph at once, and so is told at its first call that it can't run any.
    static std::once_flag once;
    std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { device::most_nodes = 0; }); });
    std::shared_ptr<pjrt::Client> client = create_client(plugin);
    queues_.clear();
    for (size_t i = 0; i < client->devices().size(); ++i) queues_.push_back(std::make_unique<Queue>());
    plugin_ = plugin;
    client_ = std::move(client);
  });
}

pjrt::Client& Context::client() {
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

const PluginChoice& Context::plugin() {
  client();
  return plugin_;
}

c10::DeviceIndex Context::device_count() {
  if (!client_) client();  // a forked child may count
  return static_cast<c10::DeviceIndex>(client_->devices().size());
}

c10::DeviceIndex Context::most_devices() {
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

bool Context::lowers(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers, std::string& reason) {
  return find_lowering(signature, numbers, reason);
}

std::shared_ptr<device::Moment> Context::now(c10::DeviceIndex device) {
  check_process();
  const auto index = static_cast<size_t>(std::max<int>(device, 0));
  return started() && index < queues_.size() ? queues_[index]->now() : Queue().now();
}

void Context::wait(const device::Moment& moment) {
  without_gil([&] {
    moment.wait();
    requirements.raise();
  });
}

device::MemoryUse Context::memory(c10::DeviceIndex device) {
  device::MemoryUse use;
  const auto index = static_cast<size_t>(std::max<int>(device, 0));
  if (!client_ || index >= client_->devices().size()) return use;
  const pjrt::MemoryUse& counted = client_->memory(index);
  use.current = counted.current_bytes();
  use.peak = counted.peak_bytes();
  use.allocated = counted.allocated_bytes();
  use.allocations = counted.allocations();
  use.frees = counted.frees();
  use.is_host_memory = client_->is_host_memory();
  use.plugin = client_->memory_stats(index);
  return use;
}

void Context::reset_peak_memory(c10::DeviceIndex device) {
  const auto index = static_cast<size_t>(std::max<int>(device, 0));
  if (client_ && index < client_->devices().size()) client_->memory(index).reset_peak();
}

pjrt::CompileOptions Context::compile_options(int device_ordinal, Traits traits) {
  pjrt::CompileOptions options;
  options.device_ordinal = device_ordinal;
  // By default XLA's minimum and maximum on the CPU lose NaN; torch's keep it.
  if (is_cpu()) options.overrides["xla_cpu_enable_fast_min_max"] = false;
  // Handing a small kernel to other threads costs more than the kernel: 76 against 32 µs for fifty 8x8 layers.
  if (is_cpu() && traits.small) options.overrides["xla_cpu_multi_thread_eigen"] = false;
  // A write into a tensor takes the newer emitters 25 ms to compile and the older ones 3: they look at the whole tensor.
  if (is_cpu() && traits.writes) options.overrides["xla_cpu_use_fusion_emitters"] = false;
  for (const auto& [name, value] : options_in("TORCH_PJRT_XLA_OPTIONS")) options.overrides[name] = value;
  return options;
}

CompiledText Context::compile_text(const std::string& stablehlo, const pjrt::CompileOptions& options, size_t ops) {
  RECORD_FUNCTION("pjrt::compile", {});
  CompiledText compiled = compiler_.compile(client(), stablehlo, options, ops);
  (compiled.from_disk ? metrics.graphs_loaded_from_disk : metrics.graphs_compiled)++;
  return compiled;
}

void Context::set_program_listener(ProgramListener listener) {
  without_gil([&] {
    std::lock_guard guard(lock_);
    std::swap(program_listener_, listener);
  });
}

std::string Context::stablehlo(const std::vector<graph::Value>& results, bool for_cpu) {
  std::string text;
  exclusively([&] {
    Walk walk;
    {
      std::lock_guard graph_guard(graph::graph_lock());
      walk_values(results, walk);
    }
    std::vector<NumberSlot> slots = programs_.slots_for(walk);
    text = emit_program(walk, slots, /*with_requirements=*/false, for_cpu).text;
  });
  return text;
}

}  // namespace tpjrt::engine
