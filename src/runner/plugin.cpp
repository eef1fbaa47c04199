// Searches for shared libraries.
#include "runner/inside.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>

#include "pjrt/ffi.h"

namespace tpjrt::runner {
namespace {

namespace fs = std::filesystem;
using torch_pjrt::Error;

std::string text_of(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? value : "";
}

// Returns the folders that may contain plugins, in order.
std::vector<fs::path> roots() {
  std::vector<fs::path> roots;
  const char* folders = std::getenv("TORCH_PJRT_PLUGIN_PATH");
  const std::string given = folders ? folders : "";
  for (size_t start = 0; start < given.size();) {
    const size_t end = std::min(given.find(':', start), given.size());
    if (end > start) roots.emplace_back(given.substr(start, end - start));
    start = end + 1;
  }
  std::error_code none;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const std::string prefix = text_of(variable);
    if (prefix.empty()) continue;
    for (const auto& item : fs::directory_iterator(fs::path(prefix) / "lib", none)) {
      if (item.path().filename().string().starts_with("python3")) roots.push_back(item.path() / "site-packages");
    }
  }
  return roots;
}

// Wheels of plugins have a folder in one of these two packages.
std::vector<fs::path> places(const fs::path& root, const std::string& name) {
  return {root, root / name, root / "xla_plugins" / name, root / "jax_plugins" / name};
}

bool is_library(const fs::path& path) {
  std::error_code none;
  return path.extension() == ".so" && fs::is_regular_file(path, none);
}

}  // namespace

std::string find_plugin(const std::string& given) {
  const std::string name = given.empty() ? text_of("TORCH_PJRT_PLUGIN") : given;
  if (name.empty()) {
    throw Error(
        "no plugin was named: give Options::plugin (pjrt-run: --plugin), or set TORCH_PJRT_PLUGIN, to a plugin's name "
        "or to the "
        "path of its shared library");
  }
  std::error_code none;
  if (name.find('/') != std::string::npos || name.ends_with(".so")) {
    if (fs::is_regular_file(name, none)) return name;
    throw Error("there is no plugin '" + name + "'");
  }
  std::string looked;
  for (const fs::path& root : roots()) {
    looked += (looked.empty() ? "" : ", ") + root.string();
    for (const fs::path& place : places(root, name)) {
      for (const std::string& file : {name + ".so", "lib" + name + ".so", "pjrt_c_api_" + name + "_plugin.so"}) {
        if (is_library(place / file)) return place / file;
      }
      if (place == root) continue;
      fs::path only;
      size_t count = 0;
      for (const auto& item : fs::directory_iterator(place, none)) {
        if (is_library(item.path())) only = item.path(), ++count;
      }
      if (count == 1) return only;
    }
  }
  throw Error("there is no plugin '" + name + "' (looked in " + (looked.empty() ? "no folder" : looked) +
              "): give the path of its shared library, or set TORCH_PJRT_PLUGIN_PATH to the folder that it is in");
}

std::shared_ptr<pjrt::Client> client_for(const torch_pjrt::Options& options) {
  static std::mutex lock;
  static auto& clients = *new std::map<std::pair<std::string, pjrt::Options>, std::shared_ptr<pjrt::Client>>;
  const std::string path = find_plugin(options.plugin);
  pjrt::Options chosen = options.client_options;
  // The CPU plugin has four devices by default, each with its own threads.
  if (fs::path(path).filename().string().find("cpu") != std::string::npos) {
    chosen.try_emplace("cpu_device_count", int64_t{options.device} + 1);
  }
  std::lock_guard guard(lock);
  std::shared_ptr<pjrt::Client>& client = clients[{path, chosen}];
  if (!client) client = pjrt::Client::create(pjrt::Api::load(path), chosen);
  return client;
}

namespace {

bool have_equal_content(const fs::path& a, const fs::path& b) {
  std::error_code none;
  if (fs::equivalent(a, b, none)) return true;
  if (fs::file_size(a, none) != fs::file_size(b, none)) return false;
  std::ifstream in_a(a, std::ios::binary), in_b(b, std::ios::binary);
  using Bytes = std::istreambuf_iterator<char>;
  return in_a && in_b && std::equal(Bytes(in_a), Bytes(), Bytes(in_b), Bytes());
}

// Returns this library's handler, or that of another copy of the library that the process has registered under the
// name.
XLA_FFI_Handler* handler_in(const std::string& path, const KernelForm& kernel) {
  XLA_FFI_Handler* known = pjrt::handler_of(kernel.target);
  Dl_info of_known{};
  if (known && ::dladdr(reinterpret_cast<void*>(known), &of_known) && have_equal_content(of_known.dli_fname, path)) {
    return known;
  }
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: the plugin keeps the handler
  if (!library) throw Error("the kernel library '" + path + "' can't be loaded: " + ::dlerror());
  void* symbol = ::dlsym(library, kernel.symbol.c_str());
  if (!symbol) {
    throw Error("the kernel library '" + path + "' has no symbol '" + kernel.symbol +
                "': it is not the one that the program was exported with");
  }
  if (known && symbol != reinterpret_cast<void*>(known)) {
    throw Error("the kernel '" + kernel.symbol + "' of '" + path +
                "' is another than the one that this process has by that name, of '" +
                (of_known.dli_fname ? of_known.dli_fname : "") + "': load the program in a process of its own");
  }
  return reinterpret_cast<XLA_FFI_Handler*>(symbol);
}

}  // namespace

void load_kernels(pjrt::Client& client, const std::vector<KernelForm>& kernels,
                  const std::vector<std::string>& folders) {
  std::error_code none;
  for (const KernelForm& kernel : kernels) {
    std::string found, looked;
    for (const std::string& folder : folders) {
      const fs::path path = fs::path(folder) / kernel.library;
      looked += (looked.empty() ? "" : ", ") + path.string();
      if (found.empty() && fs::is_regular_file(path, none)) found = path;
    }
    if (found.empty() && fs::is_regular_file(kernel.path, none)) found = kernel.path;
    if (found.empty()) {
      throw Error("the program needs the kernel '" + kernel.symbol + "' of the library '" + kernel.library +
                  "', which is not there (looked for " + looked + " and " + kernel.path +
                  "): put it beside the program's file, or name its folder in Options::kernels (pjrt-run: --kernels)");
    }
    pjrt::register_handler(client, kernel.target, handler_in(found, kernel));
    pjrt::add_place(kernel.target, "kernel '" + kernel.symbol + "' of " + found);
  }
}

}  // namespace tpjrt::runner
