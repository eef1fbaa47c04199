// Implements torch_pjrt::Program on top of Inside, and describes a program as readable tables.
#include <torch_pjrt/program.h>

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "runner/inside.h"

namespace tpjrt::runner {

namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string table(const Rows& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line = "  ";
    for (size_t i = 0; i < row.size(); ++i) line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string bytes_text(size_t bytes) {
  char text[32];
  if (bytes < 10'000) {
    std::snprintf(text, sizeof text, "%zu B", bytes);
  } else if (bytes < 10'000'000) {
    std::snprintf(text, sizeof text, "%.1f kB", static_cast<double>(bytes) * 1e-3);
  } else {
    std::snprintf(text, sizeof text, "%.1f MB", static_cast<double>(bytes) * 1e-6);
  }
  return text;
}

size_t size_of(const std::vector<Described>& forms) {
  size_t size = 0;
  for (const Described& form : forms) size += file::size_of(form.dtype, form.shape).value_or(0);
  return size;
}

void add_variant(std::string& text, const VariantSpec& variant, const pjrt::Executable* executable) {
  Rows rows;
  for (const Described& form : variant.described.arguments) {
    rows.push_back({"takes", form.name, type_text(form.dtype, form.shape), form.updated ? "updated" : ""});
  }
  for (const Described& form : variant.described.results) {
    rows.push_back({"gives", form.name, type_text(form.dtype, form.shape), ""});
  }
  text += table(rows);
  rows = {{"arguments", bytes_text(size_of(variant.described.arguments))},
          {"results", bytes_text(size_of(variant.described.results))}};
  if (executable && executable->memory_size() > 0) rows.push_back({"at work", bytes_text(executable->memory_size())});
  text += "  memory\n" + table(rows);
  std::vector<std::pair<int64_t, std::string>> ops;
  for (const auto& [op, count] : variant.ops) ops.emplace_back(-count, op);
  std::sort(ops.begin(), ops.end());
  rows.clear();
  for (const auto& [count, op] : ops) rows.push_back({std::to_string(-count), op});
  text += "  ops\n" + table(rows);
  if (!variant.composites.empty()) text += "  composites\n";
  for (const std::string& composite : variant.composites) text += "  " + composite + "\n";
}

std::string describe(const torch_pjrt::Program::Inside& inside) {
  std::string text = inside.archive->path() + "\n";
  Rows rows;
  for (const auto& [name, version] : inside.signature.made_by) rows.push_back({name, version});
  text += table(rows);
  for (const auto& entry : inside.entries) {
    for (size_t v = 0; v < entry.form->variants.size(); ++v) {
      const VariantSpec& variant = entry.form->variants[v];
      text += "\nentry " + entry.form->name;
      for (const auto& [name, size] : variant.described.sizes) text += ", " + name + " = " + std::to_string(size);
      text += "\n";
      add_variant(text, variant, entry.compiled[v]->is_ready ? entry.compiled[v]->executable.get() : nullptr);
    }
  }
  std::vector<Described> fixed, updated;
  for (const StateForm& form : inside.signature.state) {
    (form.described.updated ? updated : fixed).push_back(form.described);
  }
  text += "\nstate\n" + table({{"weights", std::to_string(fixed.size()), bytes_text(size_of(fixed))},
                               {"updated", std::to_string(updated.size()), bytes_text(size_of(updated))}});
  rows.clear();
  for (const KernelForm& kernel : inside.signature.kernels) rows.push_back({kernel.symbol, "of " + kernel.library});
  if (!rows.empty()) text += "\nkernels\n" + table(rows);
  return text;
}

}  // namespace
}  // namespace tpjrt::runner

namespace torch_pjrt {

using tpjrt::runner::translated;

namespace {

std::string nowhere() { return {}; }

}  // namespace

Program Program::open(const std::string& path, const Options& options) {
  return translated(nowhere,
                    [&] { return tpjrt::runner::open_with(tpjrt::runner::client_for(options), options, path); });
}

std::vector<std::string> Program::entries() const {
  std::vector<std::string> names;
  for (const auto& entry : inside_->entries) names.push_back(entry.form->name);
  return names;
}

const std::vector<Variant>& Program::variants(std::string_view entry) const { return inside_->entry(entry).described; }

Results Program::call(std::string_view name, const std::vector<Tensor>& arguments) const {
  const Inside::Entry& entry = inside_->entry(name);
  return translated([&] { return "'" + inside_->archive->path() + "', entry '" + entry.form->name + "'"; },
                    [&] { return inside_->call(entry, arguments); });
}

Results Program::call(std::string_view name, const std::map<std::string, Tensor>& arguments) const {
  const Inside::Entry& entry = inside_->entry(name);
  const auto& wanted = entry.described[0].arguments;
  std::vector<Tensor> in_order;
  for (const Described& argument : wanted) {
    const auto found = arguments.find(argument.name);
    if (found == arguments.end()) {
      throw Error("entry '" + entry.form->name + "': argument '" + argument.name +
                  "' is missing: " + tpjrt::runner::type_text(argument.dtype, argument.shape));
    }
    in_order.push_back(found->second);
  }
  for (const auto& [given, tensor] : arguments) {
    bool is_known = false;
    for (const Described& argument : wanted) is_known |= argument.name == given;
    if (!is_known) throw Error("entry '" + entry.form->name + "' takes no argument '" + given + "'");
  }
  return call(name, in_order);
}

void Program::prepare(std::string_view name) const {
  const Inside::Entry& entry = inside_->entry(name);
  translated([&] { return "'" + inside_->archive->path() + "', entry '" + entry.form->name + "'"; },
             [&] {
               for (size_t v = 0; v < entry.described.size(); ++v) (void)inside_->ready(entry, v);
             });
}

std::vector<Described> Program::describe_state() const {
  std::vector<Described> forms;
  for (const auto& form : inside_->signature.state) forms.push_back(form.described);
  return forms;
}

Tensor Program::state(std::string_view name) const {
  return translated(nowhere, [&] { return inside_->state->copy(inside_->state->index_of(name)); });
}

std::map<std::string, Tensor> Program::state() const {
  std::map<std::string, Tensor> all;
  for (const auto& form : inside_->signature.state) all.emplace(form.described.name, state(form.described.name));
  return all;
}

void Program::set_state(std::string_view name, const Tensor& value) const {
  translated(nowhere, [&] { inside_->state->set(inside_->state->index_of(name), value); });
}

void Program::save_state(const std::string& path) const {
  translated(nowhere, [&] { inside_->state->save(path); });
}

void Program::load_state(const std::string& path, bool partial) const {
  translated(nowhere, [&] { inside_->state->load(path, partial); });
}

std::string Program::describe() const { return tpjrt::runner::describe(*inside_); }

const std::string& Program::path() const { return inside_->archive->path(); }

}  // namespace torch_pjrt
