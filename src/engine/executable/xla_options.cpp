// Options of clients and programs.
#include "engine/executable/xla_options.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>

#include "device/backend/accelerator.h"

namespace tpjrt::engine {

namespace {

// Parses an environment variable of the form "name=value,name=value".
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

// The CPU is one device unless TORCH_PJRT_CPU_DEVICES says otherwise. Each process that torchrun starts on this host
// has its own client and uses its device LOCAL_RANK, as programs for GPUs do. So "pjrt:LOCAL_RANK" has to exist.
int64_t cpu_device_count() {
  const char* count = std::getenv("TORCH_PJRT_CPU_DEVICES");
  if (!count) count = std::getenv("LOCAL_WORLD_SIZE");
  return count ? std::max(1, std::atoi(count)) : 1;
}

// Returns the value of an option in XLA_FLAGS; empty if it is not set.
std::string_view flag(std::string_view name) {
  const char* flags = std::getenv("XLA_FLAGS");
  const std::string_view text = flags ? flags : "";
  const std::string start = "--" + std::string(name) + "=";
  const size_t at = text.find(start);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = text.substr(at + start.size());
  return rest.substr(0, rest.find_first_of(" \t\n"));
}

// Adds the passes that XLA_FLAGS disables to these, because a program's option overrides the flag.
std::string passes_left_out(std::string passes) {
  const std::string_view more = flag("xla_disable_hlo_passes");
  if (!more.empty()) passes.append(",").append(more);
  return passes;
}

// Note [Untuned products]: without autotuning XLA:GPU lowers products to Triton with the smallest tiles of 16-bit
// floats, 16 deep, although the hardware multiplies 8-bit integers 32 deep. It lowers products with MX scales with
// tiles 128 deep, which may exceed the operands. An H100 gave wrong numbers for the former and NaN for the latter.
// Without Triton, cuBLAS computes them, which needs no tuning.
bool is_untuned(const pjrt::Options& given) {
  const auto level = given.find("xla_gpu_autotune_level");
  if (level != given.end()) return level->second == pjrt::Options::mapped_type(int64_t{0});
  return flag("xla_gpu_autotune_level") == "0";
}

}  // namespace

bool is_cpu_plugin(const PluginChoice& plugin) { return plugin.path.find("cpu") != std::string::npos; }
// Looks only at the file's name: a folder in the path, such as an environment's, may be named after CUDA, too.
bool is_cuda_plugin(const PluginChoice& plugin) {
  return plugin.path.find("cuda", plugin.path.rfind('/') + 1) != std::string::npos;
}
bool is_gpu_plugin(const PluginChoice& plugin) {
  return is_cuda_plugin(plugin) || plugin.path.find("rocm", plugin.path.rfind('/') + 1) != std::string::npos;
}

// The CPU plugin has four devices by default, each with its own threads. Plugins for other hardware may reject unknown
// options.
pjrt::Options client_options(const PluginChoice& plugin) {
  pjrt::Options options = options_in("TORCH_PJRT_CLIENT_OPTIONS");
  if (is_cpu_plugin(plugin)) {
    options.try_emplace("cpu_device_count", cpu_device_count());
  }
  // The CUDA plugin reserves three quarters of the GPU's memory at its start. If PyTorch uses that GPU too, it
  // allocates on demand.
  if (is_gpu_plugin(plugin) && device::has_other_accelerator()) options.try_emplace("preallocate", false);
  return options;
}

int64_t own_gpu(pjrt::Options& options, const pjrt::Node& node) {
  const auto given = options.extract("visible_devices");
  if (!given.empty()) {
    const auto* number = std::get_if<int64_t>(&given.mapped());
    TORCH_CHECK_VALUE(number, "TORCH_PJRT_CLIENT_OPTIONS: visible_devices is one number, of the process's own device");
    return *number;
  }
  // Variables of a launcher that shows each process only its own GPU.
  for (const char* visible :
       {std::getenv("CUDA_VISIBLE_DEVICES"), std::getenv("HIP_VISIBLE_DEVICES"), std::getenv("ROCR_VISIBLE_DEVICES")}) {
    if (visible && *visible && !std::strchr(visible, ',')) return 0;
  }
  return node.number_on_host();
}

bool is_cpu(const pjrt::Client& client) { return client.platform_name() == "cpu"; }

pjrt::CompileOptions compile_options(ops::Target target, int device_ordinal, Traits traits, bool spans_processes) {
  pjrt::CompileOptions options;
  options.device_ordinal = device_ordinal;
  const bool on_cpu = ops::is_cpu(target);
  // XLA:CPU's default minimum and maximum lose NaN; torch's keep it.
  if (on_cpu) options.overrides["xla_cpu_enable_fast_min_max"] = false;
  // XLA's algebraic simplifier treats floats as real numbers: it rewrites (x + c) - c to x and x / c to x * (1 / c).
  // Rules and other passes do the rest of its work. GPU and TPU plugins depend on it. Without it the reshape mover
  // reverses a transpose in each iteration and nothing removes the leftovers: 10,000 transposes in a MNASNet.
  if (on_cpu) options.overrides["xla_disable_hlo_passes"] = passes_left_out("algsimp,reshape-mover");
  // Handing a small kernel to other threads costs more than the kernel: 76 instead of 32 µs for fifty 8x8 layers.
  if (on_cpu && traits.small) options.overrides["xla_cpu_multi_thread_eigen"] = false;
  if (on_cpu && traits.older_emitters) options.overrides["xla_cpu_use_fusion_emitters"] = false;  // Note [Emitters]
  options.hints = {"xla_cpu_multi_thread_eigen", "xla_cpu_use_fusion_emitters"};                  // speed only
  // By default processes share the search for kernels, and wait for processes that compile another program, or none.
  if (!on_cpu && spans_processes) {
    options.overrides["xla_gpu_shard_autotuning"] = false;
    options.hints.insert("xla_gpu_shard_autotuning");
  }
  const pjrt::Options given = options_in("TORCH_PJRT_XLA_OPTIONS");
  if (!on_cpu && is_untuned(given) && flag("xla_gpu_enable_triton_gemm").empty()) {
    options.overrides["xla_gpu_enable_triton_gemm"] = false;
  }
  for (const auto& [name, value] : given) {
    options.overrides[name] = value;
    options.hints.erase(name);
  }
  return options;
}

}  // namespace tpjrt::engine
