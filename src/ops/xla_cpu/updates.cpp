// Lets updates be written over their parameters (Note [Stored values]).
#include <algorithm>
#include <charconv>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hlo/builder_text.h"
#include "ops/claims/claims.h"
#include "ops/xla_cpu/cpu_lowerings.h"
#include "ops/xla_cpu/statement.h"

namespace tpjrt::ops {
namespace {

// A copy of fewer elements takes no longer than the calls that spare it.
constexpr double kLeastUpdated = 16384;

// A parameter whose memory a result takes, and the statements that read it.
struct Updated {
  std::string_view name, type;
  std::vector<int32_t> readers;
};

std::vector<Updated> updated_in(std::string_view header) {
  constexpr std::string_view kTensor = ": tensor<";
  std::vector<Updated> all;
  for (size_t alias = header.find("tf.aliasing_output"); alias != header.npos;
       alias = header.find("tf.aliasing_output", alias + 1)) {
    const size_t begin = header.rfind("%arg", alias), colon = header.find(kTensor, begin);
    const size_t type = colon + kTensor.size(), end = header.rfind('>', alias);
    // The call that orders an update knows only the row-major layout.
    if (header.substr(end, alias - end).find("layout_mode") != header.npos) continue;
    all.push_back({header.substr(begin, colon - begin), header.substr(type, end - type), {}});
  }
  const double least = Machine::here().takes_all ? 1 : kLeastUpdated;
  std::erase_if(all, [&](const Updated& updated) { return elements_in(updated.type) < least; });
  return all;
}

class Body {
 public:
  Body(std::string_view text, std::vector<Updated>& updated)
      : all_(statements_in(text, 4)),
        readers_(all_.size()),
        leads_to_kernel_(all_.size()),
        is_needed_(all_.size()),
        is_late_(all_.size()) {
    std::unordered_map<std::string_view, Updated*> parameters;
    for (Updated& parameter : updated) parameters[parameter.name] = &parameter;
    for (int32_t i = 0; i <= end(); ++i) {
      for (const int32_t operand : at(i).operands) readers_[index(operand)].push_back(i);
      hlo::each_name(at(i).text, [&](std::string_view name) {
        const auto found = parameters.find(name);
        if (found == parameters.end()) return;
        std::vector<int32_t>& readers = found->second->readers;
        if (readers.empty() || readers.back() != i) readers.push_back(i);
      });
    }
    for (int32_t i = end(); i-- > 0;) {
      for (const int32_t reader : readers_[index(i)]) {
        leads_to_kernel_[index(i)] |= is_kernel(reader) || leads_to_kernel_[index(reader)];
        is_needed_[index(i)] |= reader == end() || is_needed_[index(reader)];
      }
    }
  }

  // Has the statements that compute the new value, and are fused into results alone, come after the kernels that read
  // the old one: they read it from a call that is given an element of each such kernel's result.
  void order(const Updated& updated, size_t number) {
    std::vector<int32_t> late, early;
    for (const int32_t reader : updated.readers) {
      if (!counts(reader)) continue;
      (is_kernel(reader) || leads_to_kernel_[index(reader)] ? early : late).push_back(reader);
    }
    const std::vector<int32_t> kernels = kernels_of(std::move(early));
    if (late.empty() || kernels.empty()) return;
    std::vector<char> done(all_.size());  // before the new value anyhow
    for (const int32_t statement : late) add_operands(done, statement, kernels.back());
    const std::string call = "%update" + std::to_string(number);
    std::vector<Operand> operands{{std::string(updated.name), std::string(updated.type)}};
    std::string slices;
    for (const int32_t kernel : kernels) {
      if (done[index(kernel)]) continue;
      // A statement with regions is not a line, and its last type that of a region's end.
      if (std::ranges::count(at(kernel).text, '\n') > 1 || at(kernel).elements == 0) return;
      add_operands(done, kernel, kernels.back());
      operands.push_back(element_of(at(kernel), call + "_" + std::to_string(kernel), slices));
    }
    if (operands.size() == 1) return;
    calls_ += slices + "    " + opaque_call(call, operands);
    names_.emplace(updated.name, call);
    while (!late.empty()) {
      const int32_t statement = late.back();
      late.pop_back();
      if (statement == end() || std::exchange(is_late_[index(statement)], 1)) continue;
      late.insert(late.end(), readers_[index(statement)].begin(), readers_[index(statement)].end());
    }
  }

  std::string text() const {
    std::string text, late;
    for (int32_t i = 0; i < end(); ++i) {
      if (is_late_[index(i)]) {
        write_late(late, at(i).text);
      } else {
        text += at(i).text;
      }
    }
    text += calls_ + late;
    return text += at(end()).text;
  }

 private:
  static size_t index(int32_t statement) { return static_cast<size_t>(statement); }
  const Statement& at(int32_t statement) const { return all_[index(statement)]; }
  int32_t end() const { return static_cast<int32_t>(all_.size()) - 1; }  // the return
  bool is_kernel(int32_t statement) const { return at(statement).cost < 0 && statement != end(); }

  // Whether a result needs the statement.
  bool counts(int32_t statement) const { return statement != end() && is_needed_[index(statement)]; }

  // Returns the kernels among the statements and those that these are fused into, the last one first.
  std::vector<int32_t> kernels_of(std::vector<int32_t> statements) const {
    std::vector<int32_t> kernels;
    std::vector<char> seen(all_.size());
    while (!statements.empty()) {
      const int32_t statement = statements.back();
      statements.pop_back();
      if (!counts(statement) || std::exchange(seen[index(statement)], 1)) continue;
      if (is_kernel(statement)) {
        kernels.push_back(statement);
      } else {
        statements.insert(statements.end(), readers_[index(statement)].begin(), readers_[index(statement)].end());
      }
    }
    std::ranges::sort(kernels, std::greater());
    return kernels;
  }

  void write_late(std::string& text, std::string_view statement) const {
    size_t done = 0;
    hlo::each_name(statement, [&](std::string_view name) {
      const auto found = names_.find(name);
      if (found == names_.end()) return;
      const auto begin = static_cast<size_t>(name.data() - statement.data());
      text.append(statement, done, begin - done).append(found->second);
      done = begin + name.size();
    });
    text.append(statement, done);
  }

  // Adds what the statement is computed from, back to `first`.
  void add_operands(std::vector<char>& to, int32_t statement, int32_t first) const {
    std::vector<int32_t> open{statement};
    while (!open.empty()) {
      const int32_t reader = open.back();
      open.pop_back();
      for (const int32_t operand : at(reader).operands) {
        if (operand < first || to[index(operand)]) continue;
        to[index(operand)] = 1;
        open.push_back(operand);
      }
    }
  }

  // Returns the first element of a kernel's result, so that the result itself need not be kept. Adds the slice of that
  // name to `slices`.
  static Operand element_of(const Statement& k, const std::string& name, std::string& slices) {
    std::string result(k.name), range, type;
    const size_t colon = k.text.substr(0, k.text.find(" = ")).find(':', k.name.size());
    if (colon != k.text.npos) {  // "%0:2 = …"
      int count = 0;
      std::from_chars(k.text.data() + colon + 1, k.text.data() + k.text.size(), count);
      result += "#" + std::to_string(count - 1);
    }
    for (size_t d = 0; d < dims_in(k.type).size(); ++d) {
      range += d == 0 ? "0:1" : ", 0:1";
      type += "1x";
    }
    type += element_in(k.type);
    if (range.empty()) return {result, type};
    slices.append("    ").append(name).append(" = stablehlo.slice ").append(result).append(" [").append(range);
    slices.append("] : (tensor<").append(k.type).append(">) -> tensor<").append(type).append(">\n");
    return {name, type};
  }

  std::vector<Statement> all_;
  std::vector<std::vector<int32_t>> readers_;
  std::vector<char> leads_to_kernel_;  // by itself, or by what is fused into it
  std::vector<char> is_needed_;        // for a result
  std::vector<char> is_late_;          // computes a new value: comes after all others
  std::string calls_;                  // that give old values
  std::unordered_map<std::string_view, std::string> names_;
};

}  // namespace

std::string with_updates_in_place(std::string module, Target target) {
  if (target != Target::kCpuWithKernels) return module;
  const size_t main = module.find("\n  func.func public @main(");
  if (main == module.npos) return module;
  const auto [begin, end] = body_in(module, main);
  const std::string_view text = module;
  std::vector<Updated> updated = updated_in(text.substr(main, begin - main));
  if (updated.empty()) return module;
  Body body(text.substr(begin, end - begin), updated);
  for (size_t i = 0; i < updated.size(); ++i) body.order(updated[i], i);
  return module.substr(0, begin) + body.text() + module.substr(end);
}

}  // namespace tpjrt::ops
