// Loads programs from the disk cache or compiles them, with progress shown.
#include "engine/executable/compiler.h"

#include <c10/util/Exception.h>

#include <chrono>

#include "engine/executable/interruptible.h"
#include "engine/executable/progress.h"
#include "engine/memory/host_memory.h"

namespace tpjrt::engine {

namespace {

constexpr std::chrono::milliseconds kLongCompile{500};

}  // namespace

Compiler::Compiler() : stored_([](const std::string& message) { TORCH_WARN(message); }) {}

CompiledText Compiler::compile(pjrt::Client& client, const std::string& stablehlo, const pjrt::CompileOptions& options,
                               size_t ops, Compiling compiling, const std::function<bool()>& enough) {
  const std::string key = stored_.key(client, stablehlo, options);
  CompiledText compiled{stored_.load(client, key, options), true};
  if (compiled.executable) return compiled;
  compiled.from_disk = false;
  const auto start = std::chrono::steady_clock::now();
  if (compiling == Compiling::kInBackground) {
    compiled.executable = client.compile(stablehlo, options);
  } else {
    const CompileProgress progress(ops);
    compiled.executable = compile_interruptibly(client.shared_from_this(), stablehlo, options, enough);
    if (!compiled.executable) return {};
  }
  const bool was_long = std::chrono::steady_clock::now() - start > kLongCompile;
  stored_.keep(key, *compiled.executable);
  if (was_long) return_freed_memory();
  return compiled;
}

bool Compiler::is_amortized(const pjrt::Client& client, const std::string& graph) {
  return stored_.is_noted(client, "amortized\n" + graph);
}

void Compiler::set_amortized(const pjrt::Client& client, const std::string& graph) {
  stored_.note(client, "amortized\n" + graph);
}

}  // namespace tpjrt::engine
