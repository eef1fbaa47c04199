// Keys of programs on disk, and loading instead of compiling.
#include "disk/executables.h"

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "disk/disk_cache.h"
#include "disk/sha1.h"
#include "hlo/builder.h"
#include "pjrt/executable.h"

namespace tpjrt::disk {
namespace {

std::string flags() {
  std::string text;
  for (const char* value : {std::getenv("XLA_FLAGS"), std::getenv("LIBTPU_INIT_ARGS")}) {
    text += (value ? value : "") + std::string("\n");
  }
  return text;
}

DiskCache::Settings settings(Warning warning) {
  if (warning) install_warning(warning);
  DiskCache::Settings settings = DiskCache::settings_from_environment();
  // XLA dumps only what it compiles, so the cache is off if a dump is requested.
  if (flags().find("--xla_dump") != std::string::npos) settings.on = false;
  return settings;
}

// Returns the lines of /proc/cpuinfo that describe the supported instructions, without duplicates.
std::string cpu_features() {
  std::string features;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const bool telling = line.starts_with("model name") || line.starts_with("flags") || line.starts_with("Features") ||
                         line.starts_with("CPU part");
    if (telling && features.find(line) == std::string::npos) features += line + "\n";
  }
  return features;
}

// Returns everything but the program and its options that an executable depends on.
std::string describe(const pjrt::Client& client) {
  std::string text;
  const auto add = [&](const std::string& name, const std::string& value) { text += name + "=" + value + "\n"; };
  const pjrt::Api& api = client.api();
  struct stat file{};
  if (::stat(api.path().c_str(), &file) == 0) {
    add("plugin", api.path().substr(api.path().rfind('/') + 1));
    add("plugin bytes", std::to_string(file.st_size));
    add("plugin time", std::to_string(file.st_mtim.tv_sec) + "." + std::to_string(file.st_mtim.tv_nsec));
  }
  add("api", std::to_string(api.major()) + "." + std::to_string(api.minor()));
  for (const auto& [name, value] : api.attributes()) add("plugin " + name, value);
  add("platform", client.platform_name() + " " + client.platform_version());
  for (const pjrt::Device& device : client.devices()) {
    add("device " + std::to_string(device.id), device.kind);
    for (const auto& [name, value] : device.attributes) add("device " + name, value);
  }
  add("flags", flags());
  if (client.platform_name() == "cpu") {
    // Kernels are split for the number of processors.
    add("processors", std::to_string(std::thread::hardware_concurrency()));
    add("features", cpu_features());
  }
  return text;
}

}  // namespace

Executables::Executables(Warning warning) : disk_(settings(warning)) {}

std::string Executables::described(const pjrt::Client& client) {
  std::lock_guard guard(lock_);
  if (described_ != &client) {
    description_ = describe(client);
    described_ = &client;
  }
  return description_;
}

std::string Executables::key(const pjrt::Client& client, const std::string& stablehlo,
                             const pjrt::CompileOptions& options) {
  if (!disk_.is_on() || !options.processes.empty()) return "";  // processes compile common programs together
  std::string text = described(client);
  const std::string serialized = pjrt::serialize(options, client.device_ids(options), client.spans_processes());
  text += "options " + std::to_string(serialized.size()) + "\n" + serialized;
  // The user's files and lines don't affect the computation. An executable from disk shows the lines of its first
  // compile, but only in XLA's dumps.
  return digest(text + hlo::without_locations(stablehlo));
}

std::shared_ptr<pjrt::Executable> Executables::load(pjrt::Client& client, const std::string& key,
                                                    const pjrt::CompileOptions& options) {
  if (key.empty()) return nullptr;
  const auto content = disk_.load(key);
  if (!content) return nullptr;
  try {
    return client.deserialize(*content, options);
  } catch (const pjrt::Error& error) {
    disk_.refuse(key, std::string("is refused by the plugin: ") + error.what());
    return nullptr;
  }
}

void Executables::keep(const std::string& key, const pjrt::Executable& executable) {
  if (key.empty()) return;
  std::string content;
  try {
    content = executable.serialize();
  } catch (const pjrt::Error&) {
    return;  // a plugin or program that can't be stored: every process compiles it
  }
  disk_.store(key, content);
}

std::shared_ptr<pjrt::Executable> Executables::compile(pjrt::Client& client, const std::string& stablehlo,
                                                       const pjrt::CompileOptions& options, bool& from_disk) {
  const std::string key = this->key(client, stablehlo, options);
  std::shared_ptr<pjrt::Executable> executable = load(client, key, options);
  from_disk = executable != nullptr;
  if (from_disk) return executable;
  executable = client.compile(stablehlo, options);
  keep(key, *executable);
  return executable;
}

bool Executables::is_noted(const pjrt::Client& client, const std::string& text) {
  return disk_.is_on() && disk_.load(digest(described(client) + text)).has_value();
}

void Executables::note(const pjrt::Client& client, const std::string& text) {
  if (disk_.is_on()) disk_.store(digest(described(client) + text), "noted");
}

}  // namespace tpjrt::disk
