// The table of costs. `./dev bench costs` measures them, and says how far off this table is.
#include "engine/tier/cost.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string_view>

namespace tpjrt::engine {
namespace {

using graph::Node;
using graph::Signature;
using graph::TypePtr;

// Nanoseconds, of XLA:CPU on two cores: of any graph, of a call that is a loop in LLVM or a share of one, and of a heavy call,
// which is a program within the program.
constexpr int64_t kCompileGraph = 15'000'000, kCompileCall = 12'000'000, kCompileHeavy = 50'000'000;
// Nanoseconds of a call by PyTorch's kernel, and by a program of its own; besides, what is read, written and multiplied.
constexpr int64_t kCall = 20'000, kLaunch = 50'000;
constexpr double kBytesInNs = 4.0, kFlopsInNs = 30.0;

constexpr int64_t kMostFew = 1024;  // elements

bool contains(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) { return name.find(part) != name.npos; });
}

bool is_contraction(std::string_view name) {
  return contains(name, {"mm", "linear", "conv", "attention", "einsum", "bilinear", "dot"});
}

// Contractions, sorts, scatters, windows, loops.
bool is_heavy(const Node& node) {
  const std::string_view name = node.signature->name;
  return is_contraction(name) || node.signature->random ||
         contains(name, {"sort", "topk", "scatter", "index", "pool", "norm", "cum", "linalg", "fft", "foreach", "fused",
                         "while", "if", "composite", "recurrent", "embedding", "upsample", "grid"});
}

// Of a contraction, twice the product of all dimensions: each element of the result is a sum over what the operands have more.
double flops(const Node& node) {
  const Signature& s = *node.signature;
  if (!is_contraction(s.name) || s.operands.size() < 2) return 0;
  double in = 1;
  for (size_t i = 0; i < 2; ++i) in *= static_cast<double>(std::max<int64_t>(s.operands[i]->numel(), 1));
  double out = 1;
  for (const TypePtr type : s.results) {
    if (type) out = std::max(out, static_cast<double>(type->numel()));
  }
  return 2 * std::sqrt(in * out);
}

double bytes(const Node& node) {
  double sum = 0;
  for (const TypePtr type : node.signature->operands) sum += static_cast<double>(type->nbytes());
  for (const TypePtr type : node.signature->results) sum += type ? static_cast<double>(type->nbytes()) : 0;
  return sum;
}

}  // namespace

Work work(const graph::Walk& walk) {
  Work work;
  for (const Node* node : walk.nodes) {
    ++(is_heavy(*node) ? work.heavy_calls : work.light_calls);
    work.bytes += bytes(*node);
    work.flops += flops(*node);
  }
  return work;
}

int64_t cost_within(const Node& node) { return is_heavy(node) ? kCompileHeavy : kCompileCall; }
int64_t cost_alone(const Node& node) { return kCompileGraph + cost_within(node); }

Cost predicted_cost(const graph::Walk& walk, CallsBy by) {
  const Work all = work(walk);
  const int64_t call = by == CallsBy::kPrograms ? kLaunch : kCall;
  return {kCompileGraph + all.light_calls * kCompileCall + all.heavy_calls * kCompileHeavy,
          static_cast<int64_t>(walk.nodes.size()) * call +
              static_cast<int64_t>(all.bytes / kBytesInNs + all.flops / kFlopsInNs)};
}

bool is_of_memory(const Signature& s) {
  return s.name == "pjrt::empty" || s.name == "pjrt::convert" || s.name == "pjrt::view" || s.name == "pjrt::write";
}

bool is_of_few_integers(const Node& node) {
  const auto is_few = [](TypePtr type) {
    return type && c10::isIntegralType(type->dtype, /*includeBool=*/true) && type->numel() <= kMostFew;
  };
  const Signature& s = *node.signature;
  if (s.random || s.results.empty()) return false;
  if (!std::ranges::all_of(s.operands, is_few) || !std::ranges::all_of(s.results, is_few)) return false;
  if (!s.op) return is_of_memory(s);
  return s.name.starts_with("aten::") &&
         std::ranges::none_of(s.parameters, [](const graph::Parameter& p) { return p.constant.isDevice(); });
}

}  // namespace tpjrt::engine
