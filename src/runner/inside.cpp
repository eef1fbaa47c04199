// Opens programs and calls them.
#include "runner/inside.h"

#include <algorithm>
#include <filesystem>
#include <shared_mutex>
#include <utility>

#include "file/archive.h"
#include "file/crc32.h"

namespace torch_pjrt {

namespace runner = tpjrt::runner;
namespace pjrt = tpjrt::pjrt;
namespace file = tpjrt::file;
using runner::Place;
using runner::type_text;

namespace {

tpjrt::disk::Executables& stored() {
  static auto& stored = *new tpjrt::disk::Executables();
  return stored;
}

std::string takes(const std::vector<Described>& arguments) {
  std::string text;
  for (const Described& argument : arguments) {
    text += (text.empty() ? "'" : ", '") + argument.name + "' " + type_text(argument.dtype, argument.shape);
  }
  return text.empty() ? "no arguments" : text;
}

// Formats the sizes of variants: "batch = 1, 8".
std::string sizes_text(const std::vector<runner::VariantSpec>& variants) {
  std::map<std::string, std::vector<int64_t>> sizes;
  for (const auto& variant : variants) {
    for (const auto& [name, size] : variant.described.sizes) {
      if (std::find(sizes[name].begin(), sizes[name].end(), size) == sizes[name].end()) sizes[name].push_back(size);
    }
  }
  std::string text;
  for (const auto& [name, values] : sizes) {
    text += (text.empty() ? "" : "; ") + name + " = ";
    for (size_t i = 0; i < values.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(values[i]);
  }
  return text;
}

// Returns a file's initial tensors: its own weights or a separate file's, and its state.
file::Tensors initial(const file::Archive& archive, const runner::Signature& signature, const std::string& given,
                      std::shared_ptr<const void>& owner) {
  file::Tensors tensors;
  std::string path = archive.path();
  if (signature.separate_weights.empty()) {
    if (archive.has("weights.safetensors")) tensors = file::read_safetensors(archive.read("weights.safetensors"), path);
  } else {
    path = given.empty() ? (std::filesystem::path(path).parent_path() / signature.separate_weights).string() : given;
    std::shared_ptr<const file::Mapping> mapping;
    try {
      mapping = std::make_shared<const file::Mapping>(path);
    } catch (const file::Error& error) {
      throw file::Error("'" + archive.path() + "' was saved without its weights: " + error.what() + ". Put '" +
                        signature.separate_weights + "' beside it, or name the file (Options::weights)");
    }
    if (file::crc32(mapping->bytes()) != signature.separate_crc) {
      throw file::Error("'" + path + "' has other weights than '" + archive.path() +
                        "' was saved with: they are of another model, or were altered. load_state takes other values");
    }
    tensors = file::read_safetensors(mapping->bytes(), path);
    owner = mapping;
  }
  if (archive.has("state.safetensors")) {
    for (auto& [name, tensor] : file::read_safetensors(archive.read("state.safetensors"), archive.path())) {
      tensors.emplace(name, tensor);
    }
  }
  return tensors;
}

}  // namespace

Program::Inside::Inside(std::shared_ptr<pjrt::Client> given, const std::string& path, const std::string& weights,
                        const std::vector<std::string>& kernels, size_t device)
    : client(std::move(given)),
      archive(file::Archive::open(path)),
      signature(runner::read_signature(*archive)),
      device(device) {
  if (device >= client->devices().size()) {
    throw Error("there is no device " + std::to_string(device) + "; the plugin has " +
                std::to_string(client->devices().size()));
  }
  std::vector<std::string> folders{std::filesystem::path(path).parent_path().string()};
  if (folders[0].empty()) folders[0] = ".";
  folders.insert(folders.end(), kernels.begin(), kernels.end());
  const bool has_own = std::any_of(signature.entries.begin(), signature.entries.end(), [&](const auto& entry) {
    return entry.variants[0].texts.contains(client->platform_name());
  });
  if (has_own) runner::load_kernels(*client, signature.kernels, folders);
  std::shared_ptr<const void> owner = archive;
  const file::Tensors tensors = initial(*archive, signature, weights, owner);
  state = std::make_unique<runner::State>(
      client, device, signature, tensors,
      std::make_shared<std::pair<decltype(archive), decltype(owner)>>(archive, owner), path);
  for (const runner::EntryForm& form : signature.entries) {
    Entry entry{&form, {}, {}};
    for (const auto& variant : form.variants) {
      entry.described.push_back(variant.described);
      entry.compiled.push_back(std::make_unique<Compiled>());
    }
    entries.push_back(std::move(entry));
  }
}

const Program::Inside::Entry& Program::Inside::entry(std::string_view name) const {
  if (name.empty()) return entries.front();
  std::string all;
  for (const Entry& entry : entries) {
    if (entry.form->name == name) return entry;
    all += (all.empty() ? "'" : ", '") + entry.form->name + "'";
  }
  throw Error("'" + archive->path() + "' has no entry '" + std::string(name) + "'; it has " + all);
}

size_t Program::Inside::fitting(const Entry& entry, const std::vector<Tensor>& arguments) const {
  const auto& variants = entry.form->variants;
  for (size_t v = 0; v < variants.size(); ++v) {
    const auto& wanted = variants[v].described.arguments;
    if (wanted.size() != arguments.size()) continue;
    size_t i = 0;
    while (i < wanted.size() && arguments[i].dtype() == wanted[i].dtype && arguments[i].shape() == wanted[i].shape) ++i;
    if (i == wanted.size()) return v;
  }
  const std::string name = "entry '" + entry.form->name + "'";
  const auto& first = variants[0].described.arguments;
  if (first.size() != arguments.size()) {
    throw Error(name + " takes " + takes(first) + ": " + std::to_string(first.size()) + ", and " +
                std::to_string(arguments.size()) + " were given");
  }
  // Names the argument that no variant accepts; if each fits some variant, they don't fit together.
  for (size_t i = 0; i < first.size(); ++i) {
    const Tensor& given = arguments[i];
    const bool fits = std::any_of(variants.begin(), variants.end(), [&](const auto& variant) {
      const Described& wanted = variant.described.arguments[i];
      return given.dtype() == wanted.dtype && given.shape() == wanted.shape;
    });
    if (fits) continue;
    std::string text = name + ": argument '" + first[i].name + "' is " + type_text(given.dtype(), given.shape()) +
                       ", expected " + type_text(first[i].dtype, first[i].shape);
    if (variants.size() > 1) text += " or with another of the sizes it was exported for (" + sizes_text(variants) + ")";
    throw Error(text);
  }
  throw Error(name + ": the sizes of the arguments don't fit each other; it was exported for " + sizes_text(variants));
}

const Program::Inside::Compiled& Program::Inside::ready(const Entry& entry, size_t v) {
  Compiled& compiled = *entry.compiled[v];
  if (compiled.is_ready) return compiled;
  std::lock_guard guard(compiled.lock);
  if (compiled.is_ready) return compiled;
  const runner::VariantSpec& variant = entry.form->variants[v];
  const auto own = variant.texts.find(client->platform_name());
  const runner::Text& text = (own != variant.texts.end() ? own : variant.texts.find("any"))->second;
  pjrt::CompileOptions options = text.options;
  options.device_ordinal = static_cast<int>(device);
  try {
    compiled.executable =
        stored().compile(*client, std::string(archive->read_text(text.member)), options, compiled.from_disk);
  } catch (const pjrt::Error& error) {
    if (error.is_out_of_memory()) throw;
    throw Error("'" + archive->path() + "', entry '" + entry.form->name + "': the plugin for " +
                client->platform_name() + " refuses the program: " + error.what() +
                ". It may lack an op or a dtype: take a newer plugin, or export for what it has");
  }
  if (compiled.executable->num_results() != variant.outputs.size()) {
    throw Error("'" + archive->path() + "', entry '" + entry.form->name +
                "': the program gives another number of results than its signature says. Export it anew");
  }
  for (const Described& argument : variant.described.arguments) {
    compiled.argument_types.push_back(
        std::make_shared<pjrt::BufferType>(runner::buffer_type(argument.dtype), argument.shape));
  }
  compiled.writes_state = std::any_of(variant.outputs.begin(), variant.outputs.end(),
                                      [](const Place& place) { return place.kind == Place::Kind::kState; });
  compiled.is_ready = true;
  return compiled;
}

namespace {

void check_required(const std::vector<runner::Required>& required, const pjrt::Buffer& buffer) {
  std::vector<int64_t> extremes(2 * required.size());
  if (buffer.size_in_bytes() != extremes.size() * sizeof(int64_t)) throw Error("the program's assertions are damaged");
  buffer.copy_to_host(extremes.data(), buffer.size_in_bytes());
  for (size_t i = 0; i < required.size(); ++i) {
    const int64_t least = extremes[2 * i], greatest = extremes[2 * i + 1];
    if (greatest < required[i].high && least >= required[i].low) continue;
    std::string message = required[i].message;
    int64_t value = greatest >= required[i].high ? greatest : least;
    constexpr std::string_view kIndex =
        "{index}";  // the integer then combines a violation with 2^32 times the index at which it is
    if (const size_t at = message.find(kIndex); at != std::string::npos) {
      message.replace(at, kIndex.size(), std::to_string(value >> 32));
      value &= 0xFFFFFFFF;
    }
    const std::string number = std::to_string(value);
    for (size_t at = message.find("{}"); at != std::string::npos; at = message.find("{}", at + number.size()))
      message.replace(at, 2, number);
    throw Error("[" + required[i].op + "] " + message);
  }
}

}  // namespace

Results Program::Inside::call(const Entry& entry, const std::vector<Tensor>& arguments) {
  const size_t v = fitting(entry, arguments);
  const Compiled& compiled = ready(entry, v);
  const runner::VariantSpec& variant = entry.form->variants[v];
  std::vector<std::shared_ptr<pjrt::Buffer>> given(arguments.size()), results;
  std::vector<const pjrt::Buffer*> taken;
  std::vector<int64_t> kept;  // not donated
  taken.reserve(variant.parameters.size());
  for (const Place& place : variant.parameters) {
    if (place.kind != Place::Kind::kArgument) continue;
    const Tensor::Data& data = *arguments[place.index].inside();
    if (data.buffer && &data.buffer->client() == client.get() && data.buffer->device_index() == device) {
      given[place.index] = data.buffer;
      continue;
    }
    const void* memory = arguments[place.index].data();
    const auto& type = compiled.argument_types[place.index];
    given[place.index] = variant.described.arguments[place.index].updated
                             ? client->buffer_from_host(memory, type, pjrt::HostBufferSemantics::kCopy, device, {})
                             : client->buffer_of_constant(memory, type, device, {});
  }
  std::shared_lock shared(state->lock(), std::defer_lock);
  std::unique_lock alone(state->lock(), std::defer_lock);
  compiled.writes_state ? alone.lock() : shared.lock();
  for (const Place& place : variant.parameters) {
    if (place.kind == Place::Kind::kState) {
      taken.push_back(state->buffer(place.index));
      continue;
    }
    if (arguments[place.index].inside()->buffer) kept.push_back(static_cast<int64_t>(taken.size()));
    taken.push_back(given[place.index].get());
  }
  try {
    // The caller may reuse the arguments' memory when this returns.
    client->shares_memory() ? compiled.executable->execute_and_wait(taken, kept, results)
                            : compiled.executable->execute(taken, kept, results);
  } catch (...) {
    if (compiled.writes_state) state->let_go_of_deleted();
    throw;
  }
  const pjrt::Buffer* extremes = nullptr;
  for (size_t i = 0; i < variant.outputs.size(); ++i) {
    if (variant.outputs[i].kind == Place::Kind::kAssertions) extremes = results[i].get();
  }
  if (extremes && compiled.writes_state) {  // the state must not take results of a failed assertion
    try {
      check_required(variant.required, *extremes);
    } catch (...) {
      state->let_go_of_deleted();
      throw;
    }
  }
  std::vector<Tensor> tensors(variant.described.results.size());
  for (size_t i = 0; i < variant.outputs.size(); ++i) {
    const Place& place = variant.outputs[i];
    switch (place.kind) {
      case Place::Kind::kState: state->set(place.index, std::move(results[i])); break;
      case Place::Kind::kAssertions: break;
      case Place::Kind::kResult: {
        const Described& form = variant.described.results[place.index];
        tensors[place.index] = runner::on_device(form.dtype, form.shape, std::move(results[i]));
        break;
      }
      case Place::Kind::kArgument: {
        const Described& form = variant.described.arguments[place.index];
        tensors.push_back(runner::on_device(form.dtype, form.shape, std::move(results[i])));
        break;
      }
    }
  }
  if (shared) shared.unlock();
  if (alone) alone.unlock();
  if (extremes && !compiled.writes_state) check_required(variant.required, *extremes);
  return {variant.result_names, std::move(tensors)};
}

}  // namespace torch_pjrt

namespace tpjrt::runner {

torch_pjrt::Program open_with(std::shared_ptr<pjrt::Client> client, const torch_pjrt::Options& options,
                              const std::string& path) {
  return translated(
      [] { return std::string(); },
      [&] {
        return torch_pjrt::Program(std::make_shared<torch_pjrt::Program::Inside>(
            std::move(client), path, options.weights, options.kernels, static_cast<size_t>(options.device)));
      });
}

}  // namespace tpjrt::runner
