// Formats padded columns.
#include "runner/describe.h"

#include <algorithm>
#include <cstdio>
#include <vector>

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

}  // namespace

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

}  // namespace tpjrt::runner
