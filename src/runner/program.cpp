// Implements torch_pjrt::Program on top of Inside.
#include <torch_pjrt/program.h>

#include <utility>

#include "runner/describe.h"
#include "runner/inside.h"
#include "runner/plugin.h"

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
