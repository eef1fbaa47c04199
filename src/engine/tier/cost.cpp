// The table of costs, fitted by `./dev bench first_minute`.
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

// XLA:CPU on two cores.
constexpr int64_t kCompileGraph = 15'000'000;  // of any graph
constexpr int64_t kCompileCall = 12'000'000;   // a loop in LLVM, or a share of one
constexpr int64_t kCompileHeavy =
    50'000'000;  // contractions, sorts, scatters, windows, loops: programs within the program
// PyTorch's kernels.
constexpr int64_t kCall = 20'000;
constexpr int64_t kLaunch = 50'000;  // of a program of one call
constexpr int64_t kMostFew = 1024;   // elements
constexpr double kBytesInNs = 4.0;
constexpr double kFlopsInNs = 30.0;

bool contains(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) { return name.find(part) != name.npos; });
}

bool is_contraction(std::string_view name) {
  return contains(name, {"mm", "linear", "conv", "attention", "einsum", "bilinear", "dot"});
}

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

int64_t cost_within(const Node& node) { return is_heavy(node) ? kCompileHeavy : kCompileCall; }
int64_t cost_alone(const Node& node) { return kCompileGraph + cost_within(node); }

Cost predicted_cost(const graph::Walk& walk, CallsBy by) {
  Cost cost{kCompileGraph, 0};
  for (const Node* node : walk.nodes) {
    cost.compile += cost_within(*node);
    cost.calls += by == CallsBy::kPrograms ? kLaunch : kCall;
    cost.calls += static_cast<int64_t>(bytes(*node) / kBytesInNs + flops(*node) / kFlopsInNs);
  }
  return cost;
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
